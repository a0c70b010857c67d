//! The lines of a journal: what happened in a run, in order, as facts.
//!
//! Plain data. How lines are stored is the journal's matter, what their numbers mean the score's. A line never holds
//! a secret. [`SCHEMA`] counts breaking changes; a reader refuses a newer one.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::{Better, Finite, Labels, Unit};

pub use crate::outcome::{Cause, CheckOutcome, CheckResult, Outcome, OutcomeKind};

/// The version of the journal's format.
pub const SCHEMA: u32 = 1;

/// The identity of a task in a run: `platform/stage[@endpoint][{labels}][#repeat]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct TaskId(pub String);

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A planned piece of work: one stage on one machine, once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PlannedTask {
    /// Its identity.
    pub id: TaskId,
    /// The platform's key in the plan.
    pub platform: String,
    /// The stage's id.
    pub stage: String,
    /// The stage's kind.
    pub kind: String,
    /// The endpoint's key; `None` where the platform offers none for this stage.
    pub endpoint: Option<String>,
    /// Which of the stage's variants it is, such as `gpus=8`; empty for a stage that has one.
    pub labels: Labels,
    /// Which repetition it is, from 1.
    pub repeat: u32,
}

/// Which series a sample belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Series {
    /// The quantity, without the stage.
    pub name: String,
    /// Its labels, the task's own included.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The unit of the values.
    pub unit: Unit,
    /// Which way it gets better.
    pub better: Better,
}

/// The result of an `expect`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Expectation {
    /// The metric as written in the plan.
    pub metric: String,
    /// The bound as written in the plan.
    pub bound: String,
    /// The value in the bound's own unit, unrounded; `None` when nothing was measured.
    pub value: Option<Finite>,
    /// Whether it held; `None` when nothing was measured, which is not a pass.
    pub met: Option<bool>,
}

/// How loud a note is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    /// For the curious.
    Info,
    /// The report shows it.
    Warning,
}

/// The plan of a run, as far as a reader needs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanRef {
    /// The plan's name.
    pub name: String,
    /// The period that the run belongs to, such as `2026-Q1`.
    pub period: String,
    /// SHA-256 of the plan's text and of what `--set` changed, in hex.
    pub digest: String,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// The run began. Always the first line.
    RunStarted(Box<RunStarted>),
    /// Another process went on with the run.
    RunResumed {
        /// The version of planrun that goes on.
        planrun: String,
        /// How many bytes of a torn last line were dropped.
        dropped_bytes: u64,
    },
    /// A task began.
    TaskStarted {
        /// Which.
        task: TaskId,
        /// Which try, from 1.
        attempt: u32,
    },
    /// A fact about the host that the task ran on.
    Fact {
        /// Which task saw it.
        task: TaskId,
        /// Its dotted name.
        name: String,
        /// Its value.
        value: serde_json::Value,
    },
    /// A check of the host.
    Check {
        /// Which task saw it.
        task: TaskId,
        /// The result.
        check: CheckResult,
    },
    /// Values of one series, in order.
    Samples {
        /// Which task measured them.
        task: TaskId,
        /// Which series.
        series: Series,
        /// The values, in the series' unit.
        values: Vec<Finite>,
    },
    /// Something that a reader should know.
    Note {
        /// Which task it is about; `None`: the run.
        #[serde(skip_serializing_if = "Option::is_none")]
        task: Option<TaskId>,
        /// How loud.
        level: Level,
        /// In words.
        text: String,
    },
    /// A try of a task ended.
    TaskEnded {
        /// Which.
        task: TaskId,
        /// Which try, from 1; 0 for a task that never began.
        attempt: u32,
        /// How.
        outcome: Outcome,
        /// Whether another try follows: then this is not the task's end.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retried: bool,
        /// Seconds that it took, by the controller's monotonic clock.
        seconds: Finite,
        /// What the plan expected of it.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        expectations: Vec<Expectation>,
        /// Its raw output, relative to the run's folder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        log: Option<String>,
    },
    /// The process that ran it ended in order.
    RunEnded {
        /// Whether every planned task has ended.
        complete: bool,
        /// Why it ended, in words.
        reason: String,
    },
}

/// The first line of a journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of planrun.
    pub planrun: String,
    /// The identity of the run.
    pub run: String,
    /// The plan's name, period and digest.
    pub plan: PlanRef,
    /// The plan's text as it was read.
    pub plan_text: String,
    /// `--set` changes in order.
    pub set: Vec<String>,
    /// Where the plan stood, for files that it names.
    pub plan_path: String,
    /// The part of the plan that judgement needs, resolved, without anything that reaches a host.
    pub judgement: serde_json::Value,
    /// Every task that the plan asks for, in schedule order.
    pub tasks: Vec<PlannedTask>,
    /// A rehearsal: its numbers are never compared.
    pub quick: bool,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Counts lines from 0, without gaps.
    pub seq: u64,
    /// Wall clock in UTC, RFC 3339, for people; never for durations.
    pub at: String,
    /// Seconds since the process started, by a monotonic clock.
    pub since: Finite,
    /// What happened.
    pub body: Body,
}
