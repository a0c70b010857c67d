//! `storage`: how fast the disk behind a folder is, and whether it stays so.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    StageSpec,
    drive::{Drive, Found, Tell},
    host::{Run, check_probe, printable},
};
use crate::{
    measure::{
        Better, Metric, Unit,
        quantity::{Bytes, Duration},
    },
    outcome::{Cause, Outcome, OutcomeKind},
    readers::{JsonLines, Reader as _, Said},
    wire::Stream,
};

/// No more than this is written in a rehearsal.
const QUICK_BYTES: f64 = 32.0 * 1024.0 * 1024.0;

/// How long each phase goes on when the plan does not say, in seconds.
const PHASE_SECONDS: f64 = 10.0;

/// Phases that go on for their time: write and read in order, write and read at random places.
const PHASES: f64 = 4.0;

/// Options of `storage`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Storage {
    /// The folder to measure; default the task's own folder on the host.
    #[serde(default)]
    pub path: Option<String>,
    /// How much is written.
    pub size: Bytes,
    /// How long each phase goes on; default 10 s. Past the burst credit of a cloud disk it takes 20 minutes and more.
    #[serde(default)]
    pub duration: Option<Duration>,
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

impl Storage {
    fn seconds(&self) -> f64 {
        self.duration.map_or(PHASE_SECONDS, |d| d.seconds)
    }
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
            "write_latency_p95",
            Unit::SECONDS,
            Better::Lower,
            "95th percentile of random write latency",
        ),
        Metric::new(
            "write_latency_p99",
            Unit::SECONDS,
            Better::Lower,
            "99th percentile of random write latency",
        ),
        Metric::new("read_latency_p50", Unit::SECONDS, Better::Lower, "median latency of random reads"),
        Metric::new(
            "read_latency_p95",
            Unit::SECONDS,
            Better::Lower,
            "95th percentile of random read latency",
        ),
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
            Better::Neither,
            "bandwidth of the last part of the write as a share of the first: 1 is steady, either way off is not",
        ),
        Metric::new("fsync_seconds", Unit::SECONDS, Better::Lower, "time of the final sync"),
    ];

    fn at_least_seconds(&self) -> f64 {
        self.seconds() * PHASES
    }

    async fn drive(&self, cx: &mut Drive<'_>) -> Result<(), Outcome> {
        let size = if cx.quick { self.size.bytes.min(QUICK_BYTES) } else { self.size.bytes };
        let path = self.path.clone().unwrap_or_else(|| cx.host.folder.clone());
        let spec = serde_json::json!({
            "path": path,
            "size_bytes": size as u64,
            "seconds": if cx.quick { self.seconds().min(0.5) } else { self.seconds() },
            "small_files": if cx.quick { self.small_files.min(50) } else { self.small_files },
        });
        let (mut said, mut reader, queue) = (Vec::new(), JsonLines, cx.tell.clone());
        let mut found = 0_usize;
        // Killed in the middle, the probe leaves its folder behind.
        let undo = r#"rm -rf -- "$0"/.planrun-storage-"$PLANRUN_RUN"-*"#;
        let undo = ["/bin/sh", "-c", undo, &path].map(str::to_owned).to_vec();
        let run = Run { undo: Some(undo), ..Run::probe("main", "storage", &spec) };
        let ended = cx
            .host
            .run(run, |line| {
                if line.stream != Stream::Out {
                    return;
                }
                reader.line(line.text, &mut said);
                for what in said.drain(..) {
                    match what {
                        Said::Number { name, value, labels, .. } => {
                            let Some(metric) = Self::METRICS.iter().find(|m| m.name == name) else {
                                continue;
                            };
                            found += 1;
                            let (unit, better) = (metric.unit.clone(), metric.better);
                            let _ = queue.send(Tell::Found(Found {
                                name,
                                labels,
                                unit,
                                better,
                                values: vec![value],
                            }));
                        }
                        Said::Note(text) => drop(queue.send(Tell::Note(true, printable(&text)))),
                        Said::Fact { name, value: Some(value), .. } => {
                            drop(queue.send(Tell::Fact(name, value)));
                        }
                        _ => {}
                    }
                }
            })
            .await?;
        check_probe(&ended, "the storage probe")?;
        if self.upload.is_some() {
            cx.warn("upload was not measured: this version sends no data set");
        }
        if found == 0 {
            return Err(Outcome::new(
                OutcomeKind::Failed,
                Cause::NoStepRecorded,
                "the storage probe measured nothing",
            ));
        }
        Ok(())
    }
}
