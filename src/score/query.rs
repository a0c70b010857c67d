//! What a rubric, a job or a requirement may look up about one platform, and the reason when there is nothing.
//!
//! Not here: points, money.
//!
//! Invariant: a query that could mean several series means none; nothing is guessed.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::{
    judgement::StageRef,
    rubric::Fold,
    scorecard::{Answer, MetricCard, OfferCard, TaskCard},
};
use crate::{
    measure::{MetricPath, summary},
    record::{OutcomeKind, TaskId},
};

/// All that is known of one platform.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    /// The stages of the plan.
    pub stages: &'a [StageRef],
    /// Which of several stages of a kind is meant.
    pub bind: &'a IndexMap<String, String>,
    /// What was measured.
    pub metrics: &'a [MetricCard],
    /// How tasks ended.
    pub tasks: &'a [TaskCard],
    /// What people saw.
    pub answers: &'a BTreeMap<String, Answer>,
    /// What is charged, by offer.
    pub offers: &'a [OfferCard],
}

impl<'a> Evidence<'a> {
    /// The stage that a name in a query means: an id, else a kind that one stage has, else what `bind` says.
    ///
    /// # Errors
    /// Why it means none.
    pub fn stage(&self, name: &str) -> Result<&'a StageRef, String> {
        let by_id = |id: &str| self.stages.iter().find(|s| s.id == id);
        if let Some(stage) = by_id(name) {
            return Ok(stage);
        }
        let mut of_kind = self.stages.iter().filter(|s| s.kind == name);
        match (of_kind.next(), of_kind.next()) {
            (None, _) => Err(format!("the plan has no stage {name}")),
            (Some(stage), None) => Ok(stage),
            (Some(_), Some(_)) => {
                self.bind.get(name).and_then(|id| by_id(id)).ok_or_else(|| {
                    format!("the plan has several stages of kind {name} and `bind` names none")
                })
            }
        }
    }

    /// The one series that a path means.
    ///
    /// # Errors
    /// Why there is none: not planned, failed, not reported, or more than one.
    pub fn metric(&self, path: &MetricPath) -> Result<&'a MetricCard, String> {
        let name = path.stage.as_deref().unwrap_or_default();
        let stage = self.stage(name)?;
        let mut fit = self
            .metrics
            .iter()
            .filter(|m| m.stage == stage.id && m.name == path.name && path.labels.within(&m.labels));
        match (fit.next(), fit.next()) {
            (Some(metric), None) => Ok(metric),
            (Some(a), Some(b)) => {
                Err(format!("{path} could mean {} or {}: it needs a label", a.id(), b.id()))
            }
            (None, _) => Err(self.missing(stage, path)),
        }
    }

    /// Why a stage has no such metric here.
    fn missing(&self, stage: &StageRef, path: &MetricPath) -> String {
        let labels = path.labels.to_string();
        let tasks = || self.tasks.iter().filter(|t| t.stage == stage.id);
        let bad = |t: &&TaskCard| t.outcome != Some(OutcomeKind::Ok);
        // Prefer the task whose variant the query names.
        let named = tasks().filter(bad).find(|t| !labels.is_empty() && t.id.0.contains(&labels));
        match named.or_else(|| tasks().find(bad)) {
            Some(task) => match task.outcome {
                Some(outcome) if task.reason.is_empty() => format!("{} {outcome}", task.id),
                Some(outcome) => format!("{} {outcome}: {}", task.id, task.reason),
                None => format!("{} has not been run yet", task.id),
            },
            None if tasks().next().is_none() => format!("{} was not planned here", stage.id),
            None => format!("{} did not report {}{labels}", stage.id, path.name),
        }
    }

    /// The offer that the platform's first endpoint is had at.
    pub fn offer_in_use(&self) -> Option<&'a OfferCard> {
        self.offers.iter().find(|o| o.in_use)
    }
}

/// The figure of a metric that `fold` asks for.
pub(crate) fn figure(metric: &MetricCard, fold: Fold) -> Option<f64> {
    let ranked = |known: Option<f64>, percent: f64| {
        known.or_else(|| summary::percentile(&summary::sorted(metric.samples.as_deref()?), percent))
    };
    match fold {
        Fold::Median => Some(metric.median),
        Fold::Mean => Some(metric.mean),
        Fold::Min => Some(metric.min),
        Fold::Max => Some(metric.max),
        Fold::P95 => ranked(metric.p95, 95.0),
        Fold::P99 => ranked(metric.p99, 99.0),
        Fold::Sum => Some(metric.samples.as_ref().map_or(metric.mean * metric.n as f64, |s| s.iter().sum())),
    }
}

/// How far a single run may be off, where nothing tells.
pub(crate) const NOISE: f64 = 0.02;

/// The values over which repeats of a metric spread: those of the runs, or ±2 % of the only one.
pub(crate) fn spread(metric: &MetricCard) -> Option<(f64, f64)> {
    if *metric.unit.as_str() == *"count" {
        return None;
    }
    let sorted = summary::sorted(metric.per_run());
    match sorted.as_slice() {
        [] | [_] => {
            let (a, b) = (metric.median * (1.0 - NOISE), metric.median * (1.0 + NOISE));
            Some((a.min(b), a.max(b)))
        }
        [first, .., last] => Some((*first, *last)),
    }
}

/// The ids of the tasks behind a metric, as text.
pub(crate) fn evidence(metric: &MetricCard) -> Vec<String> {
    metric.evidence.iter().map(|TaskId(id)| id.clone()).collect()
}
