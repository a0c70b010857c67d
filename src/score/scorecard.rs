//! The scorecard: what a run says, as `scorecard.json` holds it and every report shows it.
//!
//! Plain data and its reading. How it is made is `build`'s matter, how it looks the report's.
//!
//! Invariant: what was not measured is null or left out, never 0; the order of everything is that of the plan or
//! of the names, so that the same journal gives the same bytes.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{cost::CostCard, judgement::StageRef, rubric::Rubric, scenario::ScenarioCard};
use crate::{
    measure::{Better, Currency, Labels, Unit},
    platform::{DeclaredValue, Tier},
    record::{Cause, CheckOutcome, Expectation, Level, OutcomeKind, PlanRef, TaskId},
};

/// The version of the scorecard's format.
pub const SCHEMA: u32 = 1;

/// What the names of series about the host itself start with.
pub(crate) const TELEMETRY: &str = "host_";

/// From a to b; both ends are possible.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Range {
    /// The least that it can be.
    pub low: f64,
    /// The most that it can be.
    pub high: f64,
}

impl Range {
    /// One value.
    pub const fn exactly(value: f64) -> Self {
        Self { low: value, high: value }
    }

    /// Between two values in either order.
    pub fn between(a: f64, b: f64) -> Self {
        Self { low: a.min(b), high: a.max(b) }
    }

    /// The smallest range that holds both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// Both ends times a factor that is not negative, rounded to a millionth.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        Self { low: round6(self.low * factor), high: round6(self.high * factor) }
    }

    /// The sum of both ends.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { low: round6(self.low + other.low), high: round6(self.high + other.high) }
    }
}

/// Rounds to a millionth, so that sums of thirds read as people expect.
pub(crate) fn round6(value: f64) -> f64 {
    (value * 1e6).round() / 1e6 + 0.0
}

/// A scorecard.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct Scorecard {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The version of planrun that made it.
    pub planrun: String,
    /// The plan.
    pub plan: PlanRef,
    /// The run.
    pub run: RunCard,
    /// A rehearsal with a few steps: its numbers are never compared.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub quick: bool,
    /// The currency of all money.
    pub currency: Currency,
    /// How it was judged.
    pub rubric: RubricCard,
    /// The stages of the plan, in order.
    pub stages: Vec<StageRef>,
    /// Which of several stages of a kind is meant by the kind's name.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub bind: IndexMap<String, String>,
    /// The metrics that a comparison tests; empty: the default list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headline: Vec<String>,
    /// The candidates, in the order of the plan.
    pub platforms: Vec<PlatformCard>,
    /// The kinds of work to choose for.
    pub scenarios: Vec<ScenarioCard>,
    /// The candidates by points, as far as evidence and noise allow.
    pub ranking: Vec<RankRow>,
    /// What a reader should know.
    pub findings: Vec<FindingCard>,
}

/// A run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunCard {
    /// Its identity.
    pub id: String,
    /// When it began, UTC.
    pub started: String,
    /// When it ended, UTC; null: it has not ended in order.
    pub finished: Option<String>,
    /// Whether every planned task has ended.
    pub complete: bool,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_reason: Option<String>,
}

/// How it was judged, with every parameter, so that it can be judged again.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RubricCard {
    /// Its name.
    pub name: String,
    /// The weight preset; null: its own weights.
    pub preset: Option<String>,
    /// Its criteria in words, with the weights in use.
    pub criteria: Vec<RuleCard>,
    /// The rubric itself.
    pub source: Rubric,
}

/// A criterion in words.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RuleCard {
    /// Its key.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its weight in use.
    pub weight: f64,
    /// The reading of its source that was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reading: Option<String>,
    /// Its parts in words.
    pub parts: Vec<String>,
}

/// A candidate.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PlatformCard {
    /// Its key in the plan.
    pub id: String,
    /// Its name.
    pub title: String,
    /// What kind of seller it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<Tier>,
    /// The region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Facts about its machines, by endpoint.
    pub environment: BTreeMap<String, BTreeMap<String, serde_json::Value>>,
    /// What was measured.
    pub metrics: Vec<MetricCard>,
    /// Every planned task.
    pub tasks: Vec<TaskCard>,
    /// Checks of its machines.
    pub checks: Vec<CheckCard>,
    /// What people saw.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub answers: BTreeMap<String, Answer>,
    /// What it charges for compute.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offers: Vec<OfferCard>,
    /// What a finished job costs, by job and offer.
    pub costs: Vec<CostCard>,
    /// Points by criterion.
    pub criteria: Vec<CriterionCard>,
    /// Bounds that it did not hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<GateCard>,
    /// All points together.
    pub score: Score,
    /// What to do with it.
    pub verdict: Verdict,
}

