//! Where a run of steps has settled, and what a step takes there.
//!
//! Not here: soak windows and interruptions (`window`), restarts (`progress`), what a workload calls a step.
//!
//! Invariant: no step time is deleted or changed, outliers are only marked; a mean exists only inside
//! `Verdict::Steady`, so a run without a steady state has no number that could be taken for one.

mod changes;
mod outliers;

use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::bootstrap::{BLOCK_LENGTHS, RESAMPLES, SEED, autocorrelation_length, mean_interval};
use crate::measure::summary::{Finite, Interval, sum};

/// Fewer steps than this, after the first ones are left out, are not judged.
pub const MIN_STEPS: usize = 10;
/// The longest step time that is believed: 31 years.
const MAX_SECONDS: f64 = 1e9;
/// A steady state under this many seconds is stamped `short`: it says little about hours.
pub const LONG_ENOUGH: f64 = 1800.0;
/// How far a segment's mean may lie from the last segment's, as a ratio, where the plan does not say.
pub const BAND: f64 = 0.02;

/// How the steady state is found; the defaults are the documented rule.
#[derive(Clone, Debug)]
pub struct Rule {
    /// How many leading steps are left out: step 0, and those before the first completed optimiser step.
    pub first: usize,
    /// The width of the rolling window for outliers, in steps.
    pub window: usize,
    /// How far a segment's mean may lie from the last segment's, as a ratio.
    pub band: f64,
    /// The share of the steps, counted from the end, that must be steady.
    pub tail: f64,
    /// The seconds of steady state below which the result is stamped `short`.
    pub least_seconds: f64,
    /// How many resamples the interval of the mean takes.
    pub resamples: usize,
    /// The seed of the resampling.
    pub seed: u64,
}

impl Default for Rule {
    fn default() -> Self {
        Self {
            first: 1,
            window: 200,
            band: BAND,
            tail: 0.25,
            least_seconds: LONG_ENOUGH,
            resamples: RESAMPLES,
            seed: SEED,
        }
    }
}

/// A step time that cannot be one.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("step {index} took {seconds} s: a step time is above 0 and at most 1e9 s")]
pub struct BadStep {
    /// Which step, counted from 0.
    pub index: usize,
    /// What was given.
    pub seconds: f64,
}

/// What was found about one run of steps; all indices count the given steps from 0.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Steadiness {
    /// How many steps were given.
    pub steps: usize,
    /// How many leading ones were left out by rule.
    pub left_out: usize,
    /// Steps far from the rolling median, slow or fast, ascending.
    pub outliers: Vec<usize>,
    /// The slow ones among them.
    pub stalls: Vec<usize>,
    /// The rhythm of the stalls, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
    /// The stretches of like steps, in order; together they cover every step that was not left out.
    pub segments: Vec<Segment>,
    /// The answer.
    pub verdict: Verdict,
}

/// Stalls that come back at regular distances.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Period {
    /// The distance from one stall to the next.
    ///
    /// # Units
    /// Steps.
    pub steps: Finite,
    /// The autocorrelation there: 1 is a clockwork, what chance alone gives is 0.
    pub strength: Finite,
}

/// A stretch of like steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Segment {
    /// Which steps.
    pub steps: Range<usize>,
    /// The mean time of its unmarked steps.
    ///
    /// # Units
    /// Seconds per step.
    pub mean: Finite,
    /// Whether its mean lies within the band around the last segment's.
    pub like_last: bool,
}

/// Whether there is a steady state.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There is one, and this is it.
    Steady(SteadyState),
    /// The last quarter of the steps holds more than one regime: no number can stand for the run.
    NoSteadyState,
    /// Too few steps to tell.
    TooFew {
        /// How many steps there must be beside those left out.
        need: usize,
    },
}

/// How the run came to its steady state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Shape {
    /// All segments are alike.
    Flat,
    /// All that came before and was different was slower.
    WarmUp,
    /// The run was faster at some time before.
    Slowdown,
}

