//! From the tree to structs: a serde deserializer that goes on after a fault.
//!
//! It knows serde and no plans. A value that cannot be read becomes a finding, is left out, and the whole is read
//! again, until nothing new fails; so one pass over a plan's faults lists them all. What the reader learned on the
//! way ([`Context`]) keeps later checks from finding the same fault twice.

mod access;
mod de;

use std::{
    borrow::Cow,
    cell::{Cell, RefCell},
    cmp::Reverse,
    collections::{HashMap, HashSet},
};

use serde::Deserialize;

use self::de::Reader;
use super::{
    shape::{Shape, Shapes},
    tree::Node,
    variables,
};
use crate::findings::{At, Finding, Place, Pos, Severity};

/// Errors after which nothing more is looked for, and warnings and notes likewise.
const MOST_FINDINGS: usize = 100;
/// The shortest value of a variable that is replaced wherever it stands in a message.
const CONCEALED: usize = 4;
/// Readings of the whole after which nothing more is looked for. Each takes out one value.
const MOST_PASSES: usize = 200;

/// What to do about a variable that is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unset {
    /// The plan cannot be used.
    #[default]
    Error,
    /// Say so and go on as if it had some value that fits.
    Warning,
}

/// A value that came from variables: what it is, and how the plan writes it.
struct Filled {
    value: String,
    written: String,
}

