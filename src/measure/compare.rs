//! Whether two handfuls of runs differ: ratio of medians, exact test, interval, least visible change, correction.
//!
//! Not here: which metrics are compared and which may be (labels, units), better or worse, what the report says.
//!
//! Invariant: one value per run, never per step; `compare(a, b)` mirrors `compare(b, a)` exactly in `|log_ratio|`, in
//! `p` and in every verdict drawn from them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::measure::bootstrap::{RESAMPLES, SEED, log_ratio_interval};
use crate::measure::summary::{Finite, Interval, Summary, sorted};

/// With fewer runs than this on a side there is no test: p cannot fall below 0.10.
pub const MIN_RUNS: usize = 4;
/// A change counts only below this p (corrected, where several are tested together).
pub const ALPHA: f64 = 0.05;
/// No change below this ratio to 1 counts, however sure it is.
pub const LEAST_CHANGE: f64 = 0.02;
/// With up to this many runs on both sides together the test is exact.
const MAX_EXACT: usize = 50;

/// Whether two sets of runs could be tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Testable {
    /// Yes, with the exact distribution.
    Exact,
    /// Yes, with the normal approximation: many runs.
    Approximate,
    /// No: fewer than four runs on a side. Show both ranges.
    TooFewRuns,
}

/// How one quantity changed from one set of runs to another; it does not know which direction is better.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The runs before.
    pub old: Summary,
    /// The runs after.
    pub new: Summary,
    /// The ratio of the medians, new by old; absent unless all values are above 0.
    pub ratio: Option<Finite>,
    /// Its natural logarithm; swapping the sides negates it exactly.
    pub log_ratio: Option<Finite>,
    /// The two-sided p of the Mann-Whitney test, not corrected; absent if not testable.
    pub p: Option<Finite>,
    /// The 95 % interval of `log_ratio`; absent if not testable or without a ratio.
    pub log_interval: Option<Interval>,
    /// The least change that so many runs of such spread show: true with 95 % confidence, missed one time in five.
    /// Absent for a single run on a side, or where the spread cannot be set against the mean.
    ///
    /// # Units
    /// Ratio: 0.05 is 5 %.
    pub least_visible: Option<Finite>,
    /// Whether there was a test.
    pub testable: Testable,
}

impl Change {
    /// The 95 % interval of `ratio`.
    pub fn interval(&self) -> Option<Interval> {
        self.log_interval.and_then(|i| Interval::between(i.low.get().exp(), i.high.get().exp()))
    }

    /// Whether the change is real by the rule, given its p after correction; `None` if that cannot be told.
    ///
    /// # Formula
    /// `p < 0.05` and `|ln ratio| > ln(1 + max(2 %, least_visible))`: on the logarithm, so that a fall and the rise
    /// that makes up for it are judged alike.
    pub fn stands(&self, corrected_p: f64) -> Option<bool> {
        self.p?;
        let least = LEAST_CHANGE.max(self.least_visible?.get());
        Some(corrected_p < ALPHA && self.log_ratio?.get().abs() > least.ln_1p())
    }
}

