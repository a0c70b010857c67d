//! The part of a plan that judgement needs: who is judged, by which rubric, for which jobs and scenarios.
//!
//! It is written into the journal, resolved, so that a scorecard can be made again years later without the plan,
//! its environment or any machine.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rubric::Rubric;
use crate::{
    findings::At,
    measure::{
        Currency, MetricPath,
        quantity::{Bound, Bytes, Date, Duration, LabourPrice, Work},
    },
    platform::{Name, Named, Platform},
};

/// Everything that judgement takes from a plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Judgement {
    /// The plan's name.
    pub name: String,
    /// The period that it is run for.
    pub period: String,
    /// The currency of the report.
    pub currency: Currency,
    /// The candidates, in the order of the plan.
    pub platforms: Named<Platform>,
    /// The stages of the plan, in order.
    pub stages: Vec<StageRef>,
    /// Which of several stages of a kind is meant by the kind's name.
    pub bind: IndexMap<String, String>,
    /// The rubric, resolved.
    pub rubric: Rubric,
    /// The rubric's weight preset; `None`: its own weights.
    pub preset: Option<String>,
    /// What compute is bought for.
    pub jobs: Named<At<Job>>,
    /// Where the jobs run today.
    pub incumbent: Option<Incumbent>,
    /// Exchange rates, by currency.
    pub rates: Named<ExchangeRate>,
    /// Kinds of work to choose for.
    pub scenarios: Named<At<Scenario>>,
    /// The metrics that `diff` tests; empty: the default list.
    pub headline: Vec<At<MetricPath>>,
}

/// A stage as judgement sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StageRef {
    /// Its id.
    pub id: String,
    /// Its kind.
    pub kind: String,
    /// The workload that it runs, where it runs one.
    pub workload: Option<String>,
    /// Whether that workload is planrun's own reference: its figures stand in for the user's.
    pub reference: bool,
    /// A digest of its options: a metric of other options is another metric.
    pub options: String,
}

/// A finished piece of work that compute is bought for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Job {
    /// How much work it is.
    pub work: Work,
    /// The stage whose measured throughput tells how long it takes.
    pub from: Name,
    /// The workload that it is; a stage that runs another one, or planrun's reference, only stands in for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<Name>,
    /// How many accelerators it runs on.
    pub gpus: u32,
    /// The size of one checkpoint; left out: it saves none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Bytes>,
    /// Data kept for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub storage: Option<JobStorage>,
    /// Data moved out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<Bytes>,
    /// People's work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labour: Option<Labour>,
    /// Capacity kept beyond the need, such as 0.3 where scaling up is slow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub headroom: Option<f64>,
}

/// Data kept for a job.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobStorage {
    /// How much.
    pub size: Bytes,
    /// For how long.
    #[serde(rename = "for")]
    pub duration: Duration,
}

/// People's work for a job.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Labour {
    /// Hours.
    pub hours: f64,
    /// What an hour costs.
    pub rate: At<LabourPrice>,
}

/// Where the jobs run today, and what it takes to leave.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Incumbent {
    /// The platform.
    pub platform: Name,
    /// How often each job runs in a month.
    pub jobs_per_month: IndexMap<Name, f64>,
    /// What moving takes.
    #[serde(rename = "move", skip_serializing_if = "Option::is_none")]
    pub moving: Option<Moving>,
}

/// What moving to another platform takes.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Moving {
    /// Data to carry over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Bytes>,
    /// Hours of people's work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub labour_hours: Option<f64>,
}

/// What one unit of a currency is worth.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExchangeRate {
    /// In this currency.
    pub to: Currency,
    /// So much.
    pub rate: f64,
    /// When it was seen.
    pub seen_on: Date,
    /// Where.
    pub source: String,
}

/// A kind of work to choose a platform for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// What decides among the platforms that qualify.
    pub objective: Objective,
    /// The rubric's weight preset; default the plan's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preset: Option<Name>,
    /// The job whose cost counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<Name>,
    /// What a platform must have: `gpus`, `gpu`, `interconnect`, `network`, `memory_per_gpu`, `compliance`, `region`,
    /// or a metric `stage.quantity{labels}`.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub require: IndexMap<Name, At<Bound>>,
}

/// What decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Objective {
    /// Most points.
    Points,
    /// Least cost of a finished job.
    Cost,
}
