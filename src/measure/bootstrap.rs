//! Resampling: a small seeded generator, autocorrelation, and bootstrap intervals.
//!
//! Not here: what the numbers mean, and which of them to resample (`steady`, `compare`).
//!
//! Invariant: the same numbers, seed and count of resamples give the same interval on every machine.

use crate::measure::summary::{Interval, median, percentile, sorted, sum};

/// How many resamples an interval takes unless told otherwise.
pub const RESAMPLES: usize = 1000;

/// The seed unless told otherwise; any number does, it only has to stay the same.
pub const SEED: u64 = 0x5EED_0F91_A9B2_4C31;

/// A block of a moving-block bootstrap holds this many autocorrelation lengths.
pub const BLOCK_LENGTHS: usize = 10;

/// Below this many blocks an interval would only look like one.
const MIN_BLOCKS: usize = 5;

/// The widest lag that is looked at before the series is made coarser.
const MAX_LAG: usize = 500;

/// A seeded generator of 64-bit numbers: small, fast, not for secrets.
///
/// # Source
/// `SplitMix64`: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Starts the sequence that belongs to a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to below `bound`; 0 if `bound` is 0. Its bias is under `bound / 2^64`.
    pub const fn below(&mut self, bound: usize) -> usize {
        ((self.next_u64() as u128 * bound as u128) >> 64) as usize
    }
}

/// The 95 % interval of the mean of an autocorrelated series, such as the step times of one run.
///
/// `None` if the series holds fewer than five blocks of that length, or a number that is not finite.
///
/// # Units
/// `block` counts points; the interval has the unit of the values.
///
/// # Formula
/// Moving blocks on a circle, so that each point is drawn equally often: each resample joins blocks with random
/// starts until it has as many points as the series (the last block is cut); then the percentiles 2.5 and 97.5
/// of the resampled means.
///
/// # Source
/// Künsch 1989; Politis and Romano 1992 for the circle.
pub fn mean_interval(values: &[f64], block: usize, resamples: usize, seed: u64) -> Option<Interval> {
    let (n, block) = (values.len(), block.max(1));
    if n / block < MIN_BLOCKS {
        return None;
    }
    // Sums of deviations from the mean stay small, so nothing is lost in the differences.
    let centre = sum(values.iter().copied()) / n as f64;
    let mut prefix = Vec::with_capacity(n + 1);
    let mut total = 0.0;
    prefix.push(total);
    for x in values {
        total += x - centre;
        prefix.push(total);
    }
    let mut random = SplitMix64::new(seed);
    let means: Vec<f64> = (0..resamples)
        .map(|_| {
            let (mut left, mut drawn) = (n, 0.0);
            while left > 0 {
                let (from, take) = (random.below(n), block.min(left));
                let to = from + take;
                drawn += if to <= n {
                    prefix[to] - prefix[from]
                } else {
                    prefix[n] - prefix[from] + prefix[to - n]
                };
                left -= take;
            }
            centre + drawn / n as f64
        })
        .collect();
    middle_95(&means)
}

/// The 95 % interval of `ln(median(new) / median(old))` for two sets of independent positive values.
///
/// `None` if a side has fewer than two values or one that is not positive and finite. Swapping the sides gives
/// exactly the negated interval.
///
/// # Units
/// Natural logarithm of a ratio.
///
/// # Formula
/// Percentile bootstrap: both sides are resampled with replacement. With few runs it is somewhat too narrow.
pub fn log_ratio_interval(old: &[f64], new: &[f64], resamples: usize, seed: u64) -> Option<Interval> {
    let usable = |side: &[f64]| side.len() >= 2 && side.iter().all(|x| x.is_finite() && *x > 0.0);
    if !usable(old) || !usable(new) {
        return None;
    }
    let (old, new) = (sorted(old), sorted(new));
    // One order of the sides whatever the caller's, so that the same draws serve both directions.
    let swapped = old.iter().map(|x| x.to_bits()).gt(new.iter().map(|x| x.to_bits()));
    let (first, second) = if swapped { (&new, &old) } else { (&old, &new) };
    let mut random = SplitMix64::new(seed);
    let mut draw = |side: &[f64]| {
        let picked: Vec<f64> = side.iter().map(|_| side[random.below(side.len())]).collect();
        median(&sorted(&picked)).map(f64::ln)
    };
    let logs: Vec<f64> =
        (0..resamples).map_while(|_| Some(draw(first)?).zip(draw(second)).map(|(a, b)| b - a)).collect();
    let interval = middle_95(&logs)?;
    let (low, high) = (interval.low.get(), interval.high.get());
    if swapped { Interval::between(-low, -high) } else { Some(interval) }
}

