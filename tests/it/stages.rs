//! What the stages make of what a program says: the numbers by hand, and numbers that cannot be.

use crate::support::{Sandbox, entries};

/// A shell line that prints these steps at once, each of 10 ms.
fn steps(from: u32, to: u32, more: &str) -> String {
    format!(r#"seq {from} {to} | sed 's/.*/{{"step": &, "seconds": 0.01{more}}}/'"#)
}

/// A sandbox with one endpoint that says that it has so many accelerators, and a workload that is this script.
fn on_gpus(gpus: u32, more: &str, script: &str) -> Sandbox {
    let script = serde_json::to_string(script).unwrap();
    Sandbox::new()
        .platform("one", &format!("{{ main: {{ local: true, gpus: {gpus} }} }}{more}"))
        .workload("w", &format!("command: {script}, unit: tokens, flops_per_unit: 1e9"))
}

const SCALING: &str = "id: s, timeout: 100s, scaling: { workload: w, gpus: [1, 2], mode: weak, steps: 40 }";
const THROUGHPUT: &str = "id: t, timeout: 100s, throughput: { workload: w, steps: 40 }";

/// The last value of a series of a task.
#[track_caller]
fn last(s: &Sandbox, task: &str, name: &str) -> f64 {
    *s.samples(task, name).last().unwrap_or_else(|| panic!("no {name} of {task}: {:#?}", s.journal()))
}

#[track_caller]
fn near(value: f64, wanted: f64) {
    assert!((value - wanted).abs() < 1e-9, "{value}, not {wanted}");
}

/// The same tokens in the same time on two as on one: a speedup of 1, an efficiency of one half.
#[test]
fn scaling_counts_the_work_that_the_program_counts() {
    let s = on_gpus(2, "", &steps(1, 60, r#", "tokens": 100"#)).stage(SCALING);
    s.run(&[]).code(0);
    for (task, speedup, efficiency) in [("one/s{gpus=1}", 1.0, 1.0), ("one/s{gpus=2}", 1.0, 0.5)] {
        near(last(&s, task, "tokens_per_second"), 10_000.0);
        near(last(&s, task, "speedup"), speedup);
        near(last(&s, task, "efficiency"), efficiency);
    }
    near(last(&s, "one/s{gpus=2}", "increment"), 0.5);
    assert_eq!(s.samples("one/s{gpus=1}", "increment"), [] as [f64; 0], "there is none before the first");
}

/// Three times the tokens on two: more than two can do.
#[test]
fn more_than_linear_is_implausible() {
    let script = format!("t=100; [ $PLANRUN_GPUS = 2 ] && t=300; {}", steps(1, 60, r#", "tokens": '$t'"#));
    let s = on_gpus(2, "", &script).stage(SCALING);
    s.run(&[]).code(3);
    assert_eq!(s.outcome("one/s{gpus=1}"), "ok/none");
    assert_eq!(s.outcome("one/s{gpus=2}"), "implausible/impossible", "{}", s.reason("one/s{gpus=2}"));
    assert!(s.reason("one/s{gpus=2}").contains("efficiency of 1.50 at 2"), "{}", s.reason("one/s{gpus=2}"));
    let card = s.scorecard();
    let metrics = card["platforms"][0]["metrics"].as_array().unwrap();
    assert!(metrics.iter().all(|m| m["labels"]["gpus"] != "2"), "no result of what cannot be");
}

#[test]
fn numbers_that_cannot_be_are_implausible() {
    let peaks = ", peaks: { bf16: { tflops: 1, source: a test } }";
    let tokens = r#", "tokens": 100"#;
    for (script, peaks, outcome, reason) in [
        (steps(1, 60, r#", "tokens": 100, "world": 3"#), "", "implausible/world_size", "3 ranks ran"),
        (steps(1, 60, tokens).replace("0.01", "1"), "", "implausible/impossible", "add up to 60.0 s"),
        // 10,000 tokens/s of 1 GFLOP each on a device of 1 TFLOP/s.
        (steps(1, 60, tokens), peaks, "implausible/impossible", "10.00 of the peak of 1 TFLOP/s"),
        (steps(1, 60, tokens), "", "ok/none", ""),
    ] {
        let s = on_gpus(1, peaks, &script).stage(THROUGHPUT);
        s.run(&[]).code(if outcome == "ok/none" { 0 } else { 3 });
        assert_eq!(s.outcome("one/t"), outcome, "{}", s.reason("one/t"));
        assert!(s.reason("one/t").contains(reason), "{}", s.reason("one/t"));
        let results = s.scorecard()["platforms"][0]["metrics"].as_array().unwrap().clone();
        let told = results.iter().any(|m| m["name"] == "tokens_per_second");
        assert_eq!(told, outcome == "ok/none", "{results:#?}");
    }
}

/// 40 steps, then again from 31: one restart, and 31 to 40 were made twice.
#[test]
fn a_restart_inside_the_program_is_seen() {
    let tokens = r#", "tokens": 100"#;
    let script = format!("{}; {}", steps(1, 40, tokens), steps(31, 70, tokens));
    let s = on_gpus(1, "", &script).stage(&THROUGHPUT.replace("steps: 40", "steps: 40, steady_band: 10 %"));
    s.run(&[]).code(0);
    near(last(&s, "one/t", "restarts"), 1.0);
    near(last(&s, "one/t", "redone_steps"), 10.0);
    // All lines came at once: when they came tells nothing about time.
    assert_eq!(s.samples("one/t", "goodput"), [] as [f64; 0]);
    let said = s.notes().into_iter().filter(|n| n.contains("steady within 10 %, not within 2 %")).count();
    assert_eq!(said, 1, "{:?}", s.notes());
    let metrics = s.scorecard()["platforms"][0]["metrics"].as_array().unwrap().clone();
    assert!(metrics.iter().any(|m| m["name"] == "tokens_per_second" && m["short"] == true), "{metrics:#?}");
    near(last(&s, "one/t", "tokens_per_second"), 10_000.0);
}

/// A program that trains for a while and then hangs: what is missing at the end is missing.
#[test]
fn a_soak_sees_a_program_that_hangs_at_its_end() {
    let script = "i=0; while [ $i -lt 30 ]; do i=$((i + 1)); sleep 0.02; \
                  echo \"{\\\"step\\\": $i, \\\"seconds\\\": 0.02}\"; done; sleep 3";
    let s = on_gpus(1, "", script).stage("id: k, timeout: 100s, soak: { workload: w, duration: 3s }");
    s.run(&[]).code(0);
    assert!(last(&s, "one/k", "interruptions") >= 1.0);
    let stability = last(&s, "one/k", "stability");
    assert!(stability > 0.0 && stability < 0.9, "{stability}");
    assert_eq!(s.samples("one/k", "step_time").len(), 30);
    s.assert_nothing_left();
}

/// A job that breaks down after 30 steps and goes on from its checkpoint at 20: an interruption, not the end.
#[test]
fn a_soak_goes_on_after_a_break_down() {
    let script = "i=0; [ -e $SEEN/was ] && i=20; n=0; while [ $n -lt 30 ]; do i=$((i + 1)); n=$((n + 1)); sleep 0.02; \
                  echo \"{\\\"step\\\": $i, \\\"seconds\\\": 0.02}\"; done; [ -e $SEEN/was ] && sleep 2; touch $SEEN/was; sleep 1; exit 1";
    let s = on_gpus(1, "", script).stage("id: k, timeout: 100s, soak: { workload: w, duration: 4s }");
    s.run(&[]).code(0);
    near(last(&s, "one/k", "restarts"), 1.0);
    near(last(&s, "one/k", "redone_steps"), 10.0);
    assert_eq!(s.samples("one/k", "step_time").len(), 60);
    assert!(last(&s, "one/k", "silent_seconds") >= 1.0);
    let goodput = last(&s, "one/k", "goodput");
    assert!(goodput > 0.0 && goodput < 50.0 / 3.0, "50 steps in 4 s and the waits: {goodput}");
    assert!(last(&s, "one/k", "interruptions") >= 1.0);
}

#[test]
fn storage_measures_and_cleans_up() {
    let s = Sandbox::new();
    let data = s.path("data");
    std::fs::create_dir(&data).unwrap();
    let s = s.platform("one", "{ main: { local: true, promises: { disk_iops: 1 } } }");
    let options = format!("size: 4 MiB, duration: 100ms, small_files: 20, path: {}", data.display());
    let s = s.stage(&format!("id: d, timeout: 100s, storage: {{ {options} }}"));
    s.run(&[]).code(0);
    for name in ["write_bandwidth", "read_bandwidth", "write_iops", "read_iops", "small_files_per_second"] {
        assert!(last(&s, "one/d", name) > 0.0, "{name}");
    }
    let checks = s.scorecard()["platforms"][0]["checks"].clone();
    assert_eq!((&checks[0]["id"], checks.as_array().unwrap().len()), (&"disk_iops".into(), 1), "{checks}");
    assert_ne!(checks[0]["outcome"], "fail");
    assert!(!checks[0]["reason"].as_str().unwrap().contains("no storage stage"), "{checks}");
    assert_eq!(entries(&data), Vec::<String>::new());
    s.assert_nothing_left();
}

#[test]
fn promises_that_the_machine_does_not_keep_fail_their_checks() {
    let promises = "promises: { vcpus: 100000, gpus: 4, gpu: NVIDIA H100 80GB HBM3, memory: 900 TB, disk: 900000 TB, \
                    memory_per_gpu: 80 GB, interconnect: nvlink, network: rdma, exclusive: true, disk_iops: 50000 }";
    let s = Sandbox::new()
        .platform("one", &format!("{{ main: {{ local: true, {promises} }} }}"))
        .stage("inventory: {}");
    s.run(&[]).code(0);
    let card = s.scorecard();
    let checks = card["platforms"][0]["checks"].as_array().unwrap();
    let check =
        |id: &str| checks.iter().find(|c| c["id"] == id).unwrap_or_else(|| panic!("no {id}: {checks:#?}"));
    for (id, promised) in
        [("cpu_quota", "100000"), ("gpu_count", "4"), ("memory_limit", ""), ("disk_space", "")]
    {
        let check = check(id);
        assert_eq!(check["outcome"], "fail", "{check}");
        assert!(check["promised"].as_str().unwrap().contains(promised), "{check}");
    }
    // A name that nobody can read is no failure to keep a promise, and no pass.
    assert_ne!(check("gpu_name")["outcome"], "pass");
    for id in ["memory_per_gpu", "interconnect", "network", "exclusive", "disk_iops"] {
        assert_eq!(check(id)["outcome"], "not_observable", "{}", check(id));
    }
    assert!(last(&s, "one/inventory", "checks_not_observable") >= 4.0);
    assert!(last(&s, "one/inventory", "checks_failed") >= 4.0);
}