/// A measured metric: one series over all tasks of a stage that ended `ok`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricCard {
    /// The stage's id.
    pub stage: String,
    /// The stage's kind.
    pub kind: String,
    /// The quantity.
    pub name: String,
    /// What tells it from others of the name.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The unit of all values here.
    pub unit: Unit,
    /// Which way it gets better.
    pub better: Better,
    /// How many samples.
    pub n: usize,
    /// Their arithmetic mean.
    pub mean: f64,
    /// The middle one.
    pub median: f64,
    /// Their sample standard deviation; left out for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stddev: Option<f64>,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The nearest-rank 95th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p95: Option<f64>,
    /// The nearest-rank 99th percentile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    /// Which of the percentiles rest on too few samples to have one beyond them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub few_samples: Vec<String>,
    /// The samples in order, up to 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<Vec<f64>>,
    /// SHA-256 of more samples, as little-endian 64-bit floats in order, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_digest: Option<String>,
    /// The median of each task, where tasks gave several samples: the unit of comparison is the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<f64>,
    /// The tasks that measured it.
    pub evidence: Vec<TaskId>,
    /// A steady state under 30 min stands behind it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub short: bool,
}

impl MetricCard {
    /// Its identity: `stage.quantity{labels}`.
    pub fn id(&self) -> String {
        format!("{}.{}{}", self.stage, self.name, self.labels)
    }

    /// Whether it is the host's own telemetry: context of the results beside it, and no result.
    pub fn is_telemetry(&self) -> bool {
        self.name.starts_with(TELEMETRY)
    }

    /// One figure for each task, the unit of comparison.
    pub fn per_run(&self) -> &[f64] {
        if self.runs.is_empty() { self.samples.as_deref().unwrap_or_default() } else { &self.runs }
    }
}

/// A planned task and how it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TaskCard {
    /// Its identity.
    pub id: TaskId,
    /// The stage's id.
    pub stage: String,
    /// The stage's kind.
    pub kind: String,
    /// How it ended; null: not run yet.
    pub outcome: Option<OutcomeKind>,
    /// What led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// In words.
    pub reason: String,
    /// The number of its last try.
    pub attempts: u32,
    /// Seconds that its last try took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Its raw output, relative to the run's folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
    /// What the plan expected of it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expectations: Vec<Expectation>,
    /// What it had measured before it did not end `ok`: evidence, never results.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partial: Vec<Partial>,
}

/// Values of a task that did not end `ok`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Partial {
    /// The quantity with its labels.
    pub metric: String,
    /// The unit.
    pub unit: Unit,
    /// How many values.
    pub n: usize,
    /// The last of them.
    pub last: f64,
}

/// A check of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckCard {
    /// Which endpoint.
    pub endpoint: String,
    /// Which check.
    pub id: String,
    /// How it came out.
    pub outcome: CheckOutcome,
    /// What was seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What was promised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promised: Option<String>,
    /// Why it came out so.
    pub reason: String,
    /// What to do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// An answer that people gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// The answer.
    pub value: DeclaredValue,
    /// Who saw it.
    pub by: String,
    /// When.
    pub seen_on: String,
    /// When it stops counting.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
    /// Where it can be looked up.
    pub evidence: String,
    /// Whether it had expired when the run began: then it does not count.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub expired: bool,
}

/// What compute costs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OfferCard {
    /// Its key in the plan.
    pub id: String,
    /// The price as quoted.
    pub rate: String,
    /// What use is rounded up to, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granularity: Option<f64>,
    /// What is billed at least for each start, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minimum: Option<f64>,
    /// The block of time that must be bought whole, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<f64>,
    /// The share of instances interrupted within an hour.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interruptions: Option<f64>,
    /// The day on which the price was seen.
    pub seen_on: String,
    /// Where it was seen.
    pub source: String,
    /// Whether the platform's first endpoint is had at it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_use: bool,
}

