//! What one set of numbers says: finite numbers, summaries, percentiles, and how many samples a claim needs.
//!
//! Not here: units and labels, how samples are made, resampling (`bootstrap`), comparing two sets (`compare`).
//!
//! Invariant: nothing that leaves this file is NaN or infinite, and what cannot be computed is `None`, never 0.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A number that is neither NaN nor infinite; `-0.0` becomes `0.0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "f64", into = "f64")]
pub struct Finite(f64);

/// A number was NaN or infinite where a finite one is needed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the number {0} is not finite")]
pub struct NotFinite(pub f64);

impl Finite {
    /// Takes a number that must be finite.
    ///
    /// # Errors
    /// `NotFinite` for NaN and the infinities.
    pub fn new(value: f64) -> Result<Self, NotFinite> {
        if value.is_finite() { Ok(Self(value + 0.0)) } else { Err(NotFinite(value)) }
    }

    /// The number itself.
    pub const fn get(self) -> f64 {
        self.0
    }
}

impl Eq for Finite {}

#[expect(clippy::derive_ord_xor_partial_ord, reason = "with no NaN and no -0.0 both orders are the same")]
impl Ord for Finite {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl TryFrom<f64> for Finite {
    type Error = NotFinite;

    fn try_from(value: f64) -> Result<Self, NotFinite> {
        Self::new(value)
    }
}

impl From<Finite> for f64 {
    fn from(value: Finite) -> Self {
        value.0
    }
}

impl std::fmt::Display for Finite {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// A closed interval, by convention at 95 % confidence.
///
/// # Units
/// Those of the quantity it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// The lower end.
    pub low: Finite,
    /// The upper end, not below `low`.
    pub high: Finite,
}

impl Interval {
    /// The interval between two ends in either order; `None` if one of them is not finite.
    pub fn between(a: f64, b: f64) -> Option<Self> {
        let (a, b) = (Finite::new(a).ok()?, Finite::new(b).ok()?);
        Some(Self { low: a.min(b), high: a.max(b) })
    }

    /// Whether a number lies in the interval, ends included.
    pub fn holds(&self, value: f64) -> bool {
        self.low.get() <= value && value <= self.high.get()
    }
}

/// The usual description of one set of numbers.
///
/// # Units
/// Those of the samples; `cv` has none.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// How many numbers there were, at least 1.
    pub n: usize,
    /// The arithmetic mean.
    pub mean: Finite,
    /// The middle one, or the mean of the two in the middle.
    pub median: Finite,
    /// The sample standard deviation (divisor n - 1); absent for a single number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stddev: Option<Finite>,
    /// The smallest.
    pub min: Finite,
    /// The largest.
    pub max: Finite,
    /// Jitter: `stddev / |mean|`; absent for a single number and where the mean is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cv: Option<Finite>,
}

impl Summary {
    /// Summarises a set of numbers; `None` if it is empty or holds a NaN or an infinity.
    ///
    /// # Formula
    /// Two passes: the mean, then the squared deviations with the rest of the first pass taken off, so that a
    /// small spread on a large mean survives.
    pub fn of(values: &[f64]) -> Option<Self> {
        let sorted = sorted(values);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        if !min.is_finite() || !max.is_finite() {
            return None;
        }
        let n = sorted.len();
        let count = n as f64;
        // Powers of two scale without rounding and keep the squares in range.
        let scale = match min.abs().max(max.abs()) {
            big if big > 1e150 => 2f64.powi(600),
            small if small < 1e-150 => 2f64.powi(-600),
            _ => 1.0,
        };
        let mean = sum(sorted.iter().map(|x| x / scale)) / count;
        let variance = (n >= 2).then(|| {
            let square = sum(sorted.iter().map(|x| (x / scale - mean).powi(2)));
            let rest = sum(sorted.iter().map(|x| x / scale - mean));
            ((square - rest * rest / count) / (count - 1.0)).max(0.0)
        });
        // Rounding may push the mean of equal numbers past them.
        let mean = (mean * scale).clamp(min, max);
        let stddev = variance.and_then(|v| Finite::new(v.sqrt() * scale).ok());
        Some(Self {
            n,
            mean: Finite::new(mean).ok()?,
            median: Finite::new(median(&sorted)?).ok()?,
            stddev,
            min: Finite::new(min).ok()?,
            max: Finite::new(max).ok()?,
            cv: stddev.and_then(|s| Finite::new(s.get() / mean.abs()).ok()),
        })
    }

