//! The `storage` probe: what a folder's storage really does, checked byte by byte.
//!
//! Here: the options, the order of the phases, what is printed. Not here: the phases themselves
//! (`phases`), the bytes (`data`), the arithmetic (`series`).
//!
//! Invariant: each number says whether it went past the page cache, and nothing is left in the
//! folder, except when the probe is killed: then one folder `.planrun-storage-*` stays for the
//! caller to remove.

use std::io::Write;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::lines::Lines;
use super::root::{Missing, Root, Volume};
use super::{ProbeError, parse_spec};

mod data;
mod phases;
mod series;
mod target;

use data::SECTOR;
use phases::{Phase, Work};
use target::Target;

/// The width of a window of the bandwidth series, in seconds.
const WINDOW: f64 = 0.25;

/// Every metric of the `storage` probe: name, unit, meaning.
///
/// # Units
/// `B/s` bytes per second, `1/s` operations per second, `s` seconds, `1` a plain ratio.
///
/// All carry the labels `direct` (`true`: past the page cache), `cache` (how warm the host's cache
/// was: `cold`, `warm`, `unknown`), `jobs` and `block_bytes`; small files also `op`.
pub const STORAGE: &[(&str, &str, &str)] = &[
    ("write_bandwidth", "B/s", "bytes written in order over the time with the final flush"),
    ("write_bandwidth_window", "B/s", "the same in each window of 0.25 s, without the final flush"),
    ("write_last_to_first", "1", "rate of the last fifth of the write phase over that of the first"),
    ("fsync_seconds", "s", "time of the flush at the end of the write phase"),
    ("read_bandwidth", "B/s", "bytes read in order over the time"),
    ("read_bandwidth_window", "B/s", "the same in each window of 0.25 s"),
    ("read_iops", "1/s", "small reads at random places"),
    ("read_latency_p50", "s", "time of a small read, nearest rank; from 20 reads on"),
    ("read_latency_p95", "s", "time of a small read, nearest rank; from 200 reads on"),
    ("read_latency_p99", "s", "time of a small read, nearest rank; from 1000 reads on"),
    ("write_iops", "1/s", "small writes at random places; flushed one by one where not direct"),
    ("write_latency_p50", "s", "time of a small write, nearest rank; from 20 writes on"),
    ("write_latency_p95", "s", "time of a small write, nearest rank; from 200 writes on"),
    ("write_latency_p99", "s", "time of a small write, nearest rank; from 1000 writes on"),
    ("small_files_per_second", "1/s", "small files made and flushed, read, or removed, one by one"),
];

/// The options of the `storage` probe.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StorageSpec {
    /// The folder to measure; it must exist.
    pub path: String,
    /// The size of the big file; a multiple of `block_bytes`; default 1 GiB.
    pub size_bytes: u64,
    /// The length of a read or write in order; a multiple of 4096, at most 64 MiB; default 1 MiB.
    pub block_bytes: u64,
    /// The length of a read or write at a random place; a multiple of 4096 that divides
    /// `block_bytes`; default 4096.
    #[serde(alias = "random_block")]
    pub random_block_bytes: u64,
    /// The longest that each phase may take, in seconds; default 10.
    ///
    /// With direct I/O the phases on the big file take exactly that long, going round; through the
    /// page cache the phases in order end with the file.
    pub seconds: f64,
    /// How many small files are made; 0 for none; default 1000.
    pub small_files: u32,
    /// The size of a small file; at most 4 MiB; default 4096.
    pub small_file_bytes: u64,
    /// Which data is written and which places are drawn; default 1.
    pub seed: u64,
    /// How many threads read and write in order, each on its part; default 1.
    pub jobs: u32,
    /// How many threads read and write at random places; default 8.
    pub random_jobs: u32,
    /// False to go through the page cache even where direct I/O works.
    pub direct: bool,
}

impl Default for StorageSpec {
    fn default() -> Self {
        Self {
            path: String::new(),
            size_bytes: 1 << 30,
            block_bytes: 1 << 20,
            random_block_bytes: 4096,
            seconds: 10.0,
            small_files: 1000,
            small_file_bytes: 4096,
            seed: 1,
            jobs: 1,
            random_jobs: 8,
            direct: true,
        }
    }
}

impl StorageSpec {
    fn check(&self) -> Result<(), ProbeError> {
        let sector = SECTOR as u64;
        let reason = if self.path.is_empty() {
            "path is missing"
        } else if self.block_bytes == 0
            || !self.block_bytes.is_multiple_of(sector)
            || self.block_bytes > 64 << 20
        {
            "block_bytes must be a multiple of 4096, at most 64 MiB"
        } else if self.random_block_bytes == 0
            || !self.random_block_bytes.is_multiple_of(sector)
            || !self.block_bytes.is_multiple_of(self.random_block_bytes)
        {
            "random_block_bytes must be a multiple of 4096 that divides block_bytes"
        } else if self.size_bytes == 0 || !self.size_bytes.is_multiple_of(self.block_bytes) {
            "size_bytes must be a multiple of block_bytes"
        } else if !(self.seconds > 0.0 && self.seconds <= 86_400.0) {
            "seconds must lie above 0 and within a day"
        } else if !(1..=256).contains(&self.jobs) || !(1..=256).contains(&self.random_jobs) {
            "jobs and random_jobs must lie between 1 and 256"
        } else if self.small_file_bytes > 4 << 20 || self.small_files > 10_000_000 {
            "small files must be at most 4 MiB long and 10 million in number"
        } else {
            return Ok(());
        };
        Err(ProbeError::BadSpec { reason: reason.into() })
    }

