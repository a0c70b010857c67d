//! `storage`: how fast the disk behind a folder is, and whether it stays so.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    StageSpec,
    drive::{Drive, Found, Tell},
    host::{Run, check_probe},
};
use crate::{
    measure::{
        Better, Labels, Metric, Unit,
        quantity::{Bytes, Duration},
    },
    outcome::{Cause, CheckOutcome, CheckResult, Outcome, OutcomeKind, printable},
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
        let mut iops = Iops::default();
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
                            iops.hear(&name, value.get(), &labels);
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
        if let Some(promised) = cx.site.promises.disk_iops {
            cx.say(Tell::Check(iops.against(promised)));
        }
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

/// Random reads and writes, to be held against a promise.
#[derive(Default)]
struct Iops {
    read: Option<f64>,
    write: Option<f64>,
    cached: bool,
    at_once: String,
}

impl Iops {
    fn hear(&mut self, name: &str, value: f64, labels: &Labels) {
        match name {
            "read_iops" => self.read = Some(value),
            "write_iops" => self.write = Some(value),
            _ => return,
        }
        let label = |key: &str| labels.0.get(key).map_or("", String::as_str);
        self.cached |= label("direct") != "true";
        label("jobs").clone_into(&mut self.at_once);
    }

    /// What few operations at once cannot reach is no broken promise: it takes a deeper queue to tell.
    fn against(&self, promised: u32) -> CheckResult {
        let (outcome, value, reason) = match (self.read, self.write) {
            (Some(_), Some(_)) if self.cached => {
                let reason = "the page cache took part: nothing is known of the disk";
                (CheckOutcome::NotObservable, None, reason.to_owned())
            }
            (Some(read), Some(write)) => {
                let least = read.min(write).round();
                let seen = format!(
                    "{} reads and {} writes/s, {} at once",
                    read.round(),
                    write.round(),
                    self.at_once
                );
                if least >= f64::from(promised) {
                    (CheckOutcome::Pass, Some(least), seen)
                } else {
                    let reason = format!("{seen}: less than promised; a deeper queue may reach more");
                    (CheckOutcome::Warn, Some(least), reason)
                }
            }
            _ => {
                let reason = "random reads and writes were not both measured";
                (CheckOutcome::NotObservable, None, reason.to_owned())
            }
        };
        CheckResult {
            id: "disk_iops".to_owned(),
            outcome,
            value: value.map(|v| v.to_string()),
            promised: Some(promised.to_string()),
            reason,
            action: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_of_operations_is_held_against_what_the_disk_did() {
        let labels = |direct: &str| Labels::none().with("direct", direct).with("jobs", 8);
        let heard = |read: f64, write: f64, direct: &str| {
            let mut iops = Iops::default();
            iops.hear("read_iops", read, &labels(direct));
            iops.hear("write_iops", write, &labels(direct));
            iops.hear("read_bandwidth", 1.0, &Labels::none());
            iops.against(10_000)
        };
        let met = heard(12_000.4, 10_000.0, "true");
        assert_eq!((met.outcome, met.value.as_deref()), (CheckOutcome::Pass, Some("10000")));
        let less = heard(12_000.0, 9_000.0, "true");
        assert_eq!((less.outcome, less.value.as_deref()), (CheckOutcome::Warn, Some("9000")));
        let cached = heard(900_000.0, 900_000.0, "false");
        assert_eq!((cached.outcome, cached.value), (CheckOutcome::NotObservable, None));
        assert_eq!(Iops::default().against(1).outcome, CheckOutcome::NotObservable);
    }
}
