//! Whether a plan makes sense: everything that the shape of its parts cannot tell.
//!
//! Pure: it knows the plan, the names in its text and the day, and touches nothing. A finding stands at the value that
//! has to change. Where a value is missing or unknown because of another finding, what depends on it stays silent.

mod header;
mod judgement;
mod metrics;
mod names;
mod platforms;
mod rubric;
mod secrets;
mod stages;

use std::{
    borrow::Borrow,
    cell::RefCell,
    collections::{BTreeSet, HashMap},
};

use self::names::Names;
pub(crate) use self::{metrics::Origin, rubric::RubricCheck};
use super::{
    model::{Entry, Plan},
    read::Context,
    suggest,
    tree::{Key, Node, Value},
};
use crate::{
    findings::Place,
    measure::quantity::{Date, Duration},
    platform::Name,
    score::rubric::Rubric,
};

/// A plan under check.
pub(crate) struct Check<'a> {
    plan: &'a Plan,
    root: &'a Node,
    context: &'a Context<'a>,
    names: Names<'a>,
    /// Stages that were read, by id; of several with one id the first.
    entries: HashMap<&'a str, &'a Entry>,
    /// Long maps that were looked into, by the id of the map and the keys that theirs stand for.
    maps: RefCell<HashMap<u32, ByKey<'a>>>,
    today: Option<Date>,
    has_file: &'a dyn Fn(&str) -> bool,
}

/// The longest time that anything in a plan may take.
const LONGEST: Duration = Duration::from_seconds(366.0 * 86_400.0);

/// The entries of a map.
type ByKey<'a> = HashMap<&'a str, &'a (Key, Node)>;

/// Maps up to this length are searched from front to back.
const SHORT: usize = 16;

impl<'a> Check<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        root: &'a Node,
        context: &'a Context<'a>,
        today: Option<Date>,
        has_file: &'a dyn Fn(&str) -> bool,
    ) -> Self {
        let mut entries = HashMap::with_capacity(plan.stages.len());
        for entry in &plan.stages {
            if let Some(id) = entry.stage_id() {
                entries.entry(id).or_insert(&entry.value);
            }
        }
        let names = Names::of(root, context);
        Self { plan, root, context, names, entries, maps: RefCell::default(), today, has_file }
    }

    /// All checks but those of the rubric.
    pub(crate) fn all(&self, rubric: Option<&Rubric>) {
        self.header();
        self.platforms();
        self.workloads();
        self.stages();
        self.time();
        self.judgement(rubric);
        self.key_like_values();
    }

    /// A reference to something by name.
    fn known<S: Borrow<str> + Ord>(&self, what: &str, name: &Name, names: &BTreeSet<S>) -> bool {
        if names.contains(name.value.as_str()) {
            return true;
        }
        if !self.context.is_full() && !self.context.is_unresolved(name.place) {
            let help = suggest::help(&name.value, names.iter().map(Borrow::borrow))
                .or_else(|| Some(format!("there is no {what} at all here")));
            self.context.error_with(name.place, format!("no {what} `{}`", name.value), help);
        }
        false
    }

    /// Where the value at a path of keys stands; the fallback where it does not stand in the text.
    fn place(&self, path: &[&str], fallback: Place) -> Place {
        self.node(path).map_or(fallback, |node| node.place)
    }

    /// The value at a path of keys, by the keys that misspelt ones stand for.
    fn node(&self, path: &[&str]) -> Option<&'a Node> {
        path.iter().try_fold(self.root, |node, key| self.child(node, key))
    }

    /// The value under a key of a map, by the key that a misspelt one stands for; lists take a number.
    fn child(&self, node: &'a Node, key: &str) -> Option<&'a Node> {
        match &node.value {
            Value::Seq(items) => items.get(key.parse::<usize>().ok()?),
            _ => self.pair(node, key).map(|(_, value)| value),
        }
    }

    /// The entry of a map, by the key that a misspelt one stands for.
    fn pair(&self, node: &'a Node, key: &str) -> Option<&'a (Key, Node)> {
        let entries = node.entries();
        let meant = |(k, value): &'a (Key, Node)| self.context.key_of(&k.text, value);
        if entries.len() <= SHORT {
            return entries.iter().find(|entry| meant(entry) == key);
        }
        let mut maps = self.maps.borrow_mut();
        let map = maps.entry(node.id).or_insert_with(|| {
            // Of several the first counts.
            entries.iter().rev().map(|entry| (meant(entry), entry)).collect()
        });
        map.get(key).copied()
    }

    /// A duration that nobody waits for: none at all, or longer than a year.
    fn span(&self, what: &str, place: Place, duration: Duration) {
        if self.context.is_unresolved(place) {
            return;
        }
        if duration.seconds <= 0.0 {
            self.context.error(place, format!("a {what} of nothing"));
        } else if duration.seconds > LONGEST.seconds {
            self.context.error(place, format!("a {what} of more than {LONGEST}"));
        }
    }

    /// Where the plan begins.
    pub(crate) fn start(&self) -> Place {
        self.root.entries().first().map_or(self.root.place, |(key, _)| key.place)
    }

    /// Where the key at a path stands.
    pub(crate) fn key_place(&self, path: &[&str]) -> Place {
        let Some((last, parents)) = path.split_last() else { return self.root.place };
        let found = self.node(parents).and_then(|parent| self.pair(parent, last));
        found.map_or(self.root.place, |(key, _)| key.place)
    }

    /// Whether a name can be a part of metric paths, file names and messages; said where not.
    fn identifier(&self, what: &str, name: &Name) -> bool {
        let text = name.value.as_str();
        let wrong = if text.is_empty() {
            "is empty"
        } else if text.len() > 64 {
            "is longer than 64 bytes"
        } else if !text.starts_with(|c: char| c.is_ascii_alphanumeric()) {
            "does not begin with a letter or a digit"
        } else if text.contains("..") {
            "holds `..`"
        } else if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) {
            "holds more than letters, digits, `.`, `_` and `-`"
        } else {
            return true;
        };
        if !self.context.is_unresolved(name.place) {
            let help = Some(
                "it becomes a part of file names and metrics: write it like `gpt-8gpu`; titles are free"
                    .into(),
            );
            self.context.error_with(name.place, format!("the {what} name `{text}` {wrong}"), help);
        }
        false
    }
}

/// The value under a key of a short map, by the key that a misspelt one stands for.
fn child<'n>(context: &Context<'_>, node: &'n Node, key: &str) -> Option<&'n Node> {
    node.entries().iter().find(|(k, value)| context.key_of(&k.text, value) == key).map(|(_, value)| value)
}
