//! Splits a run into stretches of like steps: where mean or variance of the log step time changes.
//!
//! Not here: which stretches are steady (`steady`).
//!
//! Invariant: the stretches cover the run without a gap, and their total cost is the least there is.

use crate::measure::steady::Segment;
use crate::measure::summary::{Finite, median, sorted, sum};

/// Up to this many points changes are looked for step by step, above it in medians of blocks.
const MAX_RAW: usize = 5000;
/// How many blocks there are at most.
const MAX_BLOCKS: usize = 2000;
/// The penalty of one more segment is this times `ln n`.
const PENALTY: f64 = 15.0;
/// The shortest segment.
const MIN_SEGMENT: usize = 2;
/// Variances of log step time below (0.1 %)² count as that: a timer's ticks are no change of regime.
const VARIANCE_FLOOR: f64 = 1e-6;
/// Splits the steps from `first` on into stretches of like steps, looking past the marked ones (`outliers`, ascending).
pub(super) fn segments(seconds: &[f64], first: usize, outliers: &[usize], band: f64) -> Option<Vec<Segment>> {
    let unmarked: Vec<usize> =
        (first..seconds.len()).filter(|i| outliers.binary_search(i).is_err()).collect();
    let block = if unmarked.len() > MAX_RAW { unmarked.len().div_ceil(MAX_BLOCKS) } else { 1 };
    let logs: Vec<f64> = unmarked
        .chunks(block)
        .filter_map(|part| median(&sorted(&part.iter().map(|i| seconds[*i].ln()).collect::<Vec<_>>())))
        .collect();
    let starts = changepoints(&logs, PENALTY * (logs.len() as f64).ln());
    let mut out: Vec<Segment> = Vec::with_capacity(starts.len());
    for (k, start) in starts.iter().enumerate() {
        let inside = &unmarked[start * block..starts.get(k + 1).map_or(unmarked.len(), |next| next * block)];
        let end = starts.get(k + 1).map_or(seconds.len(), |next| unmarked[next * block]);
        let mean = sum(inside.iter().map(|i| seconds[*i])) / inside.len() as f64;
        let from = out.last().map_or(first, |before| before.steps.end);
        out.push(Segment { steps: from..end, mean: Finite::new(mean).ok()?, like_last: false });
    }
    let last = out.last()?.mean.get();
    for segment in &mut out {
        segment.like_last = (segment.mean.get() - last).abs() <= band * last;
    }
    Some(out)
}

