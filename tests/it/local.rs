//! The plan that comes with planrun: it runs on any machine, and its rubric rests on what it measures there.

use std::path::Path;

use crate::support::Sandbox;

/// Fewer steps than the plan has, and any steadiness: the point is what is measured, not how fast this machine is.
const SHORT: [&str; 10] = [
    "--set",
    "stages.throughput.repeat=1",
    "--set",
    "stages.throughput.throughput={ workload: gpt, steps: 30, steady_band: 100000 % }",
    "--set",
    "stages.scaling.scaling={ workload: gpt, gpus: [1, 2], mode: weak, steps: 30, steady_band: 100000 % }",
    "--set",
    "stages.soak.soak.duration=2s",
    "--set",
    "stages.storage.storage.duration=200ms",
];

#[test]
fn at_least_80_of_100_points_of_the_local_plan_are_measured_on_this_machine() {
    let s = Sandbox::new();
    let plan = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans/local.yaml");
    let out = s.out();
    let mut args = vec!["run", plan.to_str().unwrap(), "-o", out.to_str().unwrap()];
    args.extend(SHORT);
    s.planrun(&args).code(0);
    let card = s.scorecard();
    let platforms = card["platforms"].as_array().unwrap();
    assert_eq!(platforms.len(), 2);
    for platform in platforms {
        let coverage = platform["score"]["coverage"].as_f64().unwrap();
        assert!(coverage >= 0.8, "{}: {coverage}", platform["id"]);
        let criteria = platform["criteria"].as_array().unwrap();
        let inventory = criteria.iter().find(|c| c["id"] == "inventory").unwrap();
        // The clock is never observable, and what is not observable has not passed.
        assert_eq!(
            (&inventory["coverage"], &inventory["points"]["low"]),
            (&0.0.into(), &0.0.into()),
            "{inventory}"
        );
        let kinds: std::collections::BTreeSet<&str> =
            platform["metrics"].as_array().unwrap().iter().map(|m| m["kind"].as_str().unwrap()).collect();
        let every = ["command", "inventory", "scaling", "soak", "storage", "throughput"];
        assert_eq!(kinds.into_iter().collect::<Vec<_>>(), every, "every stage that needs no accelerator");
    }
    s.assert_nothing_left();
    // Judged again, offline, it comes to the same bytes.
    let (json, md) = (out.join("scorecard.json"), out.join("scorecard.md"));
    let before = [&json, &md].map(|f| std::fs::read(f).unwrap());
    s.planrun(&["score", out.to_str().unwrap()]).code(0);
    assert!(before == [&json, &md].map(|f| std::fs::read(f).unwrap()), "the same journal, other bytes");
}

#[test]
fn every_plan_in_the_repository_passes_check() {
    let s = Sandbox::new();
    let plans = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
    for plan in std::fs::read_dir(plans).unwrap().map(|e| e.unwrap().path()) {
        if plan.extension().is_some_and(|e| e == "yaml") {
            s.planrun(&["check", plan.to_str().unwrap()]).code(0);
        }
    }
}

/// Whoever copies the plan of the README gets a verdict and a cost, with nothing to add.
#[test]
fn the_plan_of_the_readme_runs_as_it_stands() {
    let readme = include_str!("../../README.md");
    let text = readme.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let s = Sandbox::new();
    let (plan, out) = (s.path("plan/readme.yaml"), s.out());
    std::fs::write(&plan, text).unwrap();
    s.planrun(&["run", plan.to_str().unwrap(), "-o", out.to_str().unwrap()]).code(0);
    let card = s.scorecard();
    for platform in card["platforms"].as_array().unwrap() {
        assert_eq!(platform["score"]["coverage"], 1.0, "{}", platform["score"]);
        let cost = &platform["costs"][0];
        assert!(cost["total"].is_string() && cost["lower_bound"].is_null(), "{cost}");
    }
    assert_eq!(card["scenarios"][0]["candidates"][0]["verdict"]["kind"], "recommended");
}
