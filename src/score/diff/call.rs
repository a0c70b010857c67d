//! One metric then and now: better, worse, or not to be told.
//!
//! The unit of comparison is the run, one figure each, never the step. The statistics are `measure::compare`'s.
//!
//! Invariant: swapping the two sides swaps better and worse and changes nothing else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    measure::{
        Better, Finite,
        compare::{self, Change},
        summary,
    },
    score::{figure, scorecard::Range, scorecard::round6},
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
    /// Beyond the declared band, and not by a test.
    Likely,
    /// The runs are too few and spread too much to tell.
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
    /// The figure of some runs with so many samples; `None` without a run.
    pub fn of(runs: &[f64], n: usize) -> Option<Self> {
        let sorted = summary::sorted(runs);
        Some(Self {
            runs: sorted.len(),
            n,
            median: summary::median(&sorted)?,
            low: *sorted.first()?,
            high: *sorted.last()?,
        })
    }
}

/// A metric then and now with what the statistics say.
#[derive(Debug, Clone, PartialEq)]
pub struct Pair {
    /// Before.
    pub old: Figure,
    /// Now.
    pub new: Figure,
    /// What the statistics say; `None` where there is nothing to test, as for a score.
    pub change: Option<Change>,
}

impl Pair {
    /// Compares the runs of two scorecards; `None` if a side has none.
    pub fn of(old: &[f64], new: &[f64], samples: (usize, usize)) -> Option<Self> {
        let (a, b) = (Figure::of(old, samples.0)?, Figure::of(new, samples.1)?);
        Some(Self { old: a, new: b, change: compare::compare(old, new) })
    }

    /// The p of the test, before correction.
    pub(crate) fn p(&self) -> Option<f64> {
        self.change.as_ref()?.p.map(Finite::get)
    }

    /// The 95 % interval of the relative change.
    pub(crate) fn interval(&self) -> Option<Range> {
        let interval = self.change.as_ref()?.interval()?;
        Some(Range { low: round6(interval.low.get() - 1.0), high: round6(interval.high.get() - 1.0) })
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

/// Decides on one metric.
///
/// `corrected` is the p of its test after correction for all metrics that are tested together; `None` for a metric
/// that is not among them, or whose runs are too few.
///
/// # Formula
/// By test: p under 0.05 and a change beyond both 2 % and what so many runs can show. Else, where the larger median
/// is more than `1 + band` times the smaller: likely if no run of one side lies among those of the other, not testable
/// if they overlap and are fewer than four on a side. All the rest is within noise.
pub fn decide(pair: &Pair, better: Better, band: f64, corrected: Option<f64>) -> Decided {
    let (old, new) = (&pair.old, &pair.new);
    let factor = times(old.median, new.median);
    let apart = old.high < new.low || new.high < old.low;
    let up = new.median > old.median;
    let direction = match better {
        Better::Higher => Some(if up { Direction::Better } else { Direction::Worse }),
        Better::Lower => Some(if up { Direction::Worse } else { Direction::Better }),
        Better::Neither => None,
    };
    let few = old.runs < compare::MIN_RUNS || new.runs < compare::MIN_RUNS;
    let percent = format!("{} %", figure::digits(band * 100.0, 3));
    let p =
        corrected.map_or_else(String::new, |p| format!(", p = {} after correction", figure::digits(p, 2)));
    let runs = match &pair.change {
        Some(_) => format!("{} and {} runs{p}", old.runs, new.runs),
        None => "ranges".to_owned(),
    };
    let stands = corrected.and_then(|p| pair.change.as_ref()?.stands(p));
    let (call, why) = match (stands, direction) {
        (Some(true), Some(Direction::Better)) => (Call::Better, runs),
        (Some(true), Some(Direction::Worse)) => (Call::Worse, runs),
        _ if factor <= 1.0 + band => (Call::WithinNoise, format!("{runs}, within {percent}")),
        _ if apart && few => (Call::Likely, format!("{runs}, too few to test; beyond {percent}")),
        _ if apart => (Call::Likely, format!("{runs}, beyond {percent}, none of one among the other")),
        _ if few => (Call::NotTestable, format!("{runs} that overlap, too few to test")),
        _ => (Call::WithinNoise, format!("{runs} that overlap")),
    };
    let directed = matches!(call, Call::Better | Call::Worse | Call::Likely);
    Decided { call, direction: direction.filter(|_| directed), why }
}
