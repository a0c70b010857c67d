//! `storage`: how fast the disk behind a folder is, and whether it stays so.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StageSpec;
use crate::measure::{
    Better, Metric, Unit,
    quantity::{Bytes, Duration},
};

/// Options of `storage`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// The folder to measure; default the task's own folder on the host.
    #[serde(default)]
    pub path: Option<String>,
    /// How much is written.
    pub size: Bytes,
    /// How long each phase goes on at least; default as long as the size takes.
    #[serde(default)]
    pub at_least: Option<Duration>,
    /// How many small files are made.
    #[serde(default = "default_small_files")]
    pub small_files: u32,
    /// Data to send from the controller and fetch back over the real path.
    #[serde(default)]
    pub upload: Option<Bytes>,
}

fn default_small_files() -> u32 {
    1000
}

impl StageSpec for Storage {
    const KIND: &'static str = "storage";
    const DOC: &'static str = "how fast the disk behind a folder is, and whether it stays so";
    const METRICS: &'static [Metric] = &[
        Metric::new(
            "write_bandwidth",
            Unit::BYTES_PER_SECOND,
            Better::Higher,
            "sequential write, sync included",
        ),
        Metric::new("read_bandwidth", Unit::BYTES_PER_SECOND, Better::Higher, "sequential read"),
        Metric::new(
            "write_bandwidth_window",
            Unit::BYTES_PER_SECOND,
            Better::Higher,
            "sequential write over short windows",
        ),
        Metric::new(
            "read_bandwidth_window",
            Unit::BYTES_PER_SECOND,
            Better::Higher,
            "sequential read over short windows",
        ),
        Metric::new("write_iops", Unit::PER_SECOND, Better::Higher, "random 4 KiB writes"),
        Metric::new("read_iops", Unit::PER_SECOND, Better::Higher, "random 4 KiB reads"),
        Metric::new("write_latency_p50", Unit::SECONDS, Better::Lower, "median latency of random writes"),
        Metric::new(
            "write_latency_p99",
            Unit::SECONDS,
            Better::Lower,
            "99th percentile of random write latency",
        ),
        Metric::new("read_latency_p50", Unit::SECONDS, Better::Lower, "median latency of random reads"),
        Metric::new(
            "read_latency_p99",
            Unit::SECONDS,
            Better::Lower,
            "99th percentile of random read latency",
        ),
        Metric::new(
            "small_files_per_second",
            Unit::PER_SECOND,
            Better::Higher,
            "small files written, read and deleted",
        ),
        Metric::new(
            "write_last_to_first",
            Unit::RATIO,
            Better::Higher,
            "bandwidth of the last part of the write as a share of the first",
        ),
        Metric::new("fsync_seconds", Unit::SECONDS, Better::Lower, "time of the final sync"),
    ];

    fn at_least_seconds(&self) -> f64 {
        self.at_least.map_or(0.0, |d| d.seconds)
    }
}