/// The middle 95 % of resampled values; the ranks of both ends lie equally far inside.
fn middle_95(resampled: &[f64]) -> Option<Interval> {
    let up = sorted(resampled);
    let down: Vec<f64> = up.iter().rev().map(|x| -x).collect();
    Interval::between(percentile(&up, 2.5)?, -percentile(&down, 2.5)?)
}

/// How many consecutive points carry about as much news as one independent point: at least 1.
///
/// `None` for fewer than 8 points, and where the series is correlated over so much of its length that no number
/// would be honest (a steady drift).
///
/// # Units
/// Points of the series.
///
/// # Formula
/// Integrated autocorrelation time `1 + 2 Σ ρ(k)`, summed up to the first window of 5 such times. Where lags
/// above 500 are needed the series is averaged over 8 points first, then over 64 and so on.
///
/// # Source
/// Sokal, "Monte Carlo methods in statistical mechanics", 1996, for the window.
pub fn autocorrelation_length(values: &[f64]) -> Option<f64> {
    let mut series = values.to_vec();
    let mut factor = 1.0;
    while series.len() >= 8 {
        if let Some(length) = integrated_time(&series) {
            return Some((length * factor).max(1.0));
        }
        series = series.chunks_exact(8).map(|part| sum(part.iter().copied()) / 8.0).collect();
        factor *= 8.0;
    }
    None
}

