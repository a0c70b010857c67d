//! The rubric as data: criteria with weight, what they look at, the rule that turns it into points, and gates.
//!
//! Types and their validation only; [`super::judge`] applies them. Weights sum to 100 and rules tile their range, or
//! the rubric is refused: nothing is normalised in silence.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    findings::At,
    measure::{MetricPath, quantity::Bound},
    platform::{Name, Named},
};

/// A rubric.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rubric {
    /// The name that reports show.
    pub name: String,
    /// The criteria; their weights sum to 100.
    pub criteria: Named<At<Criterion>>,
    /// Other weights for the same criteria, each summing to 100, such as one for training.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub presets: Named<At<IndexMap<Name, f64>>>,
}

/// One criterion.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Criterion {
    /// The title that reports show.
    pub title: String,
    /// Points that it can give; a preset may change it, points scale along.
    pub weight: f64,
    /// Its parts; their `points` sum to the weight.
    pub parts: Vec<At<Part>>,
    /// The reading of its source that was chosen, printed in the report.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reading: Option<String>,
}

/// A part of a criterion: one thing looked at, by one rule. Exactly one of `metric`, `ask` and `offer`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Part {
    /// Points that it can give at the criterion's own weight.
    pub points: f64,
    /// A measured metric, `stage.quantity{labels}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric: Option<At<MetricPath>>,
    /// Which figure of the metric's values; default the median.
    #[serde(default)]
    pub fold: Fold,
    /// A question that people answer under `declared`, or several for a checklist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ask: Vec<Name>,
    /// A property of the offer: `granularity` or `minimum`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offer: Option<At<OfferProperty>>,
    /// How it gives points.
    pub rule: At<Rule>,
    /// A bound that rejects the platform whatever the points: it must hold where there is evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gate: Option<At<Bound>>,
    /// How much must have been watched for full evidence, such as three days; where less was, the points are only
    /// the most that can be left.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub needs: Option<At<Needs>>,
}

/// See [`Part::needs`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Needs {
    /// What tells how much was watched; where it was not measured, nothing is held against the platform.
    pub metric: At<MetricPath>,
    /// How much it must be.
    pub bound: At<Bound>,
}

/// Which figure of many values counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fold {
    /// The middle one.
    #[default]
    Median,
    /// The arithmetic mean.
    Mean,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// The nearest-rank 95th percentile.
    P95,
    /// The nearest-rank 99th percentile.
    P99,
    /// All of them together.
    Sum,
}

/// What a part may ask of the offer in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OfferProperty {
    /// What use is rounded up to.
    Granularity,
    /// What is billed at least.
    Minimum,
}

/// A level of a metric: a number, or text with a unit such as `70 %` or `180 s`.
pub use crate::measure::quantity::Level;

/// How a value turns into points.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Full points at `full_at` or better; for each complete `per` that it is worse, `deduct` points less, never
    /// below 0.
    Step(Step),
    /// Points rise evenly from 0 at `zero_at` to all at `full_at`.
    Linear(Linear),
    /// Points by range. The ranges tile the whole line: the first has no `from`, the last no `to`, each begins where
    /// the one before ends.
    Bands(Vec<At<Band>>),
    /// The value counts events: full points for none, `deduct` less for each, never below 0.
    PerEvent(PerEvent),
    /// Each question of `ask` that was answered yes gives its even share.
    Checklist(Checklist),
}

/// See [`Rule::Step`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Where full points begin.
    pub full_at: Level,
    /// The distance of one step.
    pub per: Level,
    /// Points lost for each complete step.
    pub deduct: f64,
}

/// See [`Rule::Linear`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Linear {
    /// Where there are no points.
    pub zero_at: Level,
    /// Where there are all.
    pub full_at: Level,
}

/// A range `from <= value < to` and what it gives; between two bands with `points` and `points_to` it slopes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Band {
    /// Where it begins, included; left out: at the bottom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Level>,
    /// Where it ends, not included; left out: at the top.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Level>,
    /// Points at its beginning.
    pub points: f64,
    /// Points at its end, for a slope; left out: the same all along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub points_to: Option<f64>,
}

/// See [`Rule::PerEvent`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PerEvent {
    /// Points lost for each event.
    pub deduct: f64,
}

/// See [`Rule::Checklist`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Checklist {}
