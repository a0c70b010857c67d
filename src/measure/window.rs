//! A soak in windows: fluctuation, interruptions, clock jumps, first part against last, stability coefficient.
//!
//! Not here: restarts and redone steps (`progress`), the steady state (`steady`), what instability costs.
//!
//! Invariant: a second is lost at most once, `useful_s + interrupted_s + excess_s = total_s`, and the stability
//! coefficient lies within 0 to 1, 1 being best. A cost is **divided** by it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::summary::{Finite, median, sorted, sum};

/// How a soak is judged; the defaults are the documented ones.
#[derive(Clone, Debug)]
pub struct SoakRule {
    /// The length of a window. It should hold several steps.
    ///
    /// # Units
    /// Seconds.
    pub window_s: f64,
    /// A window fluctuates if its median is off the run's by more than this share of it.
    pub band: f64,
    /// An interruption is a wait for the next step that exceeds the run's median pace by more than this.
    ///
    /// # Units
    /// Seconds.
    pub gap_s: f64,
    /// The length of the first and of the last part that are compared.
    ///
    /// # Units
    /// Seconds.
    pub part_s: f64,
    /// When watching ended, if that was after the last step: a run that hangs at its end is interrupted too.
    ///
    /// # Units
    /// Seconds on the clock of the steps.
    pub until_s: Option<f64>,
}

impl Default for SoakRule {
    fn default() -> Self {
        Self { window_s: 60.0, band: 0.05, gap_s: 10.0, part_s: 300.0, until_s: None }
    }
}

/// One step of a soak.
///
/// # Units
/// Seconds, `end_s` on one monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timed {
    /// When it ended.
    pub end_s: f64,
    /// How long it took. Only the first step's counts, for the start of the soak.
    pub seconds: f64,
}

/// A soak that cannot be judged.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum BadSoak {
    /// A step that took no time, or ends before the one before it, or whose times are not finite.
    #[error("step {0} ends before the one before it, or took no time")]
    Step(usize),
    /// Most steps end at the same instant as the one before: their clock is too coarse for a pace.
    #[error("most steps end at the same instant: their clock is too coarse")]
    Clock,
    /// A rule with a length that is not above 0.
    #[error("the window, band, gap and part of a soak must be above 0")]
    Rule,
}

/// One window in which steps ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Window {
    /// When it starts, counted from the start of the soak.
    ///
    /// # Units
    /// Seconds.
    pub start_s: Finite,
    /// How many steps ended in it, those after an interruption not counted.
    pub steps: usize,
    /// The median of their paces.
    ///
    /// # Units
    /// Seconds per step.
    pub median_s: Finite,
    /// That median as a ratio to the run's.
    pub ratio: Finite,
}

/// A time without progress.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interruption {
    /// When the last step before it ended, counted from the start of the soak.
    ///
    /// # Units
    /// Seconds.
    pub start_s: Finite,
    /// How much was lost: the wait for the end of the next step, less the median pace.
    ///
    /// # Units
    /// Seconds.
    pub lost_s: Finite,
}

/// What a soak showed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Soak {
    /// From the start of the first step to the end of the last, or to the end of watching.
    ///
    /// # Units
    /// Seconds.
    pub total_s: Finite,
    /// The median pace, M.
    ///
    /// # Units
    /// Seconds per step.
    pub median_s: Finite,
    /// The windows in which steps ended, in order.
    pub windows: Vec<Window>,
    /// How many of them fluctuate, slow or fast.
    pub fluctuating: usize,
    /// Fluctuations: neighbouring windows off to the same side are one.
    pub fluctuations: usize,
    /// The times without progress, in order.
    pub interruptions: Vec<Interruption>,
    /// Lost to interruptions.
    ///
    /// # Units
    /// Seconds.
    pub interrupted_s: Finite,
    /// Lost in slow windows.
    ///
    /// # Units
    /// Seconds.
    pub excess_s: Finite,
    /// What is left.
    ///
    /// # Units
    /// Seconds.
    pub useful_s: Finite,
    /// The stability coefficient S, a goodput fraction: `useful_s / total_s`. Divide a cost by it.
    pub stability: Finite,
    /// The same for the time outside interruptions: `useful_s / (total_s - interrupted_s)`. Divide by this one where
    /// another term of the cost already pays for interruptions.
    pub stability_running: Option<Finite>,
    /// The speed of the last part as a ratio to that of the first, interruptions left out; absent if the soak is
    /// shorter than both.
    pub last_to_first: Option<Finite>,
}