    /// What may be on the disk at one time, in bytes; a small file takes at least a sector for
    /// itself and its entry.
    fn need(&self) -> u64 {
        let small = (self.small_file_bytes + 2 * SECTOR as u64).saturating_mul(self.small_files.into());
        self.size_bytes.saturating_add(small)
    }
}

/// The `storage` probe.
pub(super) fn run(spec: Value, out: &mut dyn Write) -> Result<(), ProbeError> {
    let spec: StorageSpec = parse_spec(spec)?;
    spec.check()?;
    let volume = Root::live().volume(&spec.path).map_err(|missing| match missing {
        Missing::NotThere => {
            target::io_error(format!("find {}", spec.path))(std::io::ErrorKind::NotFound.into())
        }
        Missing::Unreadable(reason) => {
            ProbeError::Refused { reason: format!("look at {}: {reason}", spec.path) }
        }
    })?;
    measure(&spec, &volume, &mut Lines::new(out))
}

fn measure(spec: &StorageSpec, volume: &Volume, lines: &mut Lines<'_>) -> Result<(), ProbeError> {
    target::check_room(volume, spec.need())?;
    let (target, notes) = Target::make(Path::new(&spec.path), volume, spec.direct)?;
    for note in notes {
        lines.note(&note)?;
    }
    if !target.direct {
        lines.note("read rates include the check of the data, and are a lower bound")?;
    }
    let mut work = Work::new(spec, &target);

    let write = work.write()?;
    let labels = labels_of(&target, spec.jobs, spec.block_bytes);
    lines.metric_with("write_bandwidth", write.bytes() / (write.seconds + write.fsync_seconds), &labels)?;
    lines.metric_with("fsync_seconds", write.fsync_seconds, &labels)?;
    windows(lines, "write_bandwidth_window", &write, &labels)?;
    match series::last_to_first(&write.ops, write.seconds) {
        Some(ratio) => lines.metric_with("write_last_to_first", ratio, &labels)?,
        None => lines.note("too few writes to tell the end of the write phase from its start")?,
    }
    lines.flush()?;

    let read = work.read()?;
    lines.metric_with("read_bandwidth", read.bytes() / read.seconds, &labels)?;
    windows(lines, "read_bandwidth_window", &read, &labels)?;
    lines.flush()?;

    let labels = labels_of(&target, spec.random_jobs, spec.random_block_bytes);
    random(lines, "read", &work.read_random()?, &labels)?;
    random(lines, "write", &work.write_random()?, &labels)?;

    if spec.small_files > 0 {
        for (op, phase) in work.small_files()? {
            // Made and removed through the page cache, but flushed; read after asking it to forget.
            let mut labels = labels_of(&target, 1, spec.small_file_bytes);
            labels[0].1 = "false".into();
            if labels[1].1 == "cold" {
                labels[1].1 = "unknown".into();
            }
            labels.push(("op", op.into()));
            lines.metric_with("small_files_per_second", phase.ops.len() as f64 / phase.seconds, &labels)?;
        }
    }
    target.remove()?;
    lines.flush()
}

type Labels = Vec<(&'static str, String)>;

impl Lines<'_> {
    /// Writes one of [`STORAGE`]; 0 operations in 0 s measure nothing and print nothing.
    fn metric_with(&mut self, name: &str, value: f64, labels: &Labels) -> Result<(), ProbeError> {
        let unit = STORAGE.iter().find(|(known, ..)| *known == name).map_or("1", |(_, unit, _)| unit);
        let labels: Vec<(&str, &str)> = labels.iter().map(|(key, label)| (*key, label.as_str())).collect();
        self.metric(name, value, unit, &labels)
    }
}

fn labels_of(target: &Target, jobs: u32, block: u64) -> Labels {
    vec![
        ("direct", target.direct.to_string()),
        ("cache", target.cache().to_owned()),
        ("jobs", jobs.to_string()),
        ("block_bytes", block.to_string()),
    ]
}

fn windows(lines: &mut Lines<'_>, name: &str, phase: &Phase, labels: &Labels) -> Result<(), ProbeError> {
    for rate in series::windows(&phase.ops, phase.seconds, WINDOW) {
        lines.metric_with(name, rate, labels)?;
    }
    Ok(())
}

fn random(lines: &mut Lines<'_>, what: &str, phase: &Phase, labels: &Labels) -> Result<(), ProbeError> {
    lines.metric_with(&format!("{what}_iops"), phase.ops.len() as f64 / phase.seconds, labels)?;
    let mut latencies: Vec<f64> = phase.ops.iter().map(|op| op.seconds).collect();
    latencies.sort_unstable_by(f64::total_cmp);
    for percent in [50, 95, 99] {
        match series::percentile(&latencies, percent) {
            Some(value) => lines.metric_with(&format!("{what}_latency_p{percent}"), value, labels)?,
            None => lines.note(&format!("{} {what}s are too few for p{percent}", latencies.len()))?,
        }
    }
    lines.flush()
}

#[cfg(test)]
mod tests;
