//! A small stand-in for `measure::summary`, to be removed once that room has it: ascending copies, nearest-rank
//! percentiles, and what one set of numbers says.
//!
//! Not here: comparison of two sets, intervals, units.
//!
//! Invariant: what cannot be computed is `None`, never 0 and never NaN.

/// What one set of numbers says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Summary {
    pub(crate) n: usize,
    pub(crate) mean: f64,
    pub(crate) median: f64,
    pub(crate) stddev: Option<f64>,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

/// The numbers in ascending order.
pub(crate) fn sorted(values: &[f64]) -> Vec<f64> {
    let mut out = values.to_vec();
    out.sort_unstable_by(f64::total_cmp);
    out
}

/// The middle of an ascending slice, or the mean of the two in the middle.
pub(crate) fn median(sorted: &[f64]) -> Option<f64> {
    let upper = *sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 { upper } else { sorted[sorted.len() / 2 - 1].midpoint(upper) })
}

/// The nearest-rank percentile of an ascending slice: always one of its numbers.
///
/// # Formula
/// The number of rank `⌈percent × n / 100⌉`, counted from 1, in whole numbers.
pub(crate) fn percentile(sorted: &[f64], percent: u32) -> Option<f64> {
    let rank = (percent as usize * sorted.len()).div_ceil(100);
    sorted.get(rank.max(1) - 1).copied()
}

impl Summary {
    /// Summarises an ascending slice of finite numbers; `None` if it is empty.
    pub(crate) fn of_sorted(sorted: &[f64]) -> Option<Self> {
        let (min, max, n) = (*sorted.first()?, *sorted.last()?, sorted.len());
        let mean = (sorted.iter().map(|x| x / n as f64).sum::<f64>()).clamp(min, max);
        let variance =
            (n >= 2).then(|| sorted.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n as f64 - 1.0));
        Some(Self { n, mean, median: median(sorted)?, stddev: variance.map(f64::sqrt), min, max })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests state exact values")]
    use super::*;

    #[test]
    fn summary_by_hand() {
        let s = Summary::of_sorted(&sorted(&[9.0, 2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0])).unwrap();
        assert_eq!((s.n, s.mean, s.median, s.min, s.max), (8, 5.0, 4.5, 2.0, 9.0));
        assert!((s.stddev.unwrap() - (32.0_f64 / 7.0).sqrt()).abs() < 1e-12);
        assert_eq!((Summary::of_sorted(&[]), percentile(&[], 99)), (None, None));
        assert_eq!(Summary::of_sorted(&[1.0]).unwrap().stddev, None);
    }

    /// Nearest rank: the 99th percentile of three samples is the largest, of 101 the second largest.
    #[test]
    fn percentiles_are_samples() {
        assert_eq!(percentile(&[10.0, 20.0, 30.0], 99), Some(30.0));
        assert_eq!(percentile(&[1.0, 2.0], 95), Some(2.0));
        let most: Vec<f64> = (0..100).map(|_| 1.0).chain([1e7]).collect();
        assert_eq!(percentile(&most, 99), Some(1.0));
    }
}
