//! The `telemetry` probe: how busy the host is, sampled beside a workload.
//!
//! Here: the metrics, the loop, the end. Not here: where the counters stand (`sources`), and what
//! accelerators do (they need the vendor's library).
//!
//! Invariant: a rate comes from two readings of one counter and the measured time between them; a
//! counter that stepped back or vanished gives no sample, never a negative or a zero one.

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write};
use std::os::fd::AsFd as _;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;

use super::lines::Lines;
use super::root::Root;
use super::{ProbeError, parse_spec};

mod sources;

use sources::{Pair, Reading, Sources};

/// Every metric of the `telemetry` probe: name, unit, meaning.
///
/// # Units
/// `1` is a share or a plain number, `B` bytes, `B/s` bytes per second.
pub const TELEMETRY: &[(&str, &str, &str)] = &[
    (
        "cpu_use",
        "1",
        "processor time used, as a share of the cores allowed; label `scope`: `cgroup` or `host`",
    ),
    ("cpu_steal", "1", "share of the host's processor time that the hypervisor took"),
    ("cpu_throttled", "1", "share of the quota periods in which the control group was throttled"),
    ("cpu_throttled_time", "1", "throttled seconds per second; threads add up, so it can exceed 1"),
    ("memory_used", "B", "memory in use without caches that can be dropped; label `scope`"),
    ("memory_available", "B", "memory that programs can still get; label `scope`"),
    ("disk_read", "B/s", "bytes read from all block devices, each counted once"),
    ("disk_write", "B/s", "bytes written to all block devices, each counted once"),
    ("network_rx", "B/s", "bytes received by all real interfaces, or by all but loopback where none is real"),
    ("network_tx", "B/s", "bytes sent by the same interfaces"),
    ("load", "count", "tasks that run or wait, averaged over a minute by the kernel"),
];

/// The options of the `telemetry` probe.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TelemetrySpec {
    /// The time between two samples, in seconds; default 1, at least 0.05.
    pub interval_seconds: f64,
    /// Ends after this many samples and does not watch stdin; default: until stdin closes.
    pub samples: Option<u64>,
    /// The folder below which `/proc` and `/sys` are read; default `/`.
    pub root: String,
}

impl Default for TelemetrySpec {
    fn default() -> Self {
        Self { interval_seconds: 1.0, samples: None, root: "/".into() }
    }
}

/// The `telemetry` probe: one line per metric and interval, until stdin closes.
pub(super) fn run(spec: Value, out: &mut dyn Write) -> Result<(), ProbeError> {
    let spec: TelemetrySpec = parse_spec(spec)?;
    if !(0.05..=3600.0).contains(&spec.interval_seconds) {
        return Err(ProbeError::BadSpec { reason: "interval_seconds must lie between 0.05 and 3600".into() });
    }
    let root = Root::at(spec.root.as_str());
    let mut clock = LiveClock { start: Instant::now(), end: watch_stdin(spec.samples.is_none()) };
    let interval = Duration::from_secs_f64(spec.interval_seconds);
    sample(&root, interval, spec.samples.unwrap_or(u64::MAX), &mut clock, &mut Lines::new(out))
}

/// A channel that closes when stdin does; one that never closes when stdin is not to be watched.
fn watch_stdin(watch: bool) -> (Option<mpsc::Sender<()>>, mpsc::Receiver<()>) {
    let (send, receive) = mpsc::channel();
    if !watch {
        return (Some(send), receive);
    }
    // Past the standard buffer and its lock, which the caller may still hold: what comes is not
    // read for its content.
    if let Ok(stdin) = io::stdin().as_fd().try_clone_to_owned() {
        std::thread::spawn(move || {
            let mut stdin = std::fs::File::from(stdin);
            let mut buffer = [0; 1024];
            while stdin.read(&mut buffer).is_ok_and(|count| count > 0) {}
            drop(send);
        });
    }
    (None, receive)
}

/// Tells the time and waits; a trait so that tests need no time.
trait Clock {
    /// Time since the start, by the monotonic clock.
    fn now(&self) -> Duration;
    /// Waits until then; false when the probe is to end.
    fn wait_until(&mut self, then: Duration) -> bool;
}

struct LiveClock {
    start: Instant,
    end: (Option<mpsc::Sender<()>>, mpsc::Receiver<()>),
}

impl Clock for LiveClock {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn wait_until(&mut self, then: Duration) -> bool {
        let pause = then.saturating_sub(self.now());
        self.end.1.recv_timeout(pause) == Err(mpsc::RecvTimeoutError::Timeout)
    }
}

