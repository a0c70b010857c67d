//! Loading a plan: the order of the steps, and what each of them hands to the next.

use super::{
    check::{Check, Origin, RubricCheck},
    model::{Plan, RubricRef},
    read::{Context, Unset, read},
    secret,
    set::Changes,
    tree::{self, Value},
};
use crate::{
    findings::{At, Finding, Form, Place, Pos, Severity, Source, render},
    measure::quantity::Date,
    score::rubric::Rubric,
};

/// The largest text that is read as a plan.
pub const MOST_BYTES: usize = 1 << 20;

/// The rubric of a plan that names none.
pub const DEFAULT_RUBRIC: &str = "quarterly-100";

/// What loading needs beside the text.
pub struct Options<'a> {
    /// Changes from the command line, `PATH=VALUE` each.
    pub set: Vec<String>,
    /// The environment that `${NAME}` takes from.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// What an unset variable is.
    pub unset: Unset,
    /// Reads a rubric file by its path relative to the plan; the error is a fragment that says why it cannot be read.
    pub read_file: &'a dyn Fn(&str) -> Result<String, String>,
    /// Whether a file that the plan names is there, by its path relative to the plan.
    pub has_file: &'a dyn Fn(&str) -> bool,
    /// The text of a built-in rubric by its name.
    pub builtin_rubric: &'a dyn Fn(&str) -> Option<&'static str>,
    /// The day by which dates are judged; `None`: they are not.
    pub today: Option<Date>,
}

/// Another text that the plan refers to, with what is wrong with it.
#[derive(Debug, Clone)]
pub struct OtherText {
    /// Its name as the plan gives it.
    pub name: String,
    /// Its text.
    pub text: String,
    /// Its findings, in its order.
    pub findings: Vec<Finding>,
}

/// What became of a plan.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The plan, when it can be used. With [`Unset::Warning`] it may hold stand-ins for unset variables.
    pub plan: Option<Plan>,
    /// Its rubric, resolved.
    pub rubric: Option<Rubric>,
    /// Everything there is to say about the text, in its order.
    pub findings: Vec<Finding>,
    /// The rubric's file, where there is something to say about it.
    pub rubric_file: Option<OtherText>,
}

impl Loaded {
    /// Whether anything is an error.
    pub fn has_errors(&self) -> bool {
        let others = self.rubric_file.iter().flat_map(|other| &other.findings);
        self.findings.iter().chain(others).any(|f| f.severity == Severity::Error)
    }

    /// All findings as text.
    pub fn render(&self, form: Form, name: &str, text: &str) -> String {
        let mut all = vec![(Source { name, text }, self.findings.as_slice())];
        if let Some(other) = &self.rubric_file {
            all.push((Source { name: &other.name, text: &other.text }, &other.findings));
        }
        render(form, &all)
    }

    fn refused(mut finding: Finding) -> Self {
        finding.shorten();
        Self { plan: None, rubric: None, findings: vec![finding], rubric_file: None }
    }
}

/// Loads a plan from the bytes of a file.
pub fn load_bytes(name: &str, bytes: &[u8], options: &Options<'_>) -> Loaded {
    match as_text(bytes) {
        Ok(text) => load(name, text, options),
        Err(finding) => Loaded::refused(finding),
    }
}

/// Loads a plan. `name` is the file's, for findings that speak of it.
pub fn load(_name: &str, text: &str, options: &Options<'_>) -> Loaded {
    if let Err(finding) = as_text(text.as_bytes()) {
        return Loaded::refused(finding);
    }
    let mut tree = match tree::parse(text) {
        Ok(tree) => tree,
        Err(finding) => return Loaded::refused(finding),
    };
    if matches!(tree.root.value, Value::Null) {
        return Loaded::refused(at_start("the file holds no plan: it is empty"));
    }
    let mut context = Context::new(options.env, options.unset);
    for finding in std::mem::take(&mut tree.findings) {
        context.report(finding);
    }
    let changes = Changes::apply(&mut tree, &options.set, &context);
    secret::look(&tree, text, &options.set, &mut context);

    let plan: Option<Plan> = read(&tree.root, &context);
    let mut rubric = None;
    let mut rubric_file = None;
    if let Some(plan) = &plan {
        let check = Check::new(plan, &tree.root, &context, options.today, options.has_file);
        (rubric, rubric_file) = resolve_rubric(plan, &check, &context, options);
        check.all(rubric.as_ref());
    }
    let findings = changes.located(context.into_findings());
    let mut loaded = Loaded { plan, rubric, findings, rubric_file };
    if loaded.has_errors() {
        // What was read lacks the values that could not be.
        (loaded.plan, loaded.rubric) = (None, None);
    }
    loaded
}