/// The steady part of a run; outliers inside it count.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SteadyState {
    /// How it was reached.
    pub shape: Shape,
    /// Which steps, in ascending ranges that do not touch.
    pub ranges: Vec<Range<usize>>,
    /// How many steps that is.
    pub steps: usize,
    /// How long they took together.
    ///
    /// # Units
    /// Seconds.
    pub seconds: Finite,
    /// The mean step time, stalls included: `seconds / steps`.
    ///
    /// # Units
    /// Seconds per step.
    pub mean_step: Finite,
    /// The 95 % interval of that mean; absent where the steps are correlated over too much of the run.
    ///
    /// # Formula
    /// Moving-block bootstrap, block = 10 autocorrelation lengths rounded up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Interval>,
    /// How many steps carry the news of one independent step; absent where none could be told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autocorrelation: Option<Finite>,
    /// Whether the steady part is shorter than the rule's `least_seconds`.
    pub short: bool,
}

impl Steadiness {
    /// The steady state, if there is one.
    pub fn state(&self) -> Option<&SteadyState> {
        if let Verdict::Steady(state) = &self.verdict { Some(state) } else { None }
    }

    /// The class in one word: `flat`, `warm_up`, `slowdown`, `no_steady_state` or `too_few`.
    pub const fn class(&self) -> &'static str {
        match &self.verdict {
            Verdict::Steady(SteadyState { shape: Shape::Flat, .. }) => "flat",
            Verdict::Steady(SteadyState { shape: Shape::WarmUp, .. }) => "warm_up",
            Verdict::Steady(SteadyState { shape: Shape::Slowdown, .. }) => "slowdown",
            Verdict::NoSteadyState => "no_steady_state",
            Verdict::TooFew { .. } => "too_few",
        }
    }
}

impl SteadyState {
    /// The values of the steady steps, picked from one value per given step.
    pub fn pick(&self, values: &[f64]) -> Vec<f64> {
        self.ranges.iter().flat_map(|range| values.get(range.clone()).unwrap_or_default()).copied().collect()
    }
}

/// Finds the steady state of a run from the time of each of its steps, in order, step 0 first.
///
/// # Units
/// `seconds` holds seconds per step.
///
/// # Formula
/// 1. The first steps are left out. 2. Outliers are marked: beyond 3 × (P90 - P10) of the rolling median, and off
///    it by more than the band (our addition: a timer's tick on a quiet machine is no stall). 3. PELT splits the
///    unmarked steps by mean and variance of the log step time, penalty `15 ln n`, above 5000 points on block
///    medians. 4. Steady is the last segment and each earlier one whose mean lies within ± band of its mean; every
///    segment that reaches into the last quarter of the steps must be steady, or there is no steady state.
///
/// # Errors
/// `BadStep` for a time that is not above 0, not finite, or longer than 31 years.
///
/// # Source
/// Barrett et al., "Virtual machine warmup blows hot and cold", OOPSLA 2017, and its `warmup_stats` for the
/// outliers, the penalty and the classes; a relative band stands for its absolute 1 ms.
pub fn detect(seconds: &[f64], rule: &Rule) -> Result<Steadiness, BadStep> {
    if let Some((index, &seconds)) =
        seconds.iter().enumerate().find(|(_, s)| !(**s > 0.0 && **s <= MAX_SECONDS))
    {
        return Err(BadStep { index, seconds });
    }
    let left_out = rule.first.min(seconds.len());
    let mut found = Steadiness {
        steps: seconds.len(),
        left_out,
        outliers: Vec::new(),
        stalls: Vec::new(),
        period: None,
        segments: Vec::new(),
        verdict: Verdict::TooFew { need: MIN_STEPS },
    };
    if seconds.len() - left_out < MIN_STEPS {
        return Ok(found);
    }
    for (i, slow) in outliers::mark(&seconds[left_out..], rule.window, rule.band) {
        found.outliers.push(i + left_out);
        if slow {
            found.stalls.push(i + left_out);
        }
    }
    found.period = outliers::stall_period(&found.stalls, seconds.len());
    found.segments = changes::segments(seconds, left_out, &found.outliers, rule.band).unwrap_or_default();
    found.verdict = measure(seconds, &found.segments, rule).map_or(Verdict::NoSteadyState, Verdict::Steady);
    Ok(found)
}

