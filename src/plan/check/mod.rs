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

use std::{borrow::Borrow, collections::BTreeSet};

use self::names::Names;
pub(crate) use self::{metrics::Origin, rubric::RubricCheck};
use super::{
    model::Plan,
    read::Context,
    suggest,
    tree::{Node, Value},
};
use crate::{findings::Place, measure::quantity::Date, platform::Name, score::rubric::Rubric};

/// A plan under check.
pub(crate) struct Check<'a> {
    plan: &'a Plan,
    root: &'a Node,
    context: &'a Context<'a>,
    names: Names<'a>,
    today: Option<Date>,
    has_file: &'a dyn Fn(&str) -> bool,
}

impl<'a> Check<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        root: &'a Node,
        context: &'a Context<'a>,
        today: Option<Date>,
        has_file: &'a dyn Fn(&str) -> bool,
    ) -> Self {
        Self { plan, root, context, names: Names::of(root, context), today, has_file }
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
        if !self.context.is_unresolved(name.place) {
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
        path.iter().try_fold(self.root, |node, key| child(self.context, node, key))
    }

    /// Where the plan begins.
    pub(crate) fn start(&self) -> Place {
        self.root.entries().first().map_or(self.root.place, |(key, _)| key.place)
    }

    /// Where the key at a path stands.
    pub(crate) fn key_place(&self, path: &[&str]) -> Place {
        let Some((last, parents)) = path.split_last() else { return self.root.place };
        let found = self.node(parents).and_then(|parent| {
            let mut entries = parent.entries().iter();
            entries
                .find(|(key, node)| self.context.key_of(&key.text, node) == *last)
                .map(|(key, _)| key.place)
        });
        found.unwrap_or(self.root.place)
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

/// The value under a key of a map, by the key that a misspelt one stands for; lists take a number.
fn child<'n>(context: &Context<'_>, node: &'n Node, key: &str) -> Option<&'n Node> {
    if let Value::Seq(items) = &node.value {
        return items.get(key.parse::<usize>().ok()?);
    }
    node.entries().iter().find(|(k, value)| context.key_of(&k.text, value) == key).map(|(_, value)| value)
}