/// Judges a soak from its steps in order; `Ok(None)` without one.
///
/// # Formula
/// A step's pace is the time from the end of the step before it to its own end (for the first step: what it took), so
/// waiting for data belongs to it and all paces together are the whole time up to the last step. M is the median
/// pace. Two kinds of seconds are lost, and no others:
///
/// 1. **Interruptions.** A pace that exceeds M by more than `gap_s`, and so too the wait from the last step to the end
///    of watching. Lost is the pace less M. It does not matter whether the time passed between the two steps or
///    inside the second one. That second step is then in no window.
/// 2. **Fluctuation.** Every other step belongs to the one window in which it ended. In a window whose median pace
///    exceeds M by more than `band`, lost is the sum of its paces less M for each, and at least 0.
///
/// Since each pace is judged once, as 1 or as 2, no second is lost twice. A fast window fluctuates and loses nothing.
/// A single slow step below `gap_s` in a window with a good median loses nothing: it is jitter.
///
/// # Errors
/// `BadSoak` for a step or a rule that makes no sense.
pub fn soak(steps: &[Timed], rule: &SoakRule) -> Result<Option<Soak>, BadSoak> {
    check(steps, rule)?;
    if steps.is_empty() { Ok(None) } else { judge(steps, rule).map(Some).ok_or(BadSoak::Clock) }
}

/// Refuses steps that go back and rules without a length.
fn check(steps: &[Timed], rule: &SoakRule) -> Result<(), BadSoak> {
    let lengths = [rule.window_s, rule.band, rule.gap_s, rule.part_s];
    if lengths.iter().any(|x| !(*x > 0.0 && x.is_finite())) || rule.until_s.is_some_and(|x| !x.is_finite()) {
        return Err(BadSoak::Rule);
    }
    let mut before = f64::NEG_INFINITY;
    for (i, step) in steps.iter().enumerate() {
        let fine = step.end_s.is_finite() && step.end_s >= before && step.seconds > 0.0;
        if !fine || !step.seconds.is_finite() {
            return Err(BadSoak::Step(i));
        }
        before = step.end_s;
    }
    Ok(())
}

