use super::*;
use crate::probe::root::recorded::host;

/// A clock that a recording's ticks drive: every wait takes half a second and shows the next files.
struct Ticks<'a> {
    root: &'a Root,
    now: Duration,
    left: u32,
}

impl Clock for Ticks<'_> {
    fn now(&self) -> Duration {
        self.now
    }

    fn wait_until(&mut self, _then: Duration) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        self.now += Duration::from_millis(500);
        self.root.system().wait(Duration::ZERO);
        true
    }
}

/// The lines of a run over so many ticks.
fn lines_of(case: &str, ticks: u32) -> Vec<Value> {
    let root = host(case);
    let mut out = Vec::new();
    let mut clock = Ticks { root: &root, now: Duration::from_secs(7), left: ticks };
    sample(&root, Duration::from_secs(1), u64::MAX, &mut clock, &mut Lines::new(&mut out)).unwrap();
    String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn values(lines: &[Value], name: &str) -> Vec<f64> {
    lines.iter().filter(|line| line["metric"] == name).map(|line| line["value"].as_f64().unwrap()).collect()
}

fn near(found: &[f64], expected: &[f64]) {
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-9 * b.abs().max(1.0);
    assert!(
        found.len() == expected.len() && found.iter().zip(expected).all(close),
        "{found:?} is not {expected:?}"
    );
}

#[test]
fn one_reading_is_no_rate() {
    let lines = lines_of("bare-metal", 0);
    assert!(lines.iter().all(|line| line.get("metric").is_none()), "{lines:?}");
}

#[test]
fn whole_disks_and_real_interfaces_count_once() {
    let lines = lines_of("bare-metal", 1);
    // (3048 - 1000) sectors of 512 B in 0.5 s; partitions, md, loop and hidden paths do not count.
    near(&values(&lines, "disk_read"), &[2048.0 * 512.0 / 0.5]);
    near(&values(&lines, "disk_write"), &[(4096.0 + 2048.0) * 512.0 / 0.5]);
    // eno1 2000 and ibp26s0 1000 received; docker0 repeats.
    near(&values(&lines, "network_rx"), &[3000.0 / 0.5]);
    near(&values(&lines, "network_tx"), &[1000.0 / 0.5]);
    // 5 of 25 ticks busy.
    near(&values(&lines, "cpu_use"), &[0.2]);
    near(&values(&lines, "cpu_steal"), &[0.0]);
    near(&values(&lines, "load"), &[4.25]);
    let kilobytes = 2_113_462_272.0_f64;
    near(&values(&lines, "memory_available"), &[(kilobytes * 3.0 / 4.0).floor() * 1024.0]);
    let cpu = lines.iter().find(|line| line["metric"] == "cpu_use").unwrap();
    assert_eq!(cpu["labels"]["scope"], "host");
}

#[test]
fn a_counter_that_steps_back_gives_no_sample() {
    let lines = lines_of("bare-metal", 2);
    assert_eq!(values(&lines, "disk_read").len(), 1, "only the first interval");
    near(&values(&lines, "network_rx"), &[6000.0, 2000.0]);
    assert_eq!(values(&lines, "cpu_use").len(), 1, "no tick passed in the second");
    // The whole processor's steal stepped back.
    assert!(values(&lines_of("v1-quota", 1), "cpu_steal").is_empty());
    for line in lines.iter().filter_map(|line| line["value"].as_f64()) {
        assert!(line >= 0.0);
    }
}

#[test]
fn a_group_is_held_against_its_own_quota() {
    // v1: 3.75 s of 7.5 cores in 0.5 s is all of them; 4 of 10 periods and 0.25 s throttled.
    let lines = lines_of("v1-quota", 1);
    near(&values(&lines, "cpu_use"), &[3.75 / 0.5 / 7.5]);
    near(&values(&lines, "cpu_throttled"), &[0.4]);
    near(&values(&lines, "cpu_throttled_time"), &[0.5]);
    near(&values(&lines, "memory_used"), &[15.0 * 1024.0_f64.powi(3)]);
    near(&values(&lines, "network_rx"), &[600.0 / 0.5]);
    // v2, quota two levels up: 3 s of 4 cores in 0.5 s, 5 of 10 periods, 0.5 s throttled.
    let lines = lines_of("v2-nested", 1);
    near(&values(&lines, "cpu_use"), &[3.0 / 0.5 / 4.0]);
    near(&values(&lines, "cpu_throttled"), &[0.5]);
    near(&values(&lines, "cpu_throttled_time"), &[1.0]);
    // 4 GiB charged, 1 GiB of it cache, of 16 GiB.
    near(&values(&lines, "memory_used"), &[3.0 * 1024.0_f64.powi(3)]);
    near(&values(&lines, "memory_available"), &[13.0 * 1024.0_f64.powi(3)]);
    let cpu = lines.iter().find(|line| line["metric"] == "cpu_use").unwrap();
    assert_eq!(cpu["labels"]["scope"], "cgroup");
}

#[test]
fn what_cannot_be_read_is_named_and_gives_no_line() {
    let lines = lines_of("hostile", 1);
    assert!(lines.iter().all(|line| line.get("metric").is_none()), "{lines:?}");
    let notes: Vec<&str> = lines.iter().filter_map(|line| line["note"].as_str()).collect();
    for what in ["memory", "disks", "network", "load"] {
        assert!(
            notes.iter().any(|note| note.starts_with(&format!("not observable: {what}"))),
            "{what}: {notes:?}"
        );
    }
}

#[test]
fn every_metric_has_its_unit_from_the_list() {
    let lines = [lines_of("bare-metal", 1), lines_of("v1-quota", 1)].concat();
    for line in lines.iter().filter(|line| line.get("metric").is_some()) {
        let (_, unit, _) = TELEMETRY.iter().find(|(name, ..)| line["metric"] == *name).expect("listed");
        assert_eq!(line["unit"], *unit);
    }
    for (name, ..) in TELEMETRY {
        assert!(lines.iter().any(|line| line["metric"] == *name), "{name} is never printed");
    }
}

#[test]
fn the_end_of_stdin_ends_the_wait() {
    let (send, receive) = mpsc::channel();
    let mut clock = LiveClock { start: Instant::now(), end: (None, receive) };
    assert!(clock.wait_until(Duration::ZERO), "still open");
    drop(send);
    assert!(!clock.wait_until(Duration::from_mins(10)), "closed: no waiting");
}

#[test]
fn the_running_host_gives_the_samples_asked_for() {
    let mut out = Vec::new();
    run(serde_json::json!({"interval_seconds": 0.05, "samples": 2}), &mut out).unwrap();
    let lines: Vec<Value> =
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(values(&lines, "load").len(), 2);
    assert_eq!(
        run(serde_json::json!({"interval_seconds": 0}), &mut Vec::new()).unwrap_err().cause(),
        "bad_spec"
    );
}