/// Compares the values of two sets of runs; `None` if a side is empty or holds a number that is not finite.
///
/// # Units
/// The same unit on both sides.
///
/// # Formula
/// Mann-Whitney over all values, see `mann_whitney_p`; medians and their bootstrap interval, see
/// `bootstrap::log_ratio_interval`; `least_visible = mde_in_cv(n, m) × √((cv_old² + cv_new²) / 2)`.
pub fn compare(old: &[f64], new: &[f64]) -> Option<Change> {
    let (before, after) = (Summary::of(old)?, Summary::of(new)?);
    let positive = before.min.get() > 0.0 && after.min.get() > 0.0;
    let (from, to) = (before.median.get(), after.median.get());
    let number = |x: f64| Finite::new(x).ok().filter(|_| positive);
    let enough = before.n.min(after.n) >= MIN_RUNS;
    let testable = match before.n + after.n {
        _ if !enough => Testable::TooFewRuns,
        ..=MAX_EXACT => Testable::Exact,
        _ => Testable::Approximate,
    };
    let spread = before.cv.zip(after.cv).map(|(a, b)| (a.get().hypot(b.get())) / 2f64.sqrt());
    let least = spread.zip(mde_in_cv(before.n, after.n)).map(|(cv, units)| cv * units);
    Some(Change {
        old: before,
        new: after,
        ratio: number(to / from),
        log_ratio: number(to.ln() - from.ln()),
        p: mann_whitney_p(old, new).filter(|_| enough).and_then(|p| Finite::new(p).ok()),
        log_interval: enough.then(|| log_ratio_interval(old, new, RESAMPLES, SEED)).flatten(),
        least_visible: least.and_then(|x| Finite::new(x).ok()),
        testable,
    })
}

/// The least difference of means that n against m runs show, in units of the coefficient of variation.
///
/// `None` for a side without a run.
///
/// # Formula
/// `(z(0.975) + z(0.8)) × √(1/n + 1/m)`, the normal approximation at 5 % and power 80 %. For equal sides this is the
/// table 2.80, 2.29, 1.98, 1.77, 1.62, 1.50, 1.40, 1.32, 1.25 for n = 2 to 10, so nothing has to be looked up.
///
/// # Source
/// `fixtures/statistics/small_sample_limits.csv`.
pub fn mde_in_cv(n: usize, m: usize) -> Option<f64> {
    const Z: f64 = 1.959_964 + 0.841_621;
    (n > 0 && m > 0).then(|| Z * (1.0 / n as f64 + 1.0 / m as f64).sqrt())
}

/// The two-sided p of the Mann-Whitney (Wilcoxon rank sum) test; `None` if a side is empty or not finite.
///
/// The smallest p that 3, 4, 5 and 6 runs a side can give is 0.100, 0.029, 0.0079 and 0.0022.
///
/// # Formula
/// Equal values share the mean of their ranks. Up to 50 values: the share of all ways to deal the ranks to the two
/// sides whose rank sum lies at least as far from the middle as the one found (an exact permutation test, ties or
/// not). Above: the normal approximation with correction for ties and continuity.
///
/// # Source
/// Mann and Whitney 1947; for ties, Lehmann, "Nonparametrics", 1975.
pub fn mann_whitney_p(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.is_empty() || b.is_empty() || !a.iter().chain(b).all(|x| x.is_finite()) {
        return None;
    }
    let all = sorted(&[a, b].concat());
    let ranks = doubled_ranks(&all);
    // Both sides give the same distance from the middle; the smaller one is cheaper to deal.
    let side = if a.len() <= b.len() { a } else { b };
    let rank = |x: &f64| ranks[all.partition_point(|y| *y < *x + 0.0)];
    let found: usize = side.iter().map(rank).sum();
    let distance = found.abs_diff(side.len() * (all.len() + 1));
    if all.len() <= MAX_EXACT {
        Some(exact_p(&ranks, side.len(), distance))
    } else {
        Some(normal_p(&ranks, side.len(), distance))
    }
}

/// Twice the mean rank of each of these ascending values, ranks from 1: whole numbers even with ties.
fn doubled_ranks(all: &[f64]) -> Vec<usize> {
    let mut ranks = Vec::with_capacity(all.len());
    for group in all.chunk_by(|x, y| x.total_cmp(y).is_eq()) {
        let before = ranks.len();
        ranks.resize(before + group.len(), 2 * before + group.len() + 1);
    }
    ranks
}

