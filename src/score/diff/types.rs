//! What a comparison holds: plain data, as `diff --format json` prints it and reports show it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::call::{Call, Direction, Figure};
use crate::{
    measure::{Better, Money, Unit},
    record::{CheckOutcome, PlanRef},
    score::scorecard::{GateCard, Range, Score, VerdictKind, round6},
};

/// What changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// The version of this format.
    pub schema: u32,
    /// The earlier one.
    pub old: Side,
    /// The later one.
    pub new: Side,
    /// The relative change that counts, where runs are too few to test.
    pub band: f64,
    /// What a manager must know, in a sentence or two.
    pub headline: String,
    /// The candidates: those of the new scorecard in its order, then those that are gone.
    pub platforms: Vec<PlatformDiff>,
    /// What makes the comparison uneven.
    pub cautions: Vec<String>,
}

/// One of the two scorecards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// Its plan.
    pub plan: PlanRef,
    /// Its run.
    pub run: String,
    /// When that began.
    pub started: String,
    /// Its rubric.
    pub rubric: String,
    /// Its weight preset.
    pub preset: Option<String>,
}

/// A candidate then and now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlatformDiff {
    /// Its key.
    pub id: String,
    /// Its name.
    pub title: String,
    /// In which of the two it stands.
    pub presence: Presence,
    /// Its verdict before.
    pub old_verdict: Option<VerdictKind>,
    /// Its verdict now.
    pub new_verdict: Option<VerdictKind>,
    /// How its score moved.
    pub score: Option<ScoreDelta>,
    /// Every metric, headline metrics first.
    pub metrics: Vec<MetricDelta>,
    /// What a finished job costs, then and now.
    pub costs: Vec<CostDelta>,
    /// Checks that came out otherwise.
    pub checks: Vec<CheckDelta>,
    /// Gates that fire now.
    pub gates: Vec<GateCard>,
    /// What changed about its machines.
    pub cautions: Vec<String>,
}

/// Where a candidate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// In both.
    Both,
    /// Only in the new one.
    Appeared,
    /// Only in the old one.
    Gone,
}

/// A metric then and now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricDelta {
    /// Its identity.
    pub id: String,
    /// Its unit.
    pub unit: Unit,
    /// Which way it gets better.
    pub better: Better,
    /// Whether it is a headline metric.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub headline: bool,
    /// Before.
    pub old: Option<Figure>,
    /// Now.
    pub new: Option<Figure>,
    /// The relative change of the median: 0.1 is 10 % more; null where there is none to give.
    pub change: Option<f64>,
    /// The 95 % interval of the relative change, where the runs are enough for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Range>,
    /// What to make of it.
    pub call: Call,
    /// Better or worse, where the call has a direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Why so.
    pub why: String,
}

/// The least and the most of a score, moved by so much.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Shift {
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Shift {
    pub(super) fn between(old: Score, new: Score) -> Self {
        Self { low: round6(new.low - old.low), high: round6(new.high - old.high) }
    }
}

/// How a score moved and what moved it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScoreDelta {
    /// Before.
    pub old: Range,
    /// Now.
    pub new: Range,
    /// All together.
    pub change: Shift,
    /// By what was measured, under the old rubric with the old offer and answers.
    pub by_measurement: Shift,
    /// By offer and answers, under the old rubric.
    pub by_price: Shift,
    /// By the rubric and its weights.
    pub by_rule: Shift,
}

/// A cost then and now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CostDelta {
    /// The job.
    pub job: String,
    /// The offer.
    pub offer: String,
    /// Before; null: there was none.
    pub old: Option<Money>,
    /// Now; null: there is none.
    pub new: Option<Money>,
    /// One of the two is a lower bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lower_bound: bool,
    /// The one before is a lower bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub old_lower_bound: bool,
    /// The one now is a lower bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub new_lower_bound: bool,
    /// The price that was quoted, where it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
}

/// A check that came out otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckDelta {
    /// Endpoint and check.
    pub id: String,
    /// Before.
    pub old: Option<CheckOutcome>,
    /// Now.
    pub new: Option<CheckOutcome>,
    /// Why so now.
    pub reason: String,
}

impl Diff {
    /// Headline metrics that are worse by this call, with their platforms. Only [`Call::Worse`] rests on a test; what is
    /// likely worse is no evidence yet.
    pub fn worse(&self, call: Call) -> impl Iterator<Item = (&str, &MetricDelta)> {
        let of =
            move |m: &&MetricDelta| m.headline && m.call == call && m.direction == Some(Direction::Worse);
        self.platforms.iter().flat_map(move |p| p.metrics.iter().filter(of).map(|m| (p.id.as_str(), m)))
    }

    /// Every gate that fires in the new scorecard, with its platform.
    pub fn gate_failures(&self) -> impl Iterator<Item = (&str, &GateCard)> {
        self.platforms.iter().flat_map(|p| p.gates.iter().map(|g| (p.id.as_str(), g)))
    }
}