/// The integrated autocorrelation time by Sokal's window; `None` if the lags in reach do not hold the window.
fn integrated_time(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    let mean = sum(values.iter().copied()) / n;
    let deviations: Vec<f64> = values.iter().map(|x| x - mean).collect();
    let variance = deviations.iter().map(|d| d * d).sum::<f64>();
    // Equal numbers differ from their mean by rounding alone.
    if variance <= n * (mean * f64::EPSILON * 4.0).powi(2) {
        return Some(1.0);
    }
    let mut time = 1.0;
    for lag in 1..=MAX_LAG.min(values.len() / 4) {
        let products = deviations.iter().zip(&deviations[lag..]).map(|(a, b)| a * b);
        time += 2.0 * products.sum::<f64>() / variance;
        if lag as f64 >= 5.0 * time {
            return Some(time.max(1.0));
        }
    }
    // A short series ends before the window does; it is fine if its correlation has already died out.
    (values.len() < 40 && time <= 2.0).then_some(time.max(1.0))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests state exact values")]
    use super::*;

    /// Roughly normal noise of deviation 1: twelve uniform numbers less 6.
    fn noise(random: &mut SplitMix64) -> f64 {
        (0..12).map(|_| random.next_u64() as f64 / 2f64.powi(64)).sum::<f64>() - 6.0
    }

    /// `n` points that each keep the share `keep` of the one before.
    fn autoregressive(n: usize, keep: f64, seed: u64) -> Vec<f64> {
        let mut random = SplitMix64::new(seed);
        let mut x = 0.0;
        let mut next = || {
            x = keep * x + noise(&mut random);
            100.0 + x
        };
        (0..n).map(|_| next()).collect()
    }

    #[test]
    fn generator_matches_the_published_sequence() {
        let mut random = SplitMix64::new(1_234_567);
        let first: Vec<u64> = (0..3).map(|_| random.next_u64()).collect();
        let published = [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423];
        assert_eq!(first, published);
        let mut seen = [0usize; 5];
        (0..5000).for_each(|_| seen[random.below(5)] += 1);
        assert!(seen.iter().all(|n| (900..1100).contains(n)), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn autocorrelation_length_of_known_series() {
        // (1 + keep) / (1 - keep): 1, 3, 19, 199.
        let length = |n, keep| autocorrelation_length(&autoregressive(n, keep, 7)).unwrap();
        assert!((length(20_000, 0.0) - 1.0).abs() < 0.1);
        assert!((length(20_000, 0.5) - 3.0).abs() < 0.3);
        assert!((length(20_000, 0.9) - 19.0).abs() < 3.0);
        assert!((length(100_000, 0.99) - 199.0).abs() < 60.0, "beyond the widest lag");
        assert_eq!(autocorrelation_length(&[0.1; 100]), Some(1.0));
        assert_eq!(autocorrelation_length(&[1.0; 7]), None);
        let ramp: Vec<f64> = (0..1000).map(f64::from).collect();
        assert!(autocorrelation_length(&ramp).is_none_or(|length| length > 100.0));
    }

    #[test]
    fn mean_interval_covers_the_truth_for_correlated_points() {
        let covered = |block: usize| {
            let hit = |seed: &u64| {
                let values = autoregressive(1000, 0.8, *seed);
                mean_interval(&values, block, 200, SEED).unwrap().holds(100.0)
            };
            (0..200).filter(hit).count()
        };
        // Blocks of ten lengths (9 each) come close to 95 %; single points pretend to know three times as much.
        assert!(covered(90) > 168, "{}", covered(90));
        assert!(covered(1) < 130, "{}", covered(1));
    }

    #[test]
    fn mean_interval_at_the_edges() {
        let same = mean_interval(&[2.5; 50], 10, 100, 1).unwrap();
        assert_eq!((same.low.get(), same.high.get()), (2.5, 2.5));
        assert_eq!(mean_interval(&[2.5; 49], 10, 100, 1), None);
        // The first point is drawn as often as any: in up to 3 of 5 blocks.
        let mut first = [0.0; 50];
        first[0] = 1.0;
        assert!((mean_interval(&first, 10, 1000, 1).unwrap().high.get() - 0.06).abs() < 1e-12);
        let middle = middle_95(&(1..=1000).map(f64::from).collect::<Vec<_>>()).unwrap();
        assert_eq!((middle.low.get(), middle.high.get()), (25.0, 976.0));
        assert_eq!(mean_interval(&[], 10, 100, 1), None);
        assert_eq!(mean_interval(&[f64::NAN; 50], 10, 100, 1), None);
        let values = autoregressive(300, 0.5, 3);
        assert_eq!(mean_interval(&values, 30, 100, 1), mean_interval(&values, 30, 100, 1));
        assert_ne!(mean_interval(&values, 30, 100, 1), mean_interval(&values, 30, 100, 2));
    }

    #[test]
    fn log_ratio_interval_mirrors_exactly() {
        let (a, b) = ([10.0, 11.0, 10.4, 9.8, 10.1], [12.1, 12.9, 12.0, 11.7, 12.4]);
        let there = log_ratio_interval(&a, &b, 500, SEED).unwrap();
        let back = log_ratio_interval(&b, &a, 500, SEED).unwrap();
        assert_eq!((there.low.get(), there.high.get()), (-back.high.get(), -back.low.get()));
        assert!(there.holds((12.1f64 / 10.1).ln()) && there.low.get() > 0.0, "{there:?}");
        assert_eq!(log_ratio_interval(&a, &[0.0, 1.0], 500, SEED), None);
        assert_eq!(log_ratio_interval(&a, &[1.0], 500, SEED), None);
    }
}
