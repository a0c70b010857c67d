//! The names that a plan defines, taken from its text.
//!
//! From the text and not from the structs, so that a definition with a fault inside is still a definition. Made once:
//! a set for each reference would make a large plan slow.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
};

use super::child;
use crate::{
    findings::Place,
    plan::{
        read::Context,
        tree::{Node, Value},
    },
    stage::{KINDS, Kind},
};

/// Names in order.
pub(super) type Set<'a> = BTreeSet<&'a str>;

/// A stage as the text names it.
pub(super) struct StageName<'a> {
    /// Its id; `None` where it has neither id nor kind.
    pub(super) id: Option<Cow<'a, str>>,
    /// Its kind, where exactly one is there.
    pub(super) kind: Option<&'static Kind>,
}

/// A platform as the text names it.
#[derive(Default)]
pub(super) struct PlatformNames<'a> {
    pub(super) offers: Set<'a>,
}

/// All names of a plan.
pub(super) struct Names<'a> {
    pub(super) workloads: Set<'a>,
    pub(super) platforms: BTreeMap<&'a str, PlatformNames<'a>>,
    pub(super) platform_ids: Set<'a>,
    /// Endpoints of any platform.
    pub(super) endpoints: Set<'a>,
    pub(super) jobs: Set<'a>,
    pub(super) stages: Vec<StageName<'a>>,
    pub(super) stage_ids: BTreeSet<String>,
    /// Stages by id; of several with one id the first.
    by_id: HashMap<String, usize>,
}

impl<'a> Names<'a> {
    pub(super) fn of(root: &'a Node, context: &Context<'_>) -> Self {
        let keys = |node: Option<&'a Node>| -> Set<'a> {
            node.map(|node| node.entries().iter().map(|(key, _)| key.text.as_str()).collect())
                .unwrap_or_default()
        };
        let at = |key: &str| child(context, root, key);
        let mut platforms = BTreeMap::new();
        let mut endpoints = Set::new();
        for (key, node) in at("platforms").map_or(&[][..], Node::entries) {
            endpoints.extend(keys(child(context, node, "endpoints")));
            let names = PlatformNames { offers: keys(child(context, node, "offers")) };
            platforms.insert(key.text.as_str(), names);
        }
        let stages: Vec<StageName<'a>> = match at("stages").map(|node| &node.value) {
            Some(Value::Seq(items)) => items.iter().map(|item| stage(item, context)).collect(),
            _ => Vec::new(),
        };
        let mut by_id = HashMap::with_capacity(stages.len());
        for (i, stage) in stages.iter().enumerate() {
            if let Some(id) = &stage.id {
                by_id.entry(id.clone().into_owned()).or_insert(i);
            }
        }
        Self {
            by_id,
            workloads: keys(at("workloads")),
            platform_ids: platforms.keys().copied().collect(),
            platforms,
            endpoints,
            jobs: keys(at("jobs")),
            stage_ids: stages.iter().filter_map(|s| s.id.as_deref().map(str::to_owned)).collect(),
            stages,
        }
    }

    /// Stages of a kind, by their ids.
    pub(super) fn of_kind<'n>(&'n self, kind: &'n str) -> impl Iterator<Item = &'n str> {
        let of_kind = move |stage: &&StageName<'_>| stage.kind.is_some_and(|k| k.name == kind);
        self.stages.iter().filter(of_kind).filter_map(|stage| stage.id.as_deref())
    }

    /// The stage of an id.
    pub(super) fn stage(&self, id: &str) -> Option<&StageName<'a>> {
        self.stages.get(*self.by_id.get(id)?)
    }
}

fn stage<'a>(item: &'a Node, context: &Context<'_>) -> StageName<'a> {
    let mut kinds = KINDS.iter().filter(|kind| child(context, item, kind.name).is_some());
    let kind = kinds.next().filter(|_| kinds.next().is_none());
    let id = match child(context, item, "id").map(|node| &node.value) {
        // An id that is not known may be any.
        Some(Value::Scalar { text, .. }) => Some(context.fill(text)).filter(|id| !id.contains("${")),
        _ => kind.map(|kind| kind.name.into()),
    };
    StageName { id, kind }
}

/// The first place of a name, for messages about its second.
pub(super) fn line(place: Place) -> u32 {
    place.defined.line
}