/// Points for a criterion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CriterionCard {
    /// Its key.
    pub id: String,
    /// Its title.
    pub title: String,
    /// Its weight in use.
    pub weight: f64,
    /// Points, a range where evidence is missing.
    pub points: Range,
    /// Points over the spread of repeats; left out where it is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Range>,
    /// The value looked at, where it is one; null: not measured.
    pub value: Option<f64>,
    /// Its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// How the points come about, with the numbers filled in.
    pub why: String,
    /// The tasks, questions or offers that it rests on.
    pub evidence: Vec<String>,
    /// Its parts, where it has several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<PartCard>,
    /// The share of its weight that rests on evidence.
    pub coverage: f64,
}

/// Points for a part of a criterion.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PartCard {
    /// What it looks at.
    pub looks_at: String,
    /// The most points it can give.
    pub of: f64,
    /// Points, a range where evidence is missing.
    pub points: Range,
    /// The value looked at; null: not measured.
    pub value: Option<f64>,
    /// Its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<Unit>,
    /// How the points come about.
    pub why: String,
    /// What it rests on.
    pub evidence: Vec<String>,
}

/// A gate that fired.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct GateCard {
    /// The criterion that it belongs to.
    pub criterion: String,
    /// What it looks at.
    pub metric: String,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: Unit,
    /// The bound that it does not hold.
    pub bound: String,
    /// In a sentence.
    pub reason: String,
}

/// All points together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Score {
    /// The least that it can be.
    pub low: f64,
    /// The most that it can be.
    pub high: f64,
    /// Out of how many.
    pub of: f64,
    /// The share of the weight that rests on evidence.
    pub coverage: f64,
    /// The score over the spread of repeats; left out where it is the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<Range>,
}

impl Score {
    /// Everything that evidence and noise leave open.
    pub fn open(&self) -> Range {
        let points = Range { low: self.low, high: self.high };
        self.spread.map_or(points, |s| s.hull(points))
    }
}

/// What to do with a candidate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Verdict {
    /// In a word.
    pub kind: VerdictKind,
    /// Why, in sentences.
    pub reasons: Vec<String>,
}

/// The four verdicts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// It does not hold a gate or a requirement.
    Rejected,
    /// Too much was not measured.
    Inconclusive,
    /// It qualifies and comes first, alone or with others.
    Recommended,
    /// It qualifies.
    Acceptable,
}

/// A candidate's place.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RankRow {
    /// Which candidate.
    pub platform: String,
    /// Its best and its worst possible place; null: rejected, or a rehearsal.
    pub places: Option<Places>,
    /// Its score.
    pub score: Range,
}

/// From which to which place a candidate can come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Places {
    /// The best.
    pub best: usize,
    /// The worst.
    pub worst: usize,
}

/// What a reader should know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FindingCard {
    /// How loud.
    pub level: Level,
    /// What it is about: a platform, a task, or left out for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// In words.
    pub text: String,
}

/// Why a text is no scorecard.
#[derive(Debug, thiserror::Error)]
pub enum ScorecardError {
    /// It is not JSON of the right shape.
    #[error("read the scorecard")]
    Shape(#[source] serde_json::Error),
    /// It is of a later version.
    #[error("read a scorecard of schema {0}: this version knows up to {SCHEMA}")]
    NewerSchema(u64),
}

impl Scorecard {
    /// Reads `scorecard.json`.
    ///
    /// # Errors
    /// When the text is no scorecard, or one of a later version.
    pub fn from_json(text: &str) -> Result<Self, ScorecardError> {
        #[derive(Deserialize)]
        struct Peek {
            schema: u64,
        }
        let peek: Peek = serde_json::from_str(text).map_err(ScorecardError::Shape)?;
        if peek.schema > u64::from(SCHEMA) {
            return Err(ScorecardError::NewerSchema(peek.schema));
        }
        serde_json::from_str(text).map_err(ScorecardError::Shape)
    }

    /// Writes `scorecard.json`: indented, one trailing newline, the same bytes for the same scorecard.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        text
    }
}

/// The JSON Schema of `scorecard.json`.
pub fn scorecard_schema() -> serde_json::Value {
    let mut schema = schemars::schema_for!(Scorecard);
    schema.insert("title".to_owned(), "planrun scorecard".into());
    schema.to_value()
}
