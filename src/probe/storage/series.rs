//! What a list of operations tells: rates over time, percentiles, the end against the start.
//!
//! Here: arithmetic on times and bytes. Not here: any file, any clock.
//!
//! Invariant: a number is only given where there are enough operations for it.

/// One read or write.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Op {
    /// When it ended, in seconds since the start of the phase.
    pub(super) end: f64,
    /// How long it took, in seconds.
    pub(super) seconds: f64,
    /// How many bytes it moved.
    pub(super) bytes: f64,
}

/// The bytes moved between two moments; an operation's bytes are spread evenly over its time.
pub(super) fn bytes_between(ops: &[Op], from: f64, to: f64) -> f64 {
    ops.iter().map(|op| share(op, from, to) * op.bytes).sum()
}

fn share(op: &Op, from: f64, to: f64) -> f64 {
    let start = op.end - op.seconds;
    if op.seconds <= 0.0 {
        return if (from..to).contains(&op.end) { 1.0 } else { 0.0 };
    }
    ((op.end.min(to) - start.max(from)) / op.seconds).max(0.0)
}

/// The rate in every full window of `width` seconds, in bytes per second.
pub(super) fn windows(ops: &[Op], seconds: f64, width: f64) -> Vec<f64> {
    let count = (seconds / width).floor() as usize;
    let mut bytes = vec![0.0; count];
    for op in ops {
        let start = (op.end - op.seconds).max(0.0);
        let first = (start / width) as usize;
        let last = (op.end / width) as usize;
        for (window, sum) in bytes.iter_mut().enumerate().take(last + 1).skip(first) {
            *sum += share(op, window as f64 * width, (window + 1) as f64 * width) * op.bytes;
        }
    }
    bytes.into_iter().map(|bytes| bytes / width).collect()
}

/// The rate in the last fifth of the time over that in the first fifth.
///
/// Below 1 where a burst credit or a write cache ran out. `None` with fewer than 50 operations.
pub(super) fn last_to_first(ops: &[Op], seconds: f64) -> Option<f64> {
    if ops.len() < 50 || seconds <= 0.0 {
        return None;
    }
    let part = seconds / 5.0;
    let first = bytes_between(ops, 0.0, part);
    (first > 0.0).then(|| bytes_between(ops, seconds - part, seconds) / first)
}

/// The nearest-rank percentile of sorted values: the smallest with at least that share at or below.
///
/// `None` with fewer than 10 values above it: 20 for p50, 200 for p95, 1000 for p99.
///
/// # Formula
/// `sorted[ceil(percent / 100 * n) - 1]`
pub(super) fn percentile(sorted: &[f64], percent: usize) -> Option<f64> {
    let n = sorted.len();
    if n * (100 - percent) < 1000 {
        return None;
    }
    sorted.get((percent * n).div_ceil(100).saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` operations of a second each, one after the other.
    fn ops(bytes: impl Fn(usize) -> f64, count: usize) -> Vec<Op> {
        (0..count).map(|i| Op { end: (i + 1) as f64, seconds: 1.0, bytes: bytes(i) }).collect()
    }

    #[test]
    fn bytes_are_spread_over_an_operations_time() {
        let two = ops(|i| [100.0, 300.0][i], 2);
        assert!((bytes_between(&two, 0.5, 1.5) - 200.0).abs() < 1e-9);
        // Windows of 0.5 s; the last, partial one is dropped.
        assert_eq!(windows(&two, 1.9, 0.5), [100.0, 100.0, 300.0]);
        let instant = [Op { end: 0.6, seconds: 0.0, bytes: 8.0 }];
        assert_eq!(windows(&instant, 1.0, 0.5), [0.0, 16.0]);
        assert!(windows(&two, 0.1, 0.25).is_empty());
    }

    #[test]
    fn all_bytes_land_in_some_window() {
        let many = ops(|i| (i % 7) as f64, 40);
        let sum: f64 = windows(&many, 40.0, 0.25).iter().map(|rate| rate * 0.25).sum();
        assert!((sum - many.iter().map(|op| op.bytes).sum::<f64>()).abs() < 1e-6);
    }

    #[test]
    fn an_exhausted_burst_shows() {
        // 100 MB/s for half of the time, then 20.
        let burst = ops(|i| if i < 50 { 100e6 } else { 20e6 }, 100);
        assert!((last_to_first(&burst, 100.0).unwrap() - 0.2).abs() < 1e-9);
        assert!((last_to_first(&ops(|_| 5.0, 100), 100.0).unwrap() - 1.0).abs() < 1e-9);
        assert_eq!(last_to_first(&ops(|_| 5.0, 49), 49.0), None);
    }

    #[test]
    fn percentiles_are_nearest_rank_and_need_values() {
        let thousand: Vec<f64> = (1..=1000).map(f64::from).collect();
        assert_eq!(percentile(&thousand, 50), Some(500.0));
        assert_eq!(percentile(&thousand, 95), Some(950.0));
        assert_eq!(percentile(&thousand, 99), Some(990.0));
        assert_eq!(percentile(&thousand[..999], 99), None);
        // ceil(0.95 * 201) = 191
        assert_eq!(percentile(&thousand[..201], 95), Some(191.0));
        assert_eq!(percentile(&thousand[..19], 50), None);
        assert_eq!(percentile(&[], 50), None);
    }
}