/// The share of all choices of `n` ranks whose sum is at least `distance` away from the middle.
fn exact_p(ranks: &[usize], n: usize, distance: usize) -> f64 {
    let top: usize = ranks.iter().rev().take(n).sum();
    // ways[k][s]: in how many ways k of the ranks seen so far sum to s. Whole numbers below 2^53 for 50 ranks.
    let mut ways = vec![vec![0.0f64; top + 1]; n + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for k in (1..=n).rev() {
            let (fewer, more) = ways.split_at_mut(k);
            for s in rank..=top {
                more[0][s] += fewer[k - 1][s - rank];
            }
        }
    }
    let middle = n * (ranks.len() + 1);
    let all: f64 = ways[n].iter().sum();
    let far: f64 =
        ways[n].iter().enumerate().filter(|(s, _)| s.abs_diff(middle) >= distance).map(|(_, w)| w).sum();
    far / all
}

/// The same share by the normal approximation.
fn normal_p(ranks: &[usize], n: usize, distance: usize) -> f64 {
    let (n, total) = (n as f64, ranks.len() as f64);
    let ties: f64 =
        ranks.chunk_by(|x, y| x == y).map(|group| (group.len() as f64).powi(3) - group.len() as f64).sum();
    let variance = n * (total - n) / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
    // Ranks are doubled, so the distance is too.
    let off = (distance as f64 / 2.0 - 0.5).max(0.0);
    if variance <= 0.0 { 1.0 } else { erfc(off / (2.0 * variance).sqrt()) }
}

/// The complementary error function for x of at least 0, to 1.2e-7 of its value.
///
/// # Source
/// Numerical Recipes, `erfcc` (Chebyshev fit).
fn erfc(x: f64) -> f64 {
    const FIT: [f64; 10] = [
        0.170_872_77,
        -0.822_152_23,
        1.488_515_87,
        -1.135_203_98,
        0.278_868_07,
        -0.186_288_06,
        0.096_784_18,
        0.374_091_96,
        1.000_023_68,
        -1.265_512_23,
    ];
    let t = 1.0 / (1.0 + 0.5 * x);
    t * (FIT.iter().fold(0.0, |sum, c| sum * t + c) - x * x).exp()
}