    /// The 95 % interval of the mean of independent, roughly normal samples; `None` for a single one.
    ///
    /// Not for step times of one run: those are autocorrelated, see `bootstrap::mean_interval`.
    ///
    /// # Formula
    /// `mean ± t(0.975, n - 1) × stddev / √n`; `± 2.48 stddev` for three cold starts.
    pub fn mean_interval(&self) -> Option<Interval> {
        let half = t_975(self.n.checked_sub(1)?)? * self.stddev?.get() / (self.n as f64).sqrt();
        Interval::between(self.mean.get() - half, self.mean.get() + half)
    }
}

/// A percentile with what is needed to judge it.
///
/// # Units
/// `value` has those of the samples; `percent` runs from 0 to 100.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Percentile {
    /// Which percentile.
    pub percent: Finite,
    /// The sample of that rank.
    pub value: Finite,
    /// How many samples there were.
    pub n: usize,
    /// Whether there are too few samples to have one beyond it (P99 under 100, P95 under 20): show it so marked.
    pub few_samples: bool,
}

impl Percentile {
    /// The percentile of an ascending slice; `None` where `percentile` is `None`.
    pub fn of(sorted: &[f64], percent: f64) -> Option<Self> {
        let value = Finite::new(percentile(sorted, percent)?).ok()?;
        let n = sorted.len();
        let few_samples = micro_percent(percent)
            .is_some_and(|p| n as u128 * u128::from(MICRO_100 - p) < u128::from(MICRO_100));
        Some(Self { percent: Finite::new(percent).ok()?, value, n, few_samples })
    }
}

/// 100 % in millionths of a percent.
const MICRO_100: u64 = 100_000_000;

/// A percentage as a whole number of millionths of a percent, so that ranks are computed exactly.
fn micro_percent(percent: f64) -> Option<u64> {
    (0.0..=100.0).contains(&percent).then(|| (percent * 1e6).round() as u64)
}

/// The nearest-rank percentile of an ascending slice: always one of its numbers.
///
/// `None` if the slice is empty or holds a number that is not finite, or if `percent` is not within 0 to 100.
///
/// # Formula
/// The number of rank `⌈percent / 100 × n⌉`, counted from 1 and at least 1, in whole numbers: the 95th percentile
/// of 100 samples is the 95th, whatever `0.95 * 100.0` rounds to.
pub fn percentile(sorted: &[f64], percent: f64) -> Option<f64> {
    debug_assert!(sorted.is_sorted_by(|a, b| a <= b || b.is_nan()), "percentiles need an ascending slice");
    if !sorted.first()?.is_finite() || !sorted.last()?.is_finite() {
        return None;
    }
    let rank = (u128::from(micro_percent(percent)?) * sorted.len() as u128).div_ceil(u128::from(MICRO_100));
    sorted.get((rank as usize).max(1) - 1).copied()
}