/// Judges the segments and measures the steady ones; `None` if there is no steady state.
fn measure(seconds: &[f64], segments: &[Segment], rule: &Rule) -> Option<SteadyState> {
    let n = seconds.len();
    let tail = n.saturating_sub((n as f64 * rule.tail.clamp(0.0, 1.0)).ceil() as usize);
    let steady = segments.last()?.mean;
    if segments.iter().any(|s| s.steps.end > tail && !s.like_last) {
        return None;
    }
    let mut ranges: Vec<Range<usize>> = Vec::new();
    for Segment { steps, .. } in segments.iter().filter(|s| s.like_last) {
        match ranges.last_mut() {
            Some(before) if before.end == steps.start => before.end = steps.end,
            _ => ranges.push(steps.clone()),
        }
    }
    let values: Vec<f64> = ranges.iter().flat_map(|r| &seconds[r.clone()]).copied().collect();
    let total = sum(values.iter().copied());
    let mut others = segments.iter().filter(|s| !s.like_last).peekable();
    let shape = if others.peek().is_none() {
        Shape::Flat
    } else if others.all(|s| s.mean > steady) {
        Shape::WarmUp
    } else {
        Shape::Slowdown
    };
    let length = autocorrelation_length(&values);
    let interval = length.and_then(|length| {
        let block = (length * BLOCK_LENGTHS as f64).ceil() as usize;
        mean_interval(&values, block, rule.resamples, rule.seed)
    });
    Some(SteadyState {
        shape,
        ranges,
        steps: values.len(),
        seconds: Finite::new(total).ok()?,
        mean_step: Finite::new(total / values.len() as f64).ok()?,
        interval,
        autocorrelation: length.and_then(|length| Finite::new(length).ok()),
        short: total < rule.least_seconds,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests state exact values")]
    use super::*;
    use crate::measure::bootstrap::SplitMix64;
    use proptest::prelude::*;

    /// `n` step times around `seconds`, spread evenly over ± `spread` as a share.
    fn steps(n: usize, seconds: f64, spread: f64, seed: u64) -> Vec<f64> {
        let mut random = SplitMix64::new(seed);
        let mut unit = || random.next_u64() as f64 / 2f64.powi(63) - 1.0;
        (0..n).map(|_| seconds * (1.0 + spread * unit())).collect()
    }

    fn spans(state: &SteadyState) -> Vec<(usize, usize)> {
        state.ranges.iter().map(|r| (r.start, r.end)).collect()
    }

    fn look(parts: &[Vec<f64>]) -> Steadiness {
        detect(&parts.concat(), &Rule::default()).unwrap()
    }

    #[test]
    fn flat_runs() {
        let found = look(&[vec![30.0], steps(999, 2.0, 0.03, 1)]);
        let state = found.state().unwrap();
        assert_eq!((found.class(), found.left_out, spans(state)), ("flat", 1, vec![(1, 1000)]));
        let (mean, interval) = (state.mean_step.get(), state.interval.unwrap());
        assert!((mean - 2.0).abs() < 0.004 && interval.holds(mean), "{state:?}");
        let width = interval.high.get() - interval.low.get();
        assert!((0.0037..0.0049).contains(&width), "2 x 1.96 x 0.06 / sqrt(3 x 999) = 0.0043: {width}");
        assert_eq!((found.outliers.len(), state.short), (0, false));
        // A timer that ticks in whole milliseconds makes long runs of equal values and lonely others.
        let ticks: Vec<f64> = (0..2000).map(|i| if i % 97 == 0 { 0.101 } else { 0.1 }).collect();
        let found = look(&[ticks]);
        assert_eq!((found.class(), found.outliers.len(), found.segments.len()), ("flat", 0, 1));
        assert!(found.state().unwrap().short);
    }

    #[test]
    fn warm_up_of_any_length_is_left_out() {
        let ramp = (0..600).map(|i| 2.0 + 2.0 * (1.0 - f64::from(i) / 600.0)).collect();
        let found = look(&[ramp, steps(1400, 2.0, 0.01, 2)]);
        let state = found.state().unwrap();
        assert_eq!((found.class(), state.ranges.len()), ("warm_up", 1));
        assert!((570..605).contains(&state.ranges[0].start), "{:?}", state.ranges);
        assert!((state.mean_step.get() - 2.0).abs() < 0.005);
    }

    #[test]
    fn slowdown_and_a_return_to_the_same_pace() {
        let found = look(&[steps(500, 1.0, 0.01, 3), steps(500, 1.3, 0.01, 4)]);
        assert_eq!((found.class(), spans(found.state().unwrap())), ("slowdown", vec![(500, 1000)]));
        assert!(found.state().unwrap().short, "650 s");
        let found = look(&[steps(400, 1.0, 0.01, 5), steps(300, 1.5, 0.01, 6), steps(700, 1.01, 0.01, 7)]);
        assert_eq!((found.class(), spans(found.state().unwrap())), ("warm_up", vec![(1, 400), (700, 1400)]));
        assert_eq!(found.state().unwrap().pick(&vec![1.0; 1400]).len(), 1099);
        let found = look(&[steps(400, 1.5, 0.01, 5), steps(400, 0.8, 0.01, 6), steps(400, 1.0, 0.01, 7)]);
        assert_eq!(found.class(), "slowdown", "slower and faster before");
    }

    #[test]
    fn no_steady_state_has_no_number() {
        let late = look(&[steps(800, 1.0, 0.01, 8), steps(200, 1.1, 0.01, 9)]);
        let drift = look(&[(0..2000).map(|i| 1.0 + f64::from(i) / 4000.0).collect()]);
        for found in [late, drift] {
            assert_eq!((found.class(), found.state()), ("no_steady_state", None));
            assert!(!serde_json::to_string(&found.verdict).unwrap().contains(|c: char| c.is_ascii_digit()));
        }
        // The same change one step before the last quarter is a slowdown.
        let found = look(&[steps(750, 1.0, 0.01, 8), steps(250, 1.1, 0.01, 9)]);
        assert_eq!(found.class(), "slowdown");
    }

    #[test]
    fn stalls_are_marked_counted_and_timed() {
        let mut run = steps(3000, 1.0, 0.02, 10);
        (100..3000).step_by(100).for_each(|i| run[i] = 6.0);
        run[1234] = 0.2;
        let found = detect(&run, &Rule::default()).unwrap();
        assert_eq!((found.class(), found.stalls.len(), found.outliers.len()), ("flat", 29, 30));
        let period = found.period.unwrap();
        assert!((period.steps.get() - 100.0).abs() < 0.01 && period.strength.get() > 0.9, "{period:?}");
        let mean = found.state().unwrap().mean_step.get();
        assert!((mean - 1.048).abs() < 0.003, "stalls belong to the mean: {mean}");
    }

    #[test]
    fn long_runs_are_split_on_block_medians() {
        let found = look(&[steps(43_217, 0.5, 0.05, 11), steps(56_783, 0.4, 0.05, 12)]);
        let state = found.state().unwrap();
        assert_eq!((found.class(), state.ranges.len()), ("warm_up", 1));
        assert!(state.ranges[0].start.abs_diff(43_217) <= 50, "{:?}", state.ranges);
        let width = state.interval.unwrap();
        assert!(width.holds(0.4) && width.high.get() - width.low.get() < 0.001, "{width:?}");
        assert_eq!(found, look(&[steps(43_217, 0.5, 0.05, 11), steps(56_783, 0.4, 0.05, 12)]));
    }

    #[test]
    fn too_few_and_impossible_steps() {
        for n in 0..=10 {
            let found = look(&[vec![1.0; n]]);
            assert_eq!((found.class(), found.state()), ("too_few", None));
        }
        assert_eq!(look(&[vec![1.0; 11]]).class(), "flat");
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(detect(&[1.0, bad], &Rule::default()).unwrap_err().index, 1);
        }
        let quick = Rule { least_seconds: 5.0, first: 3, ..Rule::default() };
        let state = detect(&[1.0; 20], &quick).unwrap();
        assert_eq!((state.state().unwrap().steps, state.state().unwrap().short), (17, false));
    }

    proptest! {
        #[test]
        fn a_constant_run_is_flat(n in 11usize..400, seconds in 1e-6f64..1e4) {
            let found = look(&[vec![seconds; n]]);
            prop_assert_eq!(found.class(), "flat");
            let state = found.state().unwrap();
            prop_assert_eq!(state.steps, n - 1);
            prop_assert!((state.mean_step.get() / seconds - 1.0).abs() < 1e-12);
        }

        #[test]
        fn segments_tile_the_run(levels in prop::collection::vec((1usize..60, 0.5f64..2.0), 1..8), seed: u64) {
            let run: Vec<f64> = levels.iter().flat_map(|(n, s)| steps(*n, *s, 0.02, seed)).collect();
            let found = detect(&run, &Rule::default()).unwrap();
            let mut at = found.left_out;
            for segment in &found.segments {
                prop_assert_eq!(segment.steps.start, at);
                at = segment.steps.end;
            }
            prop_assert!(found.segments.is_empty() || at == run.len());
            if let Some(state) = found.state() {
                prop_assert_eq!(state.ranges.last().unwrap().end, run.len());
                prop_assert_eq!(state.steps, state.pick(&run).len());
            }
        }
    }
}
