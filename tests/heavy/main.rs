//! Many hosts, and loud ones, over SSH: planrun's memory stays bounded.
//!
//! Not among the other integration tests: what keeps a machine busy for so long would disturb those that are about
//! leases. Cargo runs this binary by itself, and one test in it waits for the other.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::format_push_string, reason = "texts of plans are short")]

#[expect(dead_code, reason = "the other integration tests use the rest")]
#[path = "../it/support/mod.rs"]
mod support;

use std::{
    fs,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use support::{Ended, Sandbox, portable_agent, processes, sshd::Fleet};

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Prints one metric.
const METRIC: &str = r#"echo '{"metric": "m", "value": 2, "unit": "s"}'"#;

/// How long a run may take before a test gives up; far more than a busy machine needs.
const PATIENCE: Duration = Duration::from_mins(9);

/// A sandbox whose hosts get the small agent and run this script.
fn sandbox(script: &str) -> Sandbox {
    let command = serde_json::to_string(script).unwrap();
    Sandbox::new()
        .env("PLANRUN_AGENT_DIR", &portable_agent().0.display().to_string())
        .workload("a", &format!("command: {command}"))
        .stage("id: a, timeout: 8m, command: { workload: a }")
}

/// A run to its end, and the most memory that planrun itself had, in kB.
fn peak_of(s: &Sandbox) -> (Ended, u64) {
    let mut run = s.start_run(&[]);
    let (begun, mut peak) = (Instant::now(), 0);
    while run.child.try_wait().unwrap().is_none() {
        peak = peak.max(processes::peak_kb(run.pid()));
        assert!(begun.elapsed() < PATIENCE, "planrun did not end within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    (run.wait(), peak)
}

#[test]
fn a_hundred_and_twenty_eight_hosts_run_at_once() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let count = 128;
    let s = sandbox(METRIC);
    let (s, fleet) = Fleet::of(count, s);
    let (ended, peak) = peak_of(&s);
    ended.code(0);
    for i in 1..=count {
        let task = format!("h{i}/a");
        assert_eq!((s.outcome(&task).as_str(), s.samples(&task, "m")), ("ok/none", vec![2.0]), "{task}");
    }
    assert!(peak > 0 && peak < 200_000, "{peak} kB");
    fleet.assert_nothing_left(&s);
}

#[test]
fn a_flood_from_a_host_is_kept_and_does_not_grow_memory() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let bytes = 300_000_000;
    let line = "a line of a program that says a lot ".repeat(4);
    let s = sandbox(&format!("yes '{line}' | head -c {bytes}; echo; {METRIC}"));
    let (s, fleet) = Fleet::of(1, s);
    let (ended, peak) = peak_of(&s);
    ended.code(0);
    assert!(peak > 0 && peak < 100_000, "{peak} kB");
    assert_eq!(s.samples("h1/a", "m"), [2.0]);
    let log = fs::metadata(s.out().join("logs/h1/a/attempt-1.main.out")).unwrap();
    assert!(log.len() > bytes, "{} bytes", log.len());
    fleet.assert_nothing_left(&s);
}