fn sample(
    root: &Root,
    interval: Duration,
    samples: u64,
    clock: &mut dyn Clock,
    lines: &mut Lines<'_>,
) -> Result<(), ProbeError> {
    let sources = Sources::find(root);
    lines.note(&sources.describe())?;
    let mut before = sources.read(root);
    for reason in &before.unreadable {
        lines.note(&format!("not observable: {reason}"))?;
    }
    lines.flush()?;
    let mut read_at = clock.now();
    let mut next = read_at + interval;
    for _ in 0..samples {
        if !clock.wait_until(next) {
            break;
        }
        let after = sources.read(root);
        let now = clock.now();
        for metric in metrics(&sources, &before, &after, now.saturating_sub(read_at)) {
            let labels: &[(&str, &str)] = match metric.scope {
                Some(scope) => &[("scope", scope)],
                None => &[],
            };
            lines.metric(metric.name, metric.value, unit_of(metric.name), labels)?;
        }
        lines.flush()?;
        (before, read_at) = (after, now);
        // After a pause of the whole machine, the missed samples are not made up for.
        next = if next + interval > now { next + interval } else { now + interval };
    }
    Ok(())
}

fn unit_of(name: &str) -> &'static str {
    TELEMETRY.iter().find(|(known, ..)| *known == name).map_or("1", |(_, unit, _)| unit)
}

/// One number of one interval.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Metric {
    name: &'static str,
    value: f64,
    scope: Option<&'static str>,
}

/// What two readings and the time between them tell.
fn metrics(sources: &Sources, before: &Reading, after: &Reading, elapsed: Duration) -> Vec<Metric> {
    let seconds = elapsed.as_secs_f64();
    let mut all = Vec::new();
    let mut push = |name, value: Option<f64>, scope| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            all.push(Metric { name, value, scope });
        }
    };
    let times = before.times.zip(after.times);
    let total = times.and_then(|(b, a)| step(b.total, a.total)).filter(|total| *total > 0.0);
    let cpu_use = if let Some(cores) = sources.allowed_cores() {
        let used = before.cpu_seconds.zip(after.cpu_seconds).and_then(|(b, a)| step(b, a));
        used.filter(|_| seconds > 0.0).map(|used| used / seconds / cores)
    } else {
        let busy = times.and_then(|(b, a)| step(b.total - b.idle - b.steal, a.total - a.idle - a.steal));
        busy.zip(total).map(|(busy, total)| busy / total)
    };
    push("cpu_use", cpu_use, Some(sources.cpu_scope()));
    let steal = times.and_then(|(b, a)| step(b.steal, a.steal));
    push("cpu_steal", steal.zip(total).map(|(steal, total)| steal / total), None);

    if let Some((b, a)) = before.throttling.zip(after.throttling) {
        let between = |b: Option<f64>, a: Option<f64>| b.zip(a).and_then(|(b, a)| step(b, a));
        let periods = between(b.periods, a.periods).filter(|periods| *periods > 0.0);
        let throttled = between(b.throttled_periods, a.throttled_periods);
        push("cpu_throttled", throttled.zip(periods).map(|(throttled, periods)| throttled / periods), None);
        let time = between(b.seconds, a.seconds).filter(|_| seconds > 0.0);
        push("cpu_throttled_time", time.map(|time| time / seconds), None);
    }

    let memory = after.memory;
    push("memory_used", memory.map(|memory| memory.used), Some(sources.memory_scope()));
    push("memory_available", memory.map(|memory| memory.available), Some(sources.memory_scope()));
    let rate = |b: &Option<BTreeMap<String, Pair>>, a: &Option<BTreeMap<String, Pair>>| {
        let (first, second) = total_step(b.as_ref()?, a.as_ref()?)?;
        (seconds > 0.0).then_some((first / seconds, second / seconds))
    };
    let disk = rate(&before.disks, &after.disks);
    push("disk_read", disk.map(|(read, _)| read), None);
    push("disk_write", disk.map(|(_, write)| write), None);
    let network = rate(&before.networks, &after.networks);
    push("network_rx", network.map(|(rx, _)| rx), None);
    push("network_tx", network.map(|(_, tx)| tx), None);
    push("load", after.load, None);
    all
}

/// How far a counter advanced; `None` when it stepped back.
fn step(before: f64, after: f64) -> Option<f64> {
    (after >= before).then_some(after - before)
}

/// How far the counters of all devices advanced together, over the devices of both readings.
fn total_step(before: &BTreeMap<String, Pair>, after: &BTreeMap<String, Pair>) -> Option<Pair> {
    let mut sum = (0.0, 0.0);
    for (name, (first, second)) in before {
        let Some((first_after, second_after)) = after.get(name) else { continue };
        sum.0 += step(*first, *first_after)?;
        sum.1 += step(*second, *second_after)?;
    }
    Some(sum)
}

#[cfg(test)]
mod tests;