/// Judges steps that were checked; `None` without a pace.
fn judge(steps: &[Timed], rule: &SoakRule) -> Option<Soak> {
    let (first, last) = (steps.first()?, steps.last()?);
    let start = first.end_s - first.seconds;
    let end = rule.until_s.map_or(last.end_s, |until| until.max(last.end_s));
    let total = end - start;
    let starts = [start].into_iter().chain(steps.iter().map(|s| s.end_s));
    let paces: Vec<(f64, f64)> = starts.zip(steps).map(|(from, step)| (from, step.end_s - from)).collect();
    let usual = median(&sorted(&paces.iter().map(|(_, pace)| *pace).collect::<Vec<_>>()))?;

    // The wait for a step that never came counts beside those that ended in a step.
    let waits = paces.iter().copied().chain([(last.end_s, end - last.end_s)]);
    let interruptions: Vec<(f64, f64)> = waits
        .map(|(from, wait)| (from - start, wait - usual))
        .filter(|(_, excess)| *excess > rule.gap_s)
        .collect();
    let running: Vec<(f64, f64)> = paces
        .into_iter()
        .filter(|(_, pace)| *pace - usual <= rule.gap_s)
        .map(|(from, pace)| (from + pace - start, pace))
        .collect();

    let index = |at: f64| (at / rule.window_s) as usize;
    let mut windows = Vec::new();
    let mut excess = Vec::new();
    let mut sides: Vec<(usize, bool)> = Vec::new();
    for window in running.chunk_by(|a, b| index(a.0) == index(b.0)) {
        let times: Vec<f64> = window.iter().map(|(_, pace)| *pace).collect();
        let (number, middle) = (index(window[0].0), median(&sorted(&times))?);
        if middle > usual * (1.0 + rule.band) {
            excess.push((sum(times.iter().copied()) - times.len() as f64 * usual).max(0.0));
            sides.push((number, true));
        } else if middle < usual * (1.0 - rule.band) {
            sides.push((number, false));
        }
        windows.push(Window {
            start_s: Finite::new(number as f64 * rule.window_s).ok()?,
            steps: times.len(),
            median_s: Finite::new(middle).ok()?,
            ratio: Finite::new(middle / usual).ok()?,
        });
    }

    // Clocks and durations come from different calls: their rounding must not make more lost than there is.
    let interrupted = sum(interruptions.iter().map(|(_, lost)| *lost)).min(total);
    let excess = sum(excess.into_iter()).min(total - interrupted);
    let useful = total - interrupted - excess;
    let number = |x: f64| Finite::new(x).ok();
    Some(Soak {
        total_s: number(total)?,
        median_s: number(usual)?,
        fluctuating: sides.len(),
        fluctuations: sides.chunk_by(|a, b| a.0 + 1 == b.0 && a.1 == b.1).count(),
        windows,
        interruptions: interruptions
            .into_iter()
            .map(|(at, lost)| Some(Interruption { start_s: number(at)?, lost_s: number(lost)? }))
            .collect::<Option<_>>()?,
        interrupted_s: number(interrupted)?,
        excess_s: number(excess)?,
        useful_s: number(useful)?,
        stability: number(useful / total)?,
        stability_running: number(useful / (total - interrupted)),
        last_to_first: last_to_first(&running, total, rule.part_s).and_then(number),
    })
}

/// The mean speed of the steps that ended in the last part as a ratio to the first part's.
fn last_to_first(running: &[(f64, f64)], total: f64, part: f64) -> Option<f64> {
    if total < 2.0 * part {
        return None;
    }
    let mean = |inside: &dyn Fn(f64) -> bool| {
        let paces: Vec<f64> = running.iter().filter(|(at, _)| inside(*at)).map(|(_, pace)| *pace).collect();
        (!paces.is_empty()).then(|| sum(paces.iter().copied()) / paces.len() as f64)
    };
    Some(mean(&|at| at <= part)? / mean(&|at| at > total - part)?)
}

/// A disagreement between the wall clock and the monotonic clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClockJump {
    /// The reading, counted from 0, at which it was seen: it happened between the one before and this one.
    pub index: usize,
    /// By how much the wall clock went further than the monotonic one: above 0 after a suspend or a correction
    /// forward, below 0 after one backward.
    ///
    /// # Units
    /// Seconds.
    pub jump_s: Finite,
}

