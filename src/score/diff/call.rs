//! One metric then and now: better, worse, or not to be told.
//!
//! The unit of comparison is the run, one figure each, never the step.
//!
//! Invariant: swapping the two figures swaps better and worse and changes nothing else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    measure::Better,
    score::{figure, scorecard::MetricCard, summary},
};

/// What to make of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Call {
    /// Better, by a test.
    Better,
    /// Worse, by a test.
    Worse,
    /// Nothing beyond noise.
    WithinNoise,
    /// Beyond the declared band, on too few runs for a test.
    Likely,
    /// The runs spread too much to tell.
    NotTestable,
    /// Only in the new scorecard.
    Appeared,
    /// Only in the old scorecard.
    Gone,
    /// Not the same thing: the reason says what changed.
    Incomparable,
}

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// For the better.
    Better,
    /// For the worse.
    Worse,
}

/// A metric in one scorecard.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Figure {
    /// How many runs.
    pub runs: usize,
    /// How many samples.
    pub n: usize,
    /// The median of the runs.
    pub median: f64,
    /// The least of the runs.
    pub low: f64,
    /// The most of the runs.
    pub high: f64,
}

impl Figure {
    /// The figure of a measured metric.
    pub(crate) fn of(m: &MetricCard) -> Self {
        let runs = summary::sorted(m.per_run());
        Self {
            runs: runs.len(),
            n: m.n,
            median: summary::median(&runs).unwrap_or(m.median),
            low: runs.first().copied().unwrap_or(m.min),
            high: runs.last().copied().unwrap_or(m.max),
        }
    }
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decided {
    /// What to make of it.
    pub call: Call,
    /// Which way, where the call has one.
    pub direction: Option<Direction>,
    /// Why so.
    pub why: String,
}

/// The relative change; `None` from 0.
pub(crate) fn change(old: f64, new: f64) -> Option<f64> {
    Some((new - old) / old.abs()).filter(|x| x.is_finite())
}

/// From how many runs on each side disjoint runs are a test: the exact permutation test then gives p = 0.029.
const TESTABLE: usize = 4;
/// The least relative change worth a call, whatever the test says.
const LEAST: f64 = 0.02;

/// How many times as large the larger of two values is; infinite across zero. The same either way round.
fn times(a: f64, b: f64) -> f64 {
    if a.total_cmp(&b).is_eq() {
        return 1.0;
    }
    if a * b <= 0.0 {
        return f64::INFINITY;
    }
    let (a, b) = (a.abs(), b.abs());
    a.max(b) / a.min(b)
}

/// Decides on one metric by its runs and the band.
///
/// # Formula
/// The change is the larger median over the smaller, less 1. With four runs and more on each side: better or worse
/// where no run of one side lies among those of the other (exact permutation p ≤ 0.029) and the change exceeds 2 %.
/// With fewer: likely where the change exceeds the band and the runs do not overlap.
pub fn decide(old: &Figure, new: &Figure, better: Better, band: f64) -> Decided {
    let factor = times(old.median, new.median);
    let apart = old.high < new.low || new.high < old.low;
    let up = new.median > old.median;
    let direction = match better {
        Better::Higher => Some(if up { Direction::Better } else { Direction::Worse }),
        Better::Lower => Some(if up { Direction::Worse } else { Direction::Better }),
        Better::Neither => None,
    };
    let runs = format!("{} and {} runs", old.runs, new.runs);
    let percent = |x: f64| format!("{} %", figure::digits(x * 100.0, 3));
    let few = old.runs < TESTABLE || new.runs < TESTABLE;
    let (call, why) = if !few && apart && factor > 1.0 + LEAST {
        let call = match direction {
            Some(Direction::Better) => Call::Better,
            Some(Direction::Worse) => Call::Worse,
            None => Call::Likely,
        };
        (call, format!("{runs}, none of one among the other"))
    } else if few && factor > 1.0 + band && apart {
        (Call::Likely, format!("{runs}, too few to test; beyond {}", percent(band)))
    } else if factor > 1.0 + band {
        (Call::NotTestable, format!("{runs} that overlap"))
    } else {
        (Call::WithinNoise, format!("{runs}, within {}", percent(band)))
    };
    let directed = matches!(call, Call::Better | Call::Worse | Call::Likely);
    Decided { call, direction: direction.filter(|_| directed), why }
}