/// Finds the plan's rubric, reads it and checks it.
fn resolve_rubric(
    plan: &Plan,
    check: &Check<'_>,
    context: &Context<'_>,
    options: &Options<'_>,
) -> (Option<Rubric>, Option<OtherText>) {
    let default = At::nowhere(RubricRef::Name(DEFAULT_RUBRIC.to_owned()));
    let reference = plan.rubric.as_ref().unwrap_or(&default);
    let place = if plan.rubric.is_some() { reference.place } else { check.start() };
    let (name, text, origin) = match &reference.value {
        RubricRef::Inline(rubric) => {
            let of = RubricCheck { rubric, context, start: check.key_place(&["rubric"]) };
            of.sums();
            check.rubric(&of, Origin::Author, place);
            return (Some(rubric.as_ref().clone()), None);
        }
        // What it will be is not known here.
        RubricRef::Name(_) | RubricRef::File(_) if context.is_unresolved(place) => return (None, None),
        RubricRef::Name(name) => {
            if let Some(text) = (options.builtin_rubric)(name) {
                (name, text.to_owned(), Origin::Builtin)
            } else {
                let help =
                    "name a built-in one, a file such as `rubrics/ours.yaml`, or write it here as a map";
                context.error_with(place, format!("no built-in rubric `{name}`"), Some(help.to_owned()));
                return (None, None);
            }
        }
        RubricRef::File(name) => match (options.read_file)(name) {
            Ok(text) => (name, text, Origin::Author),
            Err(why) => {
                context.error(place, format!("the rubric `{name}` cannot be read: {why}"));
                return (None, None);
            }
        },
    };
    let secrets = context.secrets().iter().map(|(name, _)| name.clone()).collect();
    let (rubric, findings) = read_rubric(&text, secrets, options, |of| check.rubric(of, origin, place));
    if rubric.is_none() {
        context.error(place, format!("the rubric `{name}` cannot be used: see its own findings"));
    }
    let other = (!findings.is_empty()).then(|| OtherText { name: name.clone(), text, findings });
    (rubric, other)
}

/// Reads a rubric's text and checks that it adds up; `and` checks what else is known.
fn read_rubric(
    text: &str,
    secrets: Vec<String>,
    options: &Options<'_>,
    and: impl FnOnce(&RubricCheck<'_>),
) -> (Option<Rubric>, Vec<Finding>) {
    let tree = match as_text(text.as_bytes()).and_then(tree::parse) {
        Ok(tree) => tree,
        Err(finding) => return (None, vec![finding]),
    };
    if matches!(tree.root.value, Value::Null) {
        return (None, vec![at_start("the file holds no rubric: it is empty")]);
    }
    let mut context = Context::new(options.env, options.unset);
    context.hide(secrets);
    for finding in tree.findings {
        context.report(finding);
    }
    secret::look_everywhere(&tree.root, &context);
    let rubric: Option<Rubric> = read(&tree.root, &context);
    if let Some(rubric) = &rubric {
        let start = tree.root.entries().first().map_or(tree.root.place, |(key, _)| key.place);
        let of = RubricCheck { rubric, context: &context, start };
        of.sums();
        and(&of);
    }
    (rubric, context.into_findings())
}

/// Reads a rubric by itself, without a plan that would say what it can be about.
pub fn load_rubric(text: &str, options: &Options<'_>) -> (Option<Rubric>, Vec<Finding>) {
    read_rubric(text, Vec::new(), options, |_| ())
}

/// The place of so many bytes of a text.
pub(super) fn at_offset(text: &str, offset: usize, len: usize) -> Place {
    let before = &text[..offset];
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or("").trim_start_matches('\u{feff}').chars().count() + 1;
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let pos = Pos { offset: number(offset), len: number(len), line: number(line), column: number(column) };
    Place { at: pos, defined: pos }
}

fn at_start(message: impl Into<String>) -> Finding {
    Finding::new(Severity::Error, at_offset("", 0, 0), message)
}

/// The bytes as text, or the one finding that says why they are none.
fn as_text(bytes: &[u8]) -> Result<&str, Finding> {
    if bytes.len() > MOST_BYTES {
        return Err(at_start(format!("{} bytes are no plan: {MOST_BYTES} are the most", bytes.len())));
    }
    if bytes.starts_with(&[0xff, 0xfe]) || bytes.starts_with(&[0xfe, 0xff]) {
        return Err(at_start("the file is in UTF-16").with_help("save it as UTF-8"));
    }
    let place = |offset: usize, message: &str| {
        let before = String::from_utf8_lossy(&bytes[..offset]);
        let mut place = at_offset(&before, before.len(), 1);
        place.at.offset = u32::try_from(offset).unwrap_or(u32::MAX);
        place.defined = place.at;
        Finding::new(Severity::Error, place, message)
    };
    if let Some(offset) = bytes.iter().position(|b| *b == 0) {
        return Err(place(offset, "a NUL byte: this is no text file"));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        place(error.valid_up_to(), "bytes that are no UTF-8").with_help("save the file as UTF-8")
    })
}