/// Finds where the two clocks disagree by more than `tolerance_s` between one reading and the next.
///
/// Readings that are not finite are passed over.
///
/// # Units
/// Each reading is (monotonic, wall) in seconds, taken together.
pub fn clock_jumps(readings: &[(f64, f64)], tolerance_s: f64) -> Vec<ClockJump> {
    let mut before: Option<(f64, f64)> = None;
    let mut jumps = Vec::new();
    for (index, &(mono, wall)) in readings.iter().enumerate() {
        if !mono.is_finite() || !wall.is_finite() {
            continue;
        }
        let jump = before.and_then(|(m, w)| Finite::new((wall - w) - (mono - m)).ok());
        jumps.extend(jump.filter(|j| j.get().abs() > tolerance_s).map(|jump_s| ClockJump { index, jump_s }));
        before = Some((mono, wall));
    }
    jumps
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests state exact values")]
    use super::*;
    use proptest::prelude::*;

    /// Steps of these lengths end to end, from second 1000 on; a negative length is a wait.
    fn run(parts: &[(usize, f64)]) -> Vec<Timed> {
        let mut at = 1000.0;
        let mut steps = Vec::new();
        for &(n, seconds) in parts {
            for _ in 0..n {
                at += seconds.abs();
                if seconds > 0.0 {
                    steps.push(Timed { end_s: at, seconds });
                }
            }
        }
        steps
    }

    fn judged(parts: &[(usize, f64)], until_s: Option<f64>) -> Soak {
        soak(&run(parts), &SoakRule { until_s, ..SoakRule::default() }).unwrap().unwrap()
    }

    #[test]
    fn an_even_run_is_all_useful() {
        let s = judged(&[(1200, 1.0)], None);
        assert_eq!((s.total_s.get(), s.useful_s.get(), s.stability.get()), (1200.0, 1200.0, 1.0));
        assert_eq!((s.fluctuating, s.interruptions.len(), s.last_to_first.unwrap().get()), (0, 0, 1.0));
        // The step that ends on the last boundary opens a window.
        assert_eq!((s.windows.len(), s.windows[0].steps, s.windows[1].start_s.get()), (21, 59, 60.0));
    }

    #[test]
    fn slow_windows_lose_their_excess_and_fast_ones_nothing() {
        // 180 s at 1.5 s a step: 120 steps, 60 s too much. 120 s at 0.5 s: fast.
        let s = judged(&[(600, 1.0), (120, 1.5), (600, 1.0), (240, 0.5), (300, 1.0)], None);
        assert_eq!((s.total_s.get(), s.interrupted_s.get(), s.fluctuations), (1800.0, 0.0, 2));
        assert!((58.0..=60.0).contains(&s.excess_s.get()) && (5..=6).contains(&s.fluctuating), "{s:?}");
        assert!((s.stability.get() - 1740.0 / 1800.0).abs() < 0.002);
        assert_eq!(s.last_to_first.unwrap().get(), 1.0);
    }

    #[test]
    fn a_fluctuation_is_beyond_the_band_and_counted_once() {
        let count = |parts: &[(usize, f64)]| {
            let s = judged(&[&[(600, 1.0)], parts, &[(600, 1.0)]].concat(), None);
            (s.fluctuating, s.fluctuations)
        };
        assert_eq!(count(&[(120, 1.04)]), (0, 0));
        assert_eq!(count(&[(120, 1.06)]), (2, 1));
        assert_eq!(count(&[(80, 1.5), (240, 0.5)]), (4, 2), "slow, then fast");
        assert_eq!(count(&[(80, 1.5), (60, 1.0), (80, 1.5)]), (4, 2), "slow, good, slow");
    }

    #[test]
    fn a_wait_and_a_hung_step_are_the_same_interruption() {
        // 10 h useful and two waits of half an hour within 11 h: 10 / 11.
        let between = judged(&[(18_000, 1.0), (1, -1800.0), (18_000, 1.0), (1, -1800.0), (1, 1.0)], None);
        let inside = judged(&[(18_000, 1.0), (1, 1801.0), (17_999, 1.0), (1, 1801.0)], None);
        for s in [between, inside] {
            assert_eq!((s.interruptions.len(), s.interrupted_s.get(), s.excess_s.get()), (2, 3600.0, 0.0));
            assert!((s.stability.get() - 10.0 / 11.0).abs() < 1e-5, "{}", s.stability);
            assert_eq!(
                (s.interruptions[0].start_s.get(), s.interruptions[0].lost_s.get()),
                (18_000.0, 1800.0)
            );
            assert_eq!((s.stability_running.unwrap().get(), s.fluctuating), (1.0, 0));
        }
    }

    #[test]
    fn a_run_that_hangs_at_its_end_is_interrupted() {
        let s = judged(&[(900, 1.0)], Some(1000.0 + 1001.0));
        assert_eq!((s.total_s.get(), s.interrupted_s.get(), s.interruptions.len()), (1001.0, 100.0, 1));
        assert_eq!(judged(&[(900, 1.0)], Some(1910.0)).interruptions.len(), 0, "within the gap");
        assert_eq!(judged(&[(900, 1.0)], Some(0.0)).total_s.get(), 900.0);
    }

    #[test]
    fn short_waits_and_single_slow_steps_are_jitter() {
        let s = judged(&[(100, 1.0), (1, 9.0), (100, 1.0), (1, -10.0), (100, 1.0)], None);
        assert_eq!((s.stability.get(), s.interruptions.len()), (1.0, 0));
        assert_eq!(s.last_to_first, None, "319 s are not twice 300 s");
    }

    #[test]
    fn waiting_for_data_between_steps_is_slow_too() {
        let waiting: Vec<(usize, f64)> = [(1, 1.0), (1, -2.0)].repeat(100);
        let s = judged(&[&[(900, 1.0)], waiting.as_slice(), &[(600, 1.0)]].concat(), None);
        assert_eq!((s.total_s.get(), s.interruptions.len(), s.fluctuations), (1800.0, 0, 1));
        assert!((190.0..=200.0).contains(&s.excess_s.get()), "{}", s.excess_s);
    }

    #[test]
    fn slowing_down_shows_in_the_last_part() {
        let s = judged(&[(600, 1.0), (300, 1.25)], None);
        assert_eq!(s.last_to_first.unwrap().get(), 0.8);
    }

    #[test]
    fn nonsense_is_refused() {
        let rule = SoakRule::default();
        assert_eq!(soak(&[], &rule), Ok(None));
        let step = |end_s, seconds| Timed { end_s, seconds };
        assert_eq!(soak(&[step(1.0, 1.0), step(0.5, 1.0)], &rule), Err(BadSoak::Step(1)));
        assert_eq!(soak(&[step(1.0, 0.0)], &rule), Err(BadSoak::Step(0)));
        assert_eq!(soak(&[step(1.0, 1.0); 3], &rule), Err(BadSoak::Clock));
        assert_eq!(soak(&[step(f64::NAN, 1.0)], &rule), Err(BadSoak::Step(0)));
        assert_eq!(soak(&[], &SoakRule { window_s: 0.0, ..rule }), Err(BadSoak::Rule));
    }

    #[test]
    fn clock_jumps_both_ways() {
        let readings = [(0.0, 500.0), (10.0, 510.2), (20.0, 3820.0), (f64::NAN, 0.0), (30.0, 3825.0)];
        let found: Vec<(usize, f64)> =
            clock_jumps(&readings, 1.0).iter().map(|j| (j.index, j.jump_s.get().round())).collect();
        assert_eq!(found, [(2, 3300.0), (4, -5.0)]);
        assert!(clock_jumps(&readings[..2], 1.0).is_empty());
    }

    proptest! {
        #[test]
        fn no_second_is_lost_twice(parts in prop::collection::vec((1usize..80, -40.0f64..40.0), 1..20)) {
            let steps = run(&parts);
            if let Some(s) = soak(&steps, &SoakRule::default()).unwrap() {
                let parts = s.useful_s.get() + s.interrupted_s.get() + s.excess_s.get();
                prop_assert!((parts - s.total_s.get()).abs() < 1e-6);
                prop_assert!((0.0..=1.0).contains(&s.stability.get()), "{:?}", s);
                let inside: usize = s.windows.iter().map(|w| w.steps).sum();
                prop_assert!(inside + s.interruptions.len() == steps.len());
            } else {
                prop_assert!(steps.is_empty());
            }
        }
    }
}
