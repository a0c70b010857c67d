//! Marks steps far from the rolling median, and finds the rhythm of stalls.
//!
//! Not here: what the marks are good for (`steady`), interruptions of a soak (`window`).
//!
//! Invariant: marks are indices into what was given; no value is changed.

use crate::measure::steady::Period;
use crate::measure::summary::{Finite, median, sorted};

/// How far outside the rolling median, in widths from the 10th to the 90th percentile, an outlier lies.
const WIDTHS: f64 = 3.0;
/// The least autocorrelation that makes stalls periodic.
const PERIODIC: f64 = 0.8;
/// How far the distance of two stalls may be off, as a share of it.
const TOLERANCE: f64 = 0.02;

/// The indices of values far from the median of the window around them, and whether each is a slow one.
///
/// At both ends the window is pushed inwards. `values` holds at least one.
pub(super) fn mark(values: &[f64], width: usize, band: f64) -> Vec<(usize, bool)> {
    let width = width.clamp(1, values.len());
    let (p10, p90) = (width.div_ceil(10) - 1, (width * 9).div_ceil(10) - 1);
    let mut window = sorted(&values[..width]);
    let mut start = 0;
    let mut marked = Vec::new();
    for (i, &value) in values.iter().enumerate() {
        while start + width < values.len() && start + width / 2 < i {
            let gone = window.partition_point(|x| *x < values[start]);
            window.remove(gone);
            let entering = values[start + width];
            window.insert(window.partition_point(|x| *x < entering), entering);
            start += 1;
        }
        let middle = median(&window).unwrap_or(value);
        let reach = (WIDTHS * (window[p90] - window[p10])).max(band * middle);
        if (value - middle).abs() > reach {
            marked.push((i, value > middle));
        }
    }
    marked
}

/// The distance at which stalls come back: the first high peak of the autocorrelation of the stall indicator.
///
/// # Formula
/// For each lag, the share of stalls that are followed by another at that distance (± 2 %), less what chance
/// gives; stalls in a row are one. At least 5 stalls, 4 of them early enough to be followed, and a lag of at most
/// 4 times their mean distance.
pub(super) fn stall_period(stalls: &[usize], n: usize) -> Option<Period> {
    let in_a_row = |k: usize| k > 0 && stalls[k - 1] + 1 == stalls[k];
    let events: Vec<usize> = (0..stalls.len()).filter(|k| !in_a_row(*k)).map(|k| stalls[k]).collect();
    if events.len() < 5 {
        return None;
    }
    // Far beyond the usual distance of two stalls, chance finds a rhythm in anything.
    let usual = (events[events.len() - 1] - events[0]) / (events.len() - 1);
    let widest = (n / 4).min(usual * 4);
    let mut pairs = vec![0.0f64; widest + 1];
    for (k, event) in events.iter().enumerate() {
        events[k + 1..]
            .iter()
            .map(|e| e - event)
            .take_while(|lag| *lag <= widest)
            .for_each(|l| pairs[l] += 1.0);
    }
    let reach = |lag: usize| (lag as f64 * TOLERANCE) as usize;
    let quiet = 1.0 - events.len() as f64 / n as f64;
    let strength = |lag: usize| {
        let reach = reach(lag);
        let followed: f64 = pairs.get(lag - reach..=lag + reach)?.iter().sum();
        let early = events.partition_point(|e| e + lag + reach < n);
        let chance = 1.0 - quiet.powf(2.0 * reach as f64 + 1.0);
        (early >= 4).then(|| ((followed / early as f64).min(1.0) - chance) / (1.0 - chance))
    };
    let strengths: Vec<f64> = (2..=widest).map_while(strength).collect();
    let peak = strengths.iter().copied().fold(0.0, f64::max);
    if peak < PERIODIC {
        return None;
    }
    let lag = 2 + strengths.iter().position(|s| *s >= 0.9 * peak)?;
    // The first lag that reaches the peak lies at its lower edge: centre on the pairs themselves.
    let near = lag - reach(lag)..=(lag + 2 * reach(lag) + 1).min(widest);
    let (count, total) = near.fold((0.0, 0.0), |(c, t), l| (c + pairs[l], t + pairs[l] * l as f64));
    Some(Period { steps: Finite::new(total / count).ok()?, strength: Finite::new(peak).ok()? })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests state exact values")]
    use super::*;
    use crate::measure::bootstrap::SplitMix64;

    #[test]
    fn the_window_follows_a_slow_change() {
        // 1 to 3 s within 2000 steps: nothing is far from its neighbours, except the two that are.
        let mut run: Vec<f64> = (0..2000).map(|i| 1.0 + f64::from(i) / 1000.0).collect();
        (run[500], run[1900]) = (3.0, 1.0);
        assert_eq!(mark(&run, 200, 0.02), [(500, true), (1900, false)]);
        assert_eq!(mark(&run, 10_000, 0.02), []);
    }

    #[test]
    fn the_window_is_that_of_its_step_at_both_ends() {
        let mut run = vec![1.0; 300];
        for i in [0, 150, 299] {
            run[i] = 1.5;
        }
        assert_eq!(mark(&run, 200, 0.02), [(0, true), (150, true), (299, true)]);
        assert_eq!(mark(&run, 200, 0.6), []);
        assert_eq!(mark(&[1.0], 200, 0.02), []);
    }

    #[test]
    fn rhythm_in_steps_in_time_and_none() {
        let every = |step: usize| (step..6000).step_by(step).collect::<Vec<_>>();
        assert_eq!(stall_period(&every(250), 6000).unwrap().steps.get(), 250.0);
        // Two stalls in a row each time, and one of them split: still one rhythm.
        let double: Vec<usize> = every(300).iter().flat_map(|i| [*i, i + 1, i + 4]).collect();
        assert_eq!(stall_period(&double, 6000).unwrap().steps.get(), 300.0);
        // A stall that takes many steps is one stall.
        let long: Vec<usize> = every(300).iter().flat_map(|i| *i..i + 15).collect();
        assert_eq!(stall_period(&long, 6000).unwrap().steps.get(), 300.0);
        // A timer, not a step count, sets the pace.
        let timed: Vec<usize> = (1..40).map(|k| k * 137 + k * k % 3).collect();
        let found = stall_period(&timed, 6000).unwrap().steps.get();
        assert!((found - 137.0).abs() < 1.0, "{found}");
        assert_eq!(stall_period(&every(1400), 6000), None, "four stalls show no rhythm");
        let by_chance = |seed: &u64| {
            let mut random = SplitMix64::new(*seed);
            let mut stalls: Vec<usize> = (0..5 + seed % 60).map(|_| random.below(6000)).collect();
            stalls.sort_unstable();
            stalls.dedup();
            stall_period(&stalls, 6000).is_some()
        };
        let wrong = (0..1000).filter(by_chance).count();
        assert!(wrong <= 10, "{wrong} of 1000 random sets seem to have a rhythm");
    }
}
