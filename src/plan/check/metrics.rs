//! What a metric path in a plan or a rubric means: which stage, which metric, in which unit.

use super::Check;
use crate::{
    findings::Place,
    measure::{MetricPath, Unit},
    plan::{read::Context, suggest},
    platform::Name,
    stage::Kind,
};

/// Who names a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The plan or a file of its author: what it names must exist.
    Author,
    /// A built-in rubric, which may be ahead of the stages and of the plan.
    Builtin,
}

/// Why a path means nothing in this plan.
pub(super) enum Problem {
    /// No stage and no kind has that name, or the stage has no such metric.
    Unknown { message: String, help: Option<String> },
    /// The kind is known, and no stage of the plan is of it, or none with those labels.
    NotPlanned { message: String },
    /// Several stages are of the kind, and `bind` does not say which one.
    Ambiguous { message: String, help: String },
}

impl Check<'_> {
    /// The unit of the metric that a path means; `None` where it is not known here.
    pub(super) fn resolve(&self, path: &MetricPath) -> Result<Option<Unit>, Problem> {
        let Some(name) = path.stage.as_deref() else {
            let help = Some(format!("write `stage.{path}`"));
            return Err(Problem::Unknown { message: format!("`{path}` names no stage"), help });
        };
        let (id, kind) = match (self.names.stage(name), Kind::named(name)) {
            (Some(stage), _) => (name, stage.kind),
            (None, Some(kind)) => (self.stage_of_kind(kind)?, Some(kind)),
            (None, None) => {
                let kinds = crate::stage::KINDS.iter().map(|kind| kind.name);
                let ids = self.names.stage_ids.iter().map(String::as_str);
                let help = suggest::help(name, ids.chain(kinds));
                return Err(Problem::Unknown { message: format!("no stage `{name}`"), help });
            }
        };
        // A faulty entry has its own finding.
        let Some(kind) = kind else { return Ok(None) };
        let spec = self.entries.get(id).and_then(|entry| entry.spec());
        if let Some(spec) = &spec
            && let Some((key, value)) = Self::unmeasured_label(path, spec)
        {
            return Err(Problem::NotPlanned { message: format!("`{id}` never measures `{key}={value}`") });
        }
        match kind.metric(&path.name) {
            Some(metric) => Ok(Some(metric.unit.clone())),
            None if kind.open => Ok(spec.and_then(|spec| self.unit_by_reader(&spec, &path.name))),
            None => {
                let help = suggest::help(&path.name, kind.metrics.iter().map(|metric| metric.name));
                Err(Problem::Unknown {
                    message: format!("`{}` measures no `{}`", kind.name, path.name),
                    help,
                })
            }
        }
    }

    /// The stage that a kind's name means.
    fn stage_of_kind<'k>(&'k self, kind: &'k Kind) -> Result<&'k str, Problem> {
        let ids: Vec<&str> = self.names.of_kind(kind.name).collect();
        match (ids.as_slice(), self.plan.bind.get(kind.name)) {
            ([], _) => Err(Problem::NotPlanned { message: format!("the plan has no `{}` stage", kind.name) }),
            ([id], _) => Ok(id),
            (_, Some(bound)) => Ok(&bound.value),
            (ids, None) => Err(Problem::Ambiguous {
                message: format!("`{}` is ambiguous: {} are of that kind", kind.name, ids.join(", ")),
                help: format!("say which one is meant: `bind: {{ {}: {} }}`", kind.name, ids[0]),
            }),
        }
    }

    /// A path that the author wrote: what is wrong with it is an error, what is not planned a warning.
    pub(super) fn author_metric(
        &self,
        context: &Context<'_>,
        place: Place,
        path: &MetricPath,
    ) -> Option<Unit> {
        if context.is_full() {
            return None;
        }
        match self.resolve(path) {
            Ok(unit) => return unit,
            Err(_) if context.is_unresolved(place) || self.stages_lost() => {}
            Err(Problem::Unknown { message, help }) => context.error_with(place, message, help),
            Err(Problem::Ambiguous { message, help }) => context.error_with(place, message, Some(help)),
            Err(Problem::NotPlanned { message }) => {
                context.warning(place, format!("`{path}` will be unmeasured: {message}"));
            }
        }
        None
    }

    /// A reference to a stage by its id.
    pub(super) fn known_stage(&self, id: &Name) -> bool {
        self.names.stage_ids.contains(&id.value)
            || !self.stages_lost() && self.known("stage", id, &self.names.stage_ids)
    }

    /// Whether stages are missing from what was read.
    fn stages_lost(&self) -> bool {
        self.node(&["stages"]).is_none() || self.names.stages.iter().any(|stage| stage.id.is_none())
    }
}