/// What is found out about a document beside its values.
pub(crate) struct Context<'a> {
    env: &'a dyn Fn(&str) -> Option<String>,
    unset: Unset,
    shapes: &'static Shapes,
    /// Variables that are secrets, with their values where they are set.
    secrets: Vec<(String, Option<String>)>,
    findings: RefCell<Vec<Finding>>,
    /// One finding for a fault, however many aliases lead to it and however often it is read.
    said: RefCell<HashSet<(Pos, String)>>,
    /// Nodes that are left out.
    poisoned: RefCell<HashSet<u32>>,
    /// Misspelt keys and the key that each was taken for, by the id of the value.
    meant: RefCell<HashMap<u32, &'static str>>,
    /// Maps that lost a value, or that hold a key that means nothing: absence there proves nothing.
    incomplete: RefCell<HashSet<Place>>,
    /// Maps with an unknown value among theirs: their numbers prove nothing.
    vague: RefCell<HashSet<Place>>,
    filled: RefCell<HashMap<Pos, Filled>>,
    /// Values that are not known: those of unset variables, and those that have a finding. Each is read as something
    /// that fits, so that what surrounds it is checked all the same.
    unresolved: RefCell<HashSet<Pos>>,
    /// Which of how many stand-ins an unknown value is at, by the id of the value.
    stand_in: RefCell<HashMap<u32, (usize, usize)>>,
    /// Errors taken so far, and warnings and notes.
    errors: Cell<usize>,
    remarks: Cell<usize>,
    /// Readings went on for too long.
    given_up: Cell<bool>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(env: &'a dyn Fn(&str) -> Option<String>, unset: Unset) -> Self {
        Self {
            env,
            unset,
            shapes: Shapes::get(),
            secrets: Vec::new(),
            findings: RefCell::default(),
            said: RefCell::default(),
            poisoned: RefCell::default(),
            meant: RefCell::default(),
            incomplete: RefCell::default(),
            vague: RefCell::default(),
            filled: RefCell::default(),
            unresolved: RefCell::default(),
            stand_in: RefCell::default(),
            errors: Cell::new(0),
            remarks: Cell::new(0),
            given_up: Cell::new(false),
        }
    }

    pub(crate) fn error(&self, place: Place, message: impl Into<String>) {
        self.report(Finding::new(Severity::Error, place, message));
    }

    pub(crate) fn error_with(&self, place: Place, message: impl Into<String>, help: Option<String>) {
        let mut finding = Finding::new(Severity::Error, place, message);
        finding.help = help;
        self.report(finding);
    }

    pub(crate) fn warning(&self, place: Place, message: impl Into<String>) {
        self.report(Finding::new(Severity::Warning, place, message));
    }

    pub(crate) fn warning_with(&self, place: Place, message: impl Into<String>, help: Option<String>) {
        let mut finding = Finding::new(Severity::Warning, place, message);
        finding.help = help;
        self.report(finding);
    }

    pub(crate) fn note(&self, place: Place, message: impl Into<String>) {
        self.report(Finding::new(Severity::Note, place, message));
    }

    /// From now on these variables are secrets: no finding shows their values.
    pub(crate) fn hide(&mut self, names: Vec<String>) {
        let value = |name: &str| (self.env)(name).filter(|value| !value.is_empty());
        self.secrets = names.into_iter().map(|name| (name.clone(), value(&name))).collect();
    }

    /// The variables that are secrets, with their values where they are set.
    pub(crate) fn secrets(&self) -> &[(String, Option<String>)] {
        &self.secrets
    }

    pub(crate) fn is_secret(&self, name: &str) -> bool {
        self.secrets.iter().any(|(secret, _)| secret == name)
    }

    /// The value there is not to be used: from now on it is unknown.
    pub(crate) fn forget(&self, place: Place) {
        self.unresolved.borrow_mut().insert(place.defined);
    }

    /// A value for a message; one that came from variables as the plan writes it.
    pub(crate) fn shown<T: std::fmt::Display>(&self, value: &At<T>) -> String {
        match self.filled.borrow().get(&value.place.defined) {
            Some(filled) => filled.written.clone(),
            None => value.to_string(),
        }
    }

    /// A text with its variables filled in, as far as they are set.
    pub(crate) fn fill<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !text.contains("${") || variables::names(text).any(|name| self.is_secret(name)) {
            return text.into();
        }
        match variables::fill(text, self.env) {
            variables::Filled::Text(value) => value.into(),
            _ => text.into(),
        }
    }

    /// Whether no more errors are taken; what is costly to find or to word may be left out then.
    pub(crate) fn is_full(&self) -> bool {
        self.errors.get() >= MOST_FINDINGS
    }

    /// Whether no more warnings and notes are taken.
    pub(crate) fn is_full_of_remarks(&self) -> bool {
        self.remarks.get() >= MOST_FINDINGS
    }

    /// Takes a finding, unless it was said before.
    pub(crate) fn report(&self, mut finding: Finding) {
        let taken = if finding.severity == Severity::Error { &self.errors } else { &self.remarks };
        if taken.get() >= MOST_FINDINGS {
            return;
        }
        for text in [Some(&mut finding.message), finding.help.as_mut()].into_iter().flatten() {
            self.conceal(finding.pos, text);
        }
        finding.shorten();
        if self.said.borrow_mut().insert((finding.pos, finding.message.clone())) {
            taken.set(taken.get() + 1);
            self.findings.borrow_mut().push(finding);
        }
    }

    /// Puts the plan's own words for the values of variables, which may be secrets.
    fn conceal(&self, pos: Pos, text: &mut String) {
        let filled = self.filled.borrow();
        if let Some(here) = filled.get(&pos) {
            *text = text.replace(&format!("`{}`", here.value), &format!("`{}`", here.written));
        }
        // Parts of a message, or the value of another place; a short one is a word that may stand anywhere.
        let is_in = |filled: &&Filled| filled.value.len() >= CONCEALED && text.contains(&filled.value);
        let mut shown: Vec<&Filled> = filled.values().filter(is_in).collect();
        shown.sort_by_key(|filled| (Reverse(filled.value.len()), &filled.written));
        for Filled { value, written } in shown {
            *text = text.replace(value, written);
        }
        for value in self.secrets.iter().filter_map(|(_, value)| value.as_ref()) {
            if value.len() >= CONCEALED && text.contains(value.as_str()) {
                *text = text.replace(value.as_str(), "****");
            }
        }
    }

    /// A finding about a value that does not fit: silent where the value is unknown, without the value where it came
    /// from a variable.
    pub(crate) fn misfit(&self, place: Place, message: impl Into<String>) {
        if self.is_unresolved(place) {
            return;
        }
        let written = self.filled.borrow().get(&place.defined).map(|filled| filled.written.clone());
        match written {
            Some(written) => {
                self.error(place, format!("the value that `{written}` stands for does not fit here"));
            }
            None => self.error(place, message),
        }
    }

    /// Whether the value there is unknown: that of a variable that is not set, or one that has a finding.
    pub(crate) fn is_unresolved(&self, place: Place) -> bool {
        let unresolved = self.unresolved.borrow();
        !unresolved.is_empty() && unresolved.contains(&place.defined)
    }

    /// Whether something is wrong with the value there.
    fn has_error_at(&self, place: Place) -> bool {
        let findings = self.findings.borrow();
        findings.iter().any(|f| f.severity == Severity::Error && f.pos == place.defined)
    }

    /// Whether the value there came from variables.
    pub(crate) fn is_filled(&self, place: Place) -> bool {
        self.filled.borrow().contains_key(&place.defined)
    }

    /// Whether the map there may hold a key that was not read.
    pub(crate) fn lost(&self, place: Place) -> bool {
        self.incomplete.borrow().contains(&place)
    }

    /// Whether values of the map there are missing or unknown.
    pub(crate) fn unsure(&self, place: Place) -> bool {
        self.lost(place) || self.vague.borrow().contains(&place)
    }

    /// The key that the value's key stands for.
    pub(crate) fn key_of<'k>(&self, key: &'k str, value: &Node) -> &'k str
    where
        'static: 'k,
    {
        self.meant.borrow().get(&value.id).copied().unwrap_or(key)
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.errors.get() > 0
    }

    /// All findings, in the order of the text.
    pub(crate) fn into_findings(self) -> Vec<Finding> {
        let there_may_be_more = self.is_full() || self.given_up.get();
        let mut findings = self.findings.into_inner();
        findings.sort();
        if there_may_be_more && let Some(last) = findings.last() {
            let message = "there may be more: fix these first";
            findings.push(Finding {
                severity: Severity::Note,
                used_at: None,
                help: None,
                message: message.into(),
                ..last.clone()
            });
        }
        findings
    }

    fn shape(&self, name: &str) -> Option<&'static Shape> {
        self.shapes.of(name)
    }

    fn is_poisoned(&self, node: &Node) -> bool {
        self.poisoned.borrow().contains(&node.id)
    }
}

/// Reads a value of the document. `None`: it cannot be built; the findings say why.
pub(crate) fn read<'a, T: Deserialize<'a>>(root: &'a Node, context: &'a Context<'a>) -> Option<T> {
    let mut passes = 0;
    loop {
        match T::deserialize(Reader::new(root, context)) {
            Ok(value) => return Some(value),
            // One more value is out, or stands in for another: the next pass gets further.
            Err(error) if error.progress => {}
            Err(_) => return None,
        }
        // Looking for a stand-in for a variable is no fault and ends by itself.
        if context.has_errors() {
            passes += 1;
        }
        if passes >= MOST_PASSES || context.is_full() {
            context.given_up.set(true);
            return None;
        }
    }
}