/// The starts of the segments that minimise the cost of all plus `penalty` each; the first is 0.
///
/// # Formula
/// PELT (Killick, Fearnhead, Eckley 2012) with the normal cost `m ln v + Σ(x - mean)² / v`, where `v` is the
/// segment's variance but not below the floor. A start is dropped only when the step that outbids it can itself
/// be a start, which keeps the result exact with a shortest segment.
fn changepoints(points: &[f64], penalty: f64) -> Vec<usize> {
    let n = points.len();
    let centre = sum(points.iter().copied()) / n.max(1) as f64;
    let mut sums = vec![(0.0, 0.0)];
    for x in points.iter().map(|x| x - centre) {
        let (first, second) = sums[sums.len() - 1];
        sums.push((first + x, second + x * x));
    }
    let cost = |from: usize, to: usize| {
        let (m, total) = ((to - from) as f64, sums[to].0 - sums[from].0);
        let squares = (sums[to].1 - sums[from].1 - total * total / m).max(0.0);
        let variance = (squares / m).max(VARIANCE_FLOOR);
        m * variance.ln() + squares / variance
    };
    let mut best = vec![f64::INFINITY; n + 1];
    let mut before = vec![0; n + 1];
    best[0] = -penalty;
    // Each start with the step from which on it is of no use.
    let mut starts: Vec<(usize, usize)> = Vec::new();
    for to in MIN_SEGMENT..=n {
        if best[to - MIN_SEGMENT].is_finite() {
            starts.push((to - MIN_SEGMENT, usize::MAX));
        }
        let costs: Vec<f64> = starts.iter().map(|(from, _)| best[*from] + cost(*from, to)).collect();
        for ((from, _), cost) in starts.iter().zip(&costs) {
            if cost + penalty < best[to] {
                (best[to], before[to]) = (cost + penalty, *from);
            }
        }
        for ((_, useless), cost) in starts.iter_mut().zip(&costs) {
            if *cost >= best[to] {
                *useless = (*useless).min(to + MIN_SEGMENT);
            }
        }
        starts.retain(|(_, useless)| *useless > to + 1);
    }
    let mut found = vec![];
    let mut at = n;
    while at > 0 {
        at = before[at];
        found.push(at);
    }
    found.reverse();
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;
    use crate::measure::bootstrap::SplitMix64;
    use proptest::prelude::*;

    /// The cost of a split, written out from its formula.
    fn cost_of(points: &[f64], starts: &[usize], penalty: f64) -> f64 {
        let ends = starts.iter().skip(1).copied().chain([points.len()]);
        let one = |(from, to): (&usize, usize)| {
            let part = &points[*from..to];
            let mean = part.iter().sum::<f64>() / part.len() as f64;
            let squares = part.iter().map(|x| (x - mean).powi(2)).sum::<f64>();
            let variance = (squares / part.len() as f64).max(VARIANCE_FLOOR);
            part.len() as f64 * variance.ln() + squares / variance
        };
        starts.iter().zip(ends).map(one).sum::<f64>() + penalty * (starts.len() - 1) as f64
    }

    /// The least cost of all splits, without any pruning.
    fn least_cost(points: &[f64], penalty: f64) -> f64 {
        let mut best = vec![f64::INFINITY; points.len() + 1];
        best[0] = -penalty;
        for to in MIN_SEGMENT..=points.len() {
            for from in 0..=to - MIN_SEGMENT {
                best[to] = best[to].min(best[from] + cost_of(&points[from..to], &[0], penalty) + penalty);
            }
        }
        best[points.len()]
    }

    proptest! {
        #[test]
        fn pruning_keeps_the_best_split(
            levels in prop::collection::vec((1usize..12, -1.0f64..1.0, 0.0f64..0.3), 1..6),
            penalty in 0.5f64..40.0, seed: u64,
        ) {
            let mut random = SplitMix64::new(seed);
            let mut unit = || random.next_u64() as f64 / 2f64.powi(63) - 1.0;
            let points: Vec<f64> =
                levels.iter().flat_map(|(n, at, spread)| vec![(at, spread); *n]).map(|(a, s)| a + s * unit()).collect();
            prop_assume!(points.len() >= MIN_SEGMENT);
            let starts = changepoints(&points, penalty);
            prop_assert_eq!(starts[0], 0);
            prop_assert!(starts.windows(2).all(|w| w[1] - w[0] >= MIN_SEGMENT));
            let (got, least) = (cost_of(&points, &starts, penalty), least_cost(&points, penalty));
            prop_assert!((got - least).abs() < 1e-6 * (1.0 + least.abs()), "{} is not {}", got, least);
        }
    }

    #[test]
    fn finds_changes_of_mean_and_of_spread() {
        let wave =
            |n: u32, at: f64, swing: f64| (0..n).map(move |i| at + if i % 2 == 0 { swing } else { -swing });
        let points: Vec<f64> =
            wave(100, 0.0, 0.01).chain(wave(100, 0.5, 0.01)).chain(wave(100, 0.5, 0.2)).collect();
        assert_eq!(changepoints(&points, PENALTY * 300f64.ln()), [0, 100, 200]);
        let quiet: Vec<f64> = wave(150, 0.0, 1e-9).chain(wave(150, 1e-4, 1e-5)).collect();
        assert_eq!(changepoints(&quiet, PENALTY * 300f64.ln()), [0], "under the floor");
    }

    #[test]
    fn marked_steps_belong_to_a_stretch_but_not_to_its_mean() {
        let mut run = vec![1.0; 100];
        run.extend(vec![2.0; 100]);
        (run[50], run[100], run[199]) = (9.0, 9.0, 9.0);
        let found = segments(&run, 1, &[50, 100, 199], 0.02).unwrap();
        let seen: Vec<_> = found.iter().map(|s| (s.steps.clone(), s.mean.get(), s.like_last)).collect();
        assert_eq!(seen, [(1..101, 1.0, false), (101..200, 2.0, true)]);
        assert!(segments(&run[..3], 0, &[0, 1, 2], 0.02).is_none());
    }
}