/// Corrects p values that are judged together, in the order given (Holm).
///
/// Meant for the few headline metrics of a diff (at most six). A p outside 0 to 1 counts as the nearer end, NaN as 1.
///
/// # Formula
/// In ascending order, the i-th of m is multiplied by `m - i + 1`, is at least the one before it, and at most 1.
///
/// # Source
/// Holm 1979.
pub fn holm(p: &[f64]) -> Vec<f64> {
    let clean = |x: f64| if x.is_nan() { 1.0 } else { x.clamp(0.0, 1.0) };
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| clean(p[*a]).total_cmp(&clean(p[*b])));
    let mut corrected = vec![1.0; p.len()];
    let mut floor: f64 = 0.0;
    for (i, &at) in order.iter().enumerate() {
        floor = floor.max((clean(p[at]) * (p.len() - i) as f64).min(1.0));
        corrected[at] = floor;
    }
    corrected
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests state exact values")]
    use super::*;
    use proptest::prelude::*;

    /// `n` values from `from` on, 1 % apart.
    fn runs(n: usize, from: f64) -> Vec<f64> {
        (0..n).map(|i| from * (1.0 + 0.01 * i as f64)).collect()
    }

    #[test]
    fn limits_match_the_whole_table() {
        let text = include_str!("../../fixtures/statistics/small_sample_limits.csv");
        let rows: Vec<_> =
            csv::Reader::from_reader(text.as_bytes()).into_records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 9);
        for row in rows {
            let number = |i: usize| row[i].parse::<f64>().unwrap();
            let n = row[0].parse().unwrap();
            let p = mann_whitney_p(&runs(n, 1.0), &runs(n, 2.0)).unwrap();
            assert!((p - number(1)).abs() < 6e-7, "n {n}: {p}");
            assert!((mde_in_cv(n, n).unwrap() - number(3)).abs() < 0.0051, "n {n}");
        }
        assert_eq!(mde_in_cv(0, 5), None);
    }

    #[test]
    fn p_by_hand() {
        // {1, 2, 4} against {3, 5, 6}: of the 20 rank sums 6 to 15, those of 7 and less or 14 and more are 4.
        assert_eq!(mann_whitney_p(&[1.0, 2.0, 4.0], &[3.0, 5.0, 6.0]), Some(0.2));
        // Ranks 1.5 1.5 | 3 4.5 4.5: of 10 pairs only that one sums to 3, and 4.5 + 4.5 lies as far up.
        assert_eq!(mann_whitney_p(&[1.0, 1.0], &[2.0, 3.0, 3.0]), Some(0.2));
        assert_eq!(mann_whitney_p(&[1.0; 5], &[1.0; 6]), Some(1.0));
        assert_eq!(mann_whitney_p(&[0.0], &[-0.0]), Some(1.0));
        assert_eq!((mann_whitney_p(&[], &[1.0]), mann_whitney_p(&[f64::NAN], &[1.0])), (None, None));
    }

    #[test]
    fn many_runs_are_approximated() {
        // Interleaved, with ties: the exact and the approximate p of the same data agree.
        let a: Vec<f64> = (0..24).map(|i| f64::from(i / 2)).collect();
        let b: Vec<f64> = (0..26).map(|i| f64::from(i / 2) + 2.0).collect();
        let all = sorted(&[a.clone(), b.clone()].concat());
        let ranks = doubled_ranks(&all);
        let exact = mann_whitney_p(&a, &b).unwrap();
        let found: usize = a.iter().map(|x| ranks[all.partition_point(|y| y < x)]).sum();
        let normal = normal_p(&ranks, 24, found.abs_diff(24 * 51));
        assert!((exact - normal).abs() < 0.001 && exact > 0.01 && exact < 0.1, "{exact} {normal}");
        assert_eq!(compare(&runs(25, 1.0), &runs(25, 1.0)).unwrap().testable, Testable::Exact);
        let many = compare(&runs(25, 1.0), &runs(26, 3.0)).unwrap();
        assert_eq!(many.testable, Testable::Approximate);
        assert!(many.p.unwrap().get() < 1e-8);
        assert_eq!(mann_whitney_p(&[1.0; 60], &[1.0; 60]), Some(1.0));
        for (x, value) in [(0.0, 1.0), (0.5, 0.479_500_122), (1.0, 0.157_299_207), (3.0, 2.209_05e-5)] {
            assert!((erfc(x) / value - 1.0).abs() < 1e-6, "{x}: {}", erfc(x));
        }
    }

    #[test]
    fn a_real_change_and_noise() {
        let (old, new) = ([100.0, 101.0, 99.0, 100.5, 99.5], [110.0, 111.0, 109.0, 110.5, 109.5]);
        let change = compare(&old, &new).unwrap();
        assert_eq!((change.ratio.unwrap().get(), change.testable), (1.1, Testable::Exact));
        assert!(change.interval().unwrap().holds(1.1) && change.interval().unwrap().low.get() > 1.08);
        assert!((change.least_visible.unwrap().get() - 0.0134).abs() < 0.0002, "{:?}", change.least_visible);
        let p = change.p.unwrap().get();
        assert_eq!((change.stands(p), change.stands(0.05)), (Some(true), Some(false)));
        // Sure, but under 2 %; large, but under what such a spread can show.
        let small = compare(&old, &old.map(|x| x * 1.019)).unwrap();
        assert_eq!(small.stands(0.001), Some(false));
        let wide = compare(&[80.0, 90.0, 100.0, 110.0, 120.0], &[100.0, 110.0, 120.0, 130.0, 140.0]).unwrap();
        assert_eq!(wide.stands(0.001), Some(false));
        assert_eq!(compare(&old, &old).unwrap().log_ratio.unwrap().get(), 0.0);
    }

    #[test]
    fn too_few_runs_are_not_tested() {
        let change = compare(&runs(3, 1.0), &runs(9, 2.0)).unwrap();
        assert_eq!((change.testable, change.p, change.log_interval), (Testable::TooFewRuns, None, None));
        assert_eq!((change.stands(0.0), change.old.max.get()), (None, 1.02));
        assert!(change.ratio.is_some() && change.least_visible.is_some());
        assert_eq!(compare(&[1.0], &[2.0]).unwrap().least_visible, None);
        assert_eq!((compare(&[], &[1.0]), compare(&[1.0], &[f64::NAN])), (None, None));
        let zero = compare(&[0.0, 0.0, 1.0, 2.0], &runs(4, 5.0)).unwrap();
        assert_eq!(
            (zero.ratio, zero.log_ratio, zero.log_interval, zero.stands(0.0)),
            (None, None, None, None)
        );
        assert!(zero.p.is_some(), "ranks need no ratio");
        assert_eq!(compare(&runs(4, 5.0), &[0.0, 1.0, 1.0, 2.0]).unwrap().log_ratio, None);
    }

    #[test]
    fn holm_by_hand() {
        assert_eq!(holm(&[0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02]);
        assert_eq!(holm(&[0.9, f64::NAN, -1.0]), [1.0, 1.0, 0.0]);
        assert!(holm(&[]).is_empty());
    }

    fn side() -> impl Strategy<Value = Vec<f64>> {
        // Few different values, so that there are ties.
        prop::collection::vec((1u8..40).prop_map(|x| f64::from(x) / 8.0), 1..12)
    }

    proptest! {
        #[test]
        fn both_directions_mirror_exactly(a in side(), b in side()) {
            let (there, back) = (compare(&a, &b).unwrap(), compare(&b, &a).unwrap());
            prop_assert_eq!(there.log_ratio.unwrap().get(), 0.0 - back.log_ratio.unwrap().get());
            prop_assert_eq!(there.p, back.p);
            prop_assert_eq!(there.least_visible, back.least_visible);
            prop_assert_eq!(there.stands(0.01), back.stands(0.01));
            let turned = back.log_interval.and_then(|i| Interval::between(-i.low.get(), -i.high.get()));
            prop_assert_eq!(there.log_interval, turned);
            prop_assert!(there.p.is_none_or(|p| p.get() > 0.0 && p.get() <= 1.0));
        }

        #[test]
        fn nothing_differs_from_itself(a in side()) {
            let same = compare(&a, &a).unwrap();
            prop_assert_eq!(same.log_ratio.unwrap().get(), 0.0);
            prop_assert!(same.stands(same.p.map_or(1.0, Finite::get)) != Some(true));
            prop_assert!(same.p.is_none_or(|p| p.get() == 1.0));
        }

        #[test]
        fn p_is_the_share_of_all_deals(a in prop::collection::vec(0u8..6, 1..6), b in prop::collection::vec(0u8..6, 1..6)) {
            // By brute force over the number of pairs won, ties half: U instead of rank sums.
            let all: Vec<u8> = [a.clone(), b.clone()].concat();
            let distance = |mask: usize| {
                let (ours, theirs): (Vec<_>, Vec<_>) = (0..all.len()).partition(|i| mask >> i & 1 == 1);
                let won = |i: &usize| theirs.iter().map(|j| 1 + usize::from(all[*i] > all[*j]) - usize::from(all[*i] < all[*j])).sum::<usize>();
                ours.iter().map(won).sum::<usize>().abs_diff(a.len() * b.len())
            };
            let found = distance((1 << a.len()) - 1);
            let deals: Vec<usize> = (0..1usize << all.len()).filter(|m| m.count_ones() as usize == a.len()).collect();
            let far = deals.iter().filter(|m| distance(**m) >= found).count();
            let floats = |side: &[u8]| side.iter().map(|x| f64::from(*x)).collect::<Vec<_>>();
            let p = mann_whitney_p(&floats(&a), &floats(&b)).unwrap();
            prop_assert!((p - far as f64 / deals.len() as f64).abs() < 1e-12);
        }
    }
}