/// The fewest samples that support a claim such as "99 % finish within the limit" at 99 % confidence.
///
/// `over_limit` is how many of the samples did not. `None` unless `percent` lies strictly between 0 and 100.
///
/// # Formula
/// The smallest n with `P(X ≤ over_limit) ≤ 0.01` for X binomial over n trials of `1 - percent / 100`: 44 for P90,
/// 90 for P95 and 459 for P99 where none is over the limit.
///
/// # Source
/// `MLPerf` inference rules, early stopping with d = 0 and c = 0.99.
pub fn min_samples_to_claim(percent: f64, over_limit: u64) -> Option<u64> {
    if !(percent > 0.0 && percent < 100.0) {
        return None;
    }
    let within = percent / 100.0;
    let enough = |n: u64| binomial_cdf_ln(over_limit, n, 1.0 - within) <= 0.01f64.ln();
    let mut low = over_limit;
    let mut high = over_limit.checked_add(1)?;
    while !enough(high) {
        low = high;
        high = high.checked_mul(2)?;
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if enough(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

/// The natural logarithm of `P(X ≤ k)`, X binomial over `n > k` trials of probability `q` in (0, 1).
fn binomial_cdf_ln(k: u64, n: u64, q: f64) -> f64 {
    let odds = q.ln() - (-q).ln_1p();
    let mut term = n as f64 * (-q).ln_1p();
    let mut total = term;
    for i in 0..k {
        term += ((n - i) as f64).ln() - ((i + 1) as f64).ln() + odds;
        let (high, low) = (total.max(term), total.min(term));
        total = high + (low - high).exp().ln_1p();
    }
    total
}

/// The share of all tries that must pass, shown with 95 % confidence by n tries of which all passed.
///
/// # Formula
/// `0.05^(1/n)`: three of three show 37 %, 29 of 29 show 90 %, 59 of 59 show 95 %; no try shows nothing (0).
pub fn share_shown_by_all_passing(n: usize) -> f64 {
    if n == 0 { 0.0 } else { 0.05f64.powf(1.0 / n as f64) }
}

/// The numbers in ascending order.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut out: Vec<f64> = values.iter().map(|x| x + 0.0).collect();
    out.sort_unstable_by(f64::total_cmp);
    out
}

/// The middle of an ascending slice, or the mean of the two in the middle; `None` if it is empty.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let (half, upper) = (sorted.len() / 2, *sorted.get(sorted.len() / 2)?);
    Some(if sorted.len() % 2 == 1 { upper } else { sorted[half - 1].midpoint(upper) })
}

/// The relative change from `old` to `new`; `None` where `old` is 0 or the result is not finite.
///
/// # Formula
/// `(new - old) / |old|`.
pub fn relative_delta(old: f64, new: f64) -> Option<f64> {
    Some((new - old) / old.abs()).filter(|d| d.is_finite())
}

/// A sum that carries its rounding error along (Neumaier).
pub(crate) fn sum(values: impl Iterator<Item = f64>) -> f64 {
    let (mut total, mut rest) = (0.0f64, 0.0f64);
    for x in values {
        let next = total + x;
        rest += if total.abs() >= x.abs() { (total - next) + x } else { (x - next) + total };
        total = next;
    }
    total + rest
}

/// Student's t at 97.5 % for some degrees of freedom, from the table to 30 and within 0.002 above.
fn t_975(freedom: usize) -> Option<f64> {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
        2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048,
        2.045, 2.042,
    ];
    Some(TABLE.get(freedom.checked_sub(1)?).copied().unwrap_or(1.96 + 2.4 / freedom as f64))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests state exact values")]
    use super::*;
    use proptest::prelude::*;

    fn p(values: &[f64], percent: f64) -> f64 {
        percentile(&sorted(values), percent).unwrap()
    }

    #[test]
    fn case_t01_percentiles() {
        let text = include_str!("../../fixtures/statistics/T01-percentiles.json");
        let sets: std::collections::BTreeMap<String, Vec<f64>> = serde_json::from_str(text).unwrap();
        let set = |name: &str| sets[name].as_slice();
        assert_eq!((p(set("a"), 99.0), p(set("a"), 50.0)), (30.0, 20.0));
        for percent in [0.0, 1.0, 50.0, 99.0, 100.0] {
            assert_eq!(p(set("b"), percent), 1.0);
        }
        assert_eq!(p(set("c"), 95.0), 2.0);
        assert_eq!((percentile(set("d"), 99.0), Summary::of(set("d"))), (None, None));
        assert_eq!(p(set("e"), 99.0), 100.0);
        assert_eq!((p(set("f"), 99.0), Summary::of(set("f")).unwrap().max.get()), (1.0, 1e7));
        let mark = |name: &str| Percentile::of(&sorted(set(name)), 99.0).unwrap().few_samples;
        assert_eq!((mark("a"), mark("e"), mark("f")), (true, false, false));
    }

    #[test]
    fn ranks_are_exact() {
        let hundred: Vec<f64> = (1..=100).map(f64::from).collect();
        for rank in 1..=100 {
            assert_eq!(p(&hundred, f64::from(rank)), f64::from(rank));
        }
        let thousand: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!((p(&thousand, 99.9), p(&thousand, 99.91)), (999.0, 1000.0));
        assert_eq!((percentile(&hundred, 100.1), percentile(&hundred, f64::NAN)), (None, None));
        assert_eq!(percentile(&[1.0, f64::INFINITY], 10.0), None);
        let few = |n: usize, percent| Percentile::of(&hundred[..n], percent).unwrap().few_samples;
        assert_eq!((few(99, 99.0), few(100, 99.0), few(19, 95.0), few(20, 95.0)), (true, false, true, false));
    }

    #[test]
    fn samples_needed_match_the_whole_table() {
        let text = include_str!("../../fixtures/statistics/percentile_min_samples.csv");
        let rows: Vec<_> =
            csv::Reader::from_reader(text.as_bytes()).into_records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 44);
        for row in rows {
            let percent = row[0].parse::<f64>().unwrap() * 100.0;
            let n = min_samples_to_claim(percent, row[2].parse().unwrap());
            assert_eq!(n, Some(row[3].parse().unwrap()), "{row:?}");
        }
        assert_eq!((min_samples_to_claim(100.0, 0), min_samples_to_claim(0.0, 0)), (None, None));
        assert!(min_samples_to_claim(50.0, 1000).unwrap() > 2000, "no underflow to 1001");
        let shown = [0, 3, 29, 59].map(|n| (share_shown_by_all_passing(n) * 100.0).round());
        assert_eq!(shown, [0.0, 37.0, 90.0, 95.0]);
    }

    #[test]
    fn case_t06_average_depends_on_the_sizes() {
        let text = include_str!("../../fixtures/statistics/T06-avg-depends-on-sizes.txt");
        let rows = text.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let cells: Vec<&str> = line.split_whitespace().collect();
            [cells[7], cells[11]].map(|cell| cell.parse::<f64>().unwrap())
        });
        let cells: Vec<f64> = rows.flatten().collect();
        let mean = |cells: &[f64]| (Summary::of(cells).unwrap().mean.get() * 100.0).round() / 100.0;
        assert_eq!((cells.len(), mean(&cells), mean(&cells[4..])), (10, 745.53, 814.55));
    }

    #[test]
    fn summary_by_hand_and_at_the_edges() {
        let s = Summary::of(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]).unwrap();
        assert_eq!((s.n, s.mean.get(), s.median.get(), s.min.get(), s.max.get()), (8, 5.0, 4.5, 2.0, 9.0));
        assert!((s.stddev.unwrap().get() - (32.0f64 / 7.0).sqrt()).abs() < 1e-15);
        let one = Summary::of(&[3.0]).unwrap();
        assert_eq!((one.stddev, one.cv, one.mean_interval()), (None, None, None));
        assert_eq!(Summary::of(&[-1.0, 1.0]).unwrap().cv, None);
        assert_eq!((Summary::of(&[]), Summary::of(&[1.0, f64::NAN])), (None, None));
        assert_eq!(Summary::of(&[f64::NEG_INFINITY]), None);
        let offset = Summary::of(&[1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0]).unwrap();
        assert!((offset.stddev.unwrap().get() - 30f64.sqrt()).abs() < 1e-9, "{offset:?}");
        assert_eq!(Summary::of(&[0.1; 7]).unwrap().stddev.unwrap().get(), 0.0);
        assert_eq!(Summary::of(&[f64::MAX; 3]).unwrap().mean.get(), f64::MAX);
        let three = Summary::of(&[9.0, 10.0, 11.0]).unwrap().mean_interval().unwrap();
        assert!((three.high.get() - 12.484).abs() < 1e-3, "{three:?}");
        for n in 1..100 {
            assert_eq!(Summary::of(&vec![0.7; n]).unwrap().mean.get(), 0.7, "{n} times 0.7");
        }
        assert_eq!((relative_delta(2.0, 1.5), relative_delta(0.0, 1.0)), (Some(-0.25), None));
        assert_eq!(relative_delta(-2.0, -1.0), Some(0.5));
    }

    #[test]
    fn finite_refuses_what_is_not() {
        for text in ["null", "NaN", "1e999", "\"1\""] {
            assert!(serde_json::from_str::<Finite>(text).is_err(), "{text}");
        }
        assert!(serde_yaml::from_str::<Finite>(".nan").is_err());
        assert!(serde_yaml::from_str::<Finite>("-.inf").is_err());
        assert_eq!(serde_json::to_string(&Finite::new(0.25).unwrap()).unwrap(), "0.25");
        assert_eq!(Finite::new(-0.0).unwrap().get().to_bits(), 0.0f64.to_bits());
        let s = Summary::of(&[1.0]).unwrap();
        let json = serde_json::to_string(&s).unwrap();
        assert_eq!(json, r#"{"n":1,"mean":1.0,"median":1.0,"min":1.0,"max":1.0}"#);
        assert_eq!(serde_json::from_str::<Summary>(&json).unwrap(), s);
        assert_eq!(Interval::between(f64::NAN, 1.0), None);
        assert_eq!(schemars::schema_for!(Finite).get("type").unwrap(), "number");
    }

    proptest! {
        #[test]
        fn percentiles_lie_within_and_never_fall(
            mut xs in prop::collection::vec(-1e9f64..1e9, 1..200), a in 0.0f64..=100.0, b in 0.0f64..=100.0,
        ) {
            xs.sort_unstable_by(f64::total_cmp);
            let (low, high) = (percentile(&xs, a.min(b)).unwrap(), percentile(&xs, a.max(b)).unwrap());
            prop_assert!(xs[0] <= low && low <= high && high <= xs[xs.len() - 1]);
            prop_assert!(xs.contains(&low));
        }

        #[test]
        fn summaries_are_never_nan(xs in prop::collection::vec(prop_oneof![20 => any::<f64>(), 1 => prop::num::f64::ANY], 0..20)) {
            let finite = !xs.is_empty() && xs.iter().all(|x| x.is_finite());
            prop_assert_eq!(Summary::of(&xs).is_some(), finite);
            if let Some(s) = Summary::of(&xs) {
                let all = [Some(s.mean), Some(s.median), s.stddev, Some(s.min), Some(s.max), s.cv];
                prop_assert!(all.iter().flatten().all(|x| x.get().is_finite()));
                prop_assert!(s.min <= s.mean && s.mean <= s.max && s.min <= s.median && s.median <= s.max);
            }
        }
    }
}
