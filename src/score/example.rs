//! A journal of two CPU candidates over all stages of today, for tests of this room and of reports.
//!
//! Made by arithmetic, not by chance, so that every run gives the same lines. `fixtures/journals/` holds its text.

#![allow(clippy::unwrap_used, reason = "test code")]

use serde_json::{Value, json};

use super::{fold::Fold, fold::Observations, judgement::Judgement};
use crate::{
    measure::{Better, Finite, Labels, Unit},
    record::{
        Body, Cause, CheckOutcome, CheckResult, Expectation, Level, Outcome, OutcomeKind, PlanRef,
        PlannedTask, Record, RunStarted, SCHEMA, Series, TaskId,
    },
};

/// The judgement part of the plan, without its rubric.
const JUDGEMENT: &str = r#"
name: two-cpus
period: 2026-Q1
currency: CNY
platforms:
  rack:
    title: Rack Server
    tier: owned
    region: cn-north-1
    compliance: [mlps-3]
    promises: { vcpus: 64, memory: 256 GiB, exclusive: true, interconnect: numa }
    offers:
      owned: { rate: 6.2 CNY/instance-hour, granularity: 1s, seen_on: 2026-01-12, source: depreciation sheet }
    fees: { storage: 0.35 CNY/GB-month, egress: 0 CNY/GB, snapshot: 0.1 CNY/GB-month }
    endpoints: { main: { local: true } }
    declared:
      support.night_reply: { value: 3h40m, by: ops, seen_on: 2026-02-03, evidence: ticket 1234 }
      billing.itemised: { value: true, by: finance, seen_on: 2026-02-10, expires: 2026-12-31, evidence: January bill }
      billing.budget_alarm: { value: true, by: finance, seen_on: 2026-02-10, evidence: alarm of 11 February }
      billing.predictable_egress: { value: true, by: finance, seen_on: 2026-02-10, evidence: there is none }
  cloud:
    title: Cloud VM
    tier: rental
    region: eu-west
    promises: { vcpus: 16, memory: 64 GiB, exclusive: true }
    offers:
      on_demand: { rate: 4.8 CNY/instance-hour, granularity: 1h, minimum: 4h, seen_on: 2026-01-12, source: price page }
      weekly: { rate: 3.1 CNY/instance-hour, term: 7d, seen_on: 2026-01-12, source: quotation 118 }
      spot: { rate: 1.9 CNY/instance-hour, granularity: 1s, interruptions: 5%/h, seen_on: 2026-01-12, source: price page }
    fees: { storage: 0.7 CNY/GB-month }
    endpoints: { main: { offer: on_demand } }
    declared:
      support.night_reply: { value: 9h, by: ops, seen_on: 2026-02-03, evidence: ticket 1240 }
      billing.itemised: { value: true, by: finance, seen_on: 2025-01-10, expires: 2025-12-31, evidence: old bill }
stages:
  - { id: inventory, kind: inventory, workload: null, reference: false, options: "i1" }
  - { id: gpt-cpu, kind: throughput, workload: gpt, reference: true, options: "t1" }
  - { id: finetune, kind: throughput, workload: finetune, reference: false, options: "t2" }
  - { id: scaling, kind: scaling, workload: gpt, reference: true, options: "s1" }
  - { id: storage, kind: storage, workload: null, reference: false, options: "d1" }
  - { id: soak, kind: soak, workload: gpt, reference: true, options: "k1" }
  - { id: own, kind: command, workload: bench, reference: false, options: "c1" }
bind: { throughput: gpt-cpu }
preset: as-tabled
jobs:
  finetune-small:
    work: 2e9 tokens
    from: finetune
    workload: finetune
    gpus: 1
    storage: { size: 200 GB, for: 14d }
    egress: 30 GB
    labour: { hours: 2, rate: 400 CNY/hour }
  nightly:
    work: 5e7 tokens
    from: gpt-cpu
    gpus: 1
incumbent: null
rates: { USD: { to: CNY, rate: 7.1, seen_on: 2026-01-12, source: central bank } }
scenarios:
  prototyping: { objective: cost, job: nightly }
  finetuning: { objective: cost, job: finetune-small, require: { gpt-cpu.jitter: "<= 5 %" } }
  sensitive-data: { objective: points, preset: stability-first, require: { compliance: mlps-3 } }
headline: [score, gpt-cpu.tokens_per_second]
"#;

/// The judgement part with a rubric.
pub(crate) fn judgement(rubric: &str) -> Value {
    let rubric: super::rubric::Rubric = serde_yaml::from_str(rubric).unwrap();
    let text = format!("{JUDGEMENT}\nrubric: {}\n", serde_json::to_string(&rubric).unwrap());
    let judgement: Judgement = serde_yaml::from_str(&text).unwrap();
    serde_json::to_value(judgement).unwrap()
}

/// How fast one candidate is, so that tests can make it faster or slower.
#[derive(Clone, Copy)]
pub(crate) struct Speed {
    /// Tokens per second on one core.
    pub(crate) tokens: f64,
    /// Relative spread of repeats.
    pub(crate) spread: f64,
}

/// The lines of the journal.
pub(crate) fn records(rack: Speed, cloud: Speed) -> Vec<Record> {
    let mut out = Lines { records: Vec::new(), seconds: 0.0 };
    let tasks: Vec<PlannedTask> = ["rack", "cloud"].iter().flat_map(|p| planned(p)).collect();
    out.push(Body::RunStarted(Box::new(RunStarted {
        schema: SCHEMA,
        planrun: "0.1.0".into(),
        run: "20260302T081500Z-7f3a".into(),
        plan: PlanRef { name: "two-cpus".into(), period: "2026-Q1".into(), digest: "ab".repeat(32) },
        plan_text: "schema: 1\nname: two-cpus\n".into(),
        set: vec![],
        plan_path: "plans/two-cpus.yaml".into(),
        judgement: judgement(super::builtin::text("quarterly-100").unwrap()),
        tasks,
        quick: false,
    })));
    platform(&mut out, "rack", rack, 64, "AMD EPYC 9354", "6.8.0-45-generic");
    platform(&mut out, "cloud", cloud, 16, "Intel Xeon Platinum 8481C", "6.1.0-26-cloud-amd64");
    out.push(Body::RunEnded { complete: true, reason: "all that was planned has ended".into() });
    out.records
}

/// What the journal says as a whole.
pub(crate) fn observations() -> Observations {
    fold(&records(Speed { tokens: 5200.0, spread: 0.01 }, Speed { tokens: 3900.0, spread: 0.03 }))
}

/// Folds lines.
pub(crate) fn fold(records: &[Record]) -> Observations {
    let mut fold = Fold::new();
    for r in records {
        fold.push(r).unwrap();
    }
    fold.finish().unwrap()
}

struct Lines {
    records: Vec<Record>,
    seconds: f64,
}

impl Lines {
    fn push(&mut self, body: Body) {
        self.seconds += 0.25;
        let minutes = 15 + (self.seconds / 60.0) as u64;
        self.records.push(Record {
            seq: self.records.len() as u64,
            at: format!("2026-03-02T08:{:02}:{:02}Z", minutes % 60, (self.seconds % 60.0) as u64),
            since: Finite::new(self.seconds).unwrap(),
            body,
        });
    }

    fn samples(
        &mut self,
        task: &TaskId,
        name: &str,
        labels: &Labels,
        unit: Unit,
        better: Better,
        values: &[f64],
    ) {
        self.push(Body::Samples {
            task: task.clone(),
            series: Series { name: name.into(), labels: labels.clone(), unit, better },
            values: values.iter().map(|v| Finite::new(*v).unwrap()).collect(),
        });
    }

    fn end(&mut self, task: &TaskId, outcome: Outcome, seconds: f64, expectations: Vec<Expectation>) {
        self.push(Body::TaskEnded {
            task: task.clone(),
            attempt: 1,
            outcome,
            retried: false,
            seconds: Finite::new(seconds).unwrap(),
            expectations,
            log: Some(format!("logs/{}.log", task.0.replace(['/', '{', '}', '='], "_"))),
        });
    }
}

fn id(platform: &str, stage: &str, labels: &Labels, repeat: u32) -> TaskId {
    TaskId(format!("{platform}/{stage}{labels}#{repeat}"))
}

fn planned(platform: &str) -> Vec<PlannedTask> {
    let mut out = Vec::new();
    let mut add = |stage: &str, kind: &str, labels: Labels, repeats: u32| {
        for repeat in 1..=repeats {
            out.push(PlannedTask {
                id: id(platform, stage, &labels, repeat),
                platform: platform.into(),
                stage: stage.into(),
                kind: kind.into(),
                endpoint: Some("main".into()),
                labels: labels.clone(),
                repeat,
            });
        }
    };
    add("inventory", "inventory", Labels::none(), 1);
    add("gpt-cpu", "throughput", Labels::none(), 3);
    add("finetune", "throughput", Labels::none(), 1);
    for n in [1, 2, 4, 8] {
        add("scaling", "scaling", Labels::none().with("gpus", n), 1);
    }
    add("storage", "storage", Labels::none(), 1);
    add("soak", "soak", Labels::none(), 1);
    add("own", "command", Labels::none(), 1);
    out
}

/// A number between -1 and 1 that depends on `i` alone.
fn wobble(i: u32) -> f64 {
    f64::from(i.wrapping_mul(2_654_435_761) >> 16) / 32_768.0 - 1.0
}

fn platform(out: &mut Lines, name: &str, speed: Speed, cores: u32, cpu: &str, kernel: &str) {
    inventory(out, name, cores, cpu, kernel);
    for repeat in 1..=3 {
        let task = id(name, "gpt-cpu", &Labels::none(), repeat);
        let tokens = speed.tokens * (1.0 + speed.spread * (f64::from(repeat) - 2.0));
        training(out, &task, tokens, 200, repeat);
        let jitter = 0.012 * f64::from(repeat);
        out.samples(&task, "jitter", &Labels::none(), Unit::RATIO, Better::Lower, &[jitter]);
        if name == "rack" {
            out.samples(&task, "mfu", &Labels::none(), Unit::RATIO, Better::Higher, &[tokens / 8965.5]);
        }
        let expect = Expectation {
            metric: "jitter".into(),
            bound: "<= 3 %".into(),
            value: Finite::new(jitter * 100.0).ok(),
            met: Some(jitter <= 0.03),
        };
        out.end(&task, Outcome::ok(), 1810.0, vec![expect]);
    }
    let task = id(name, "finetune", &Labels::none(), 1);
    out.push(Body::TaskStarted { task: task.clone(), attempt: 1 });
    if name == "rack" {
        training(out, &task, speed.tokens * 0.62, 200, 9);
        out.end(&task, Outcome::ok(), 1825.0, vec![]);
    } else {
        out.samples(&task, "step_time", &Labels::none(), Unit::SECONDS, Better::Lower, &[1.9, 1.95, 1.92]);
        let reason = "the kernel killed finetune.py for want of memory after step 3 of 200";
        out.end(&task, Outcome::new(OutcomeKind::Failed, Cause::OomKilled, reason), 41.0, vec![]);
    }
    scaling(out, name, speed);
    storage(out, name);
    soak(out, name, speed);
    let task = id(name, "own", &Labels::none(), 1);
    out.push(Body::TaskStarted { task: task.clone(), attempt: 1 });
    let own = [("loss", "1", Better::Lower, 2.13), ("images|s", "images/s", Better::Higher, 812.5)];
    for (metric, unit, better, value) in own {
        out.samples(&task, metric, &Labels::none(), Unit::new(unit), better, &[value]);
    }
    out.samples(&task, "seconds", &Labels::none(), Unit::SECONDS, Better::Lower, &[63.2]);
    out.end(&task, Outcome::ok(), 63.4, vec![]);
}

fn inventory(out: &mut Lines, name: &str, cores: u32, cpu: &str, kernel: &str) {
    let task = id(name, "inventory", &Labels::none(), 1);
    out.push(Body::TaskStarted { task: task.clone(), attempt: 1 });
    for (fact, value) in [
        ("cpu.model", json!(cpu)),
        ("cpu.logical", json!(cores)),
        ("memory.total_bytes", json!(u64::from(cores) * 4 * 1_073_741_824)),
        ("os.kernel", json!(kernel)),
        ("os.arch", json!("x86_64")),
        ("nvidia.driver_version", Value::Null),
        ("container.kind", json!("none")),
    ] {
        out.push(Body::Fact { task: task.clone(), name: fact.into(), value });
    }
    let check = |id: &str, outcome, value: &str, promised: Option<&str>, reason: &str| CheckResult {
        id: id.into(),
        outcome,
        value: Some(value.into()),
        promised: promised.map(Into::into),
        reason: reason.into(),
        action: (outcome == CheckOutcome::Warn).then(|| "ask the seller for a host of its own".to_owned()),
    };
    let steal = if name == "rack" { CheckOutcome::Pass } else { CheckOutcome::Warn };
    let seen = if name == "rack" { "0 %" } else { "2.4 %" };
    for c in [
        check("vcpus", CheckOutcome::Pass, &cores.to_string(), Some(&cores.to_string()), "as promised"),
        check(
            "steal",
            steal,
            seen,
            Some("under 1 %"),
            &format!("the hypervisor took {seen} of processor time"),
        ),
        check("xid", CheckOutcome::NotObservable, "", None, "no NVIDIA driver is loaded"),
    ] {
        out.push(Body::Check { task: task.clone(), check: c });
    }
    out.samples(&task, "checks_passed", &Labels::none(), Unit::COUNT, Better::Higher, &[1.0]);
    out.samples(&task, "checks_failed", &Labels::none(), Unit::COUNT, Better::Lower, &[0.0]);
    out.end(&task, Outcome::ok(), 2.1, vec![]);
}

fn training(out: &mut Lines, task: &TaskId, tokens: f64, steps: u32, seed: u32) {
    out.push(Body::TaskStarted { task: task.clone(), attempt: 1 });
    let step = 8192.0 / tokens;
    let times: Vec<f64> = (0..steps).map(|i| step * (1.0 + 0.02 * wobble(i + 1000 * seed))).collect();
    for part in times.chunks(100) {
        out.samples(task, "step_time", &Labels::none(), Unit::SECONDS, Better::Lower, part);
    }
    let rate = Unit::TOKENS_PER_SECOND;
    out.samples(task, "tokens_per_second", &Labels::none(), rate, Better::Higher, &[tokens]);
    out.samples(task, "steady_seconds", &Labels::none(), Unit::SECONDS, Better::Neither, &[1800.0]);
}

fn scaling(out: &mut Lines, name: &str, speed: Speed) {
    let knee = if name == "rack" { 0.985_f64 } else { 0.93 };
    let mut last = 1.0;
    for n in [1_u32, 2, 4, 8] {
        let labels = Labels::none().with("gpus", n);
        let task = id(name, "scaling", &labels, 1);
        out.push(Body::TaskStarted { task: task.clone(), attempt: 1 });
        let efficiency = knee.powf(f64::from(n).log2());
        let speedup = f64::from(n) * efficiency;
        let rate = speed.tokens * speedup;
        out.samples(&task, "tokens_per_second", &labels, Unit::TOKENS_PER_SECOND, Better::Higher, &[rate]);
        out.samples(&task, "speedup", &labels, Unit::TIMES, Better::Higher, &[speedup]);
        out.samples(&task, "efficiency", &labels, Unit::RATIO, Better::Higher, &[efficiency]);
        if n > 1 {
            out.samples(&task, "increment", &labels, Unit::RATIO, Better::Higher, &[efficiency / last]);
        }
        last = efficiency;
        out.end(&task, Outcome::ok(), 620.0, vec![]);
    }
}

fn storage(out: &mut Lines, name: &str) {
    let task = id(name, "storage", &Labels::none(), 1);
    out.push(Body::TaskStarted { task: task.clone(), attempt: 1 });
    let factor = if name == "rack" { 4.2 } else { 1.0 };
    let none = Labels::none();
    let windows: Vec<f64> = (0..90).map(|i| 5.1e8 * factor * (1.0 + 0.03 * wobble(i))).collect();
    for (metric, value) in [
        ("write_bandwidth", 5.0993e8),
        ("read_bandwidth", 9.4e8),
        ("upload_bandwidth", 2.1e7),
        ("download_bandwidth", 4.4e7),
    ] {
        out.samples(&task, metric, &none, Unit::BYTES_PER_SECOND, Better::Higher, &[value * factor]);
    }
    out.samples(&task, "write_bandwidth_window", &none, Unit::BYTES_PER_SECOND, Better::Higher, &windows);
    out.samples(&task, "write_iops", &none, Unit::PER_SECOND, Better::Higher, &[11_800.0 * factor]);
    out.samples(&task, "read_latency_p99", &none, Unit::SECONDS, Better::Lower, &[0.0021 / factor]);
    out.end(&task, Outcome::ok(), 305.0, vec![]);
}

fn soak(out: &mut Lines, name: &str, speed: Speed) {
    let task = id(name, "soak", &Labels::none(), 1);
    out.push(Body::TaskStarted { task: task.clone(), attempt: 1 });
    let none = Labels::none();
    let (events, stability, watched) =
        if name == "rack" { (0.0, 0.998, 259_200.0) } else { (2.0, 0.971, 3600.0) };
    let times: Vec<f64> = (0..400).map(|i| 8192.0 / speed.tokens * (1.0 + 0.02 * wobble(i + 7))).collect();
    out.samples(&task, "step_time", &none, Unit::SECONDS, Better::Lower, &times);
    for (metric, value) in [("interruptions", 0.0), ("fluctuations", events), ("events", events)] {
        out.samples(&task, metric, &none, Unit::COUNT, Better::Lower, &[value]);
    }
    out.samples(&task, "stability", &none, Unit::RATIO, Better::Higher, &[stability]);
    out.samples(&task, "observed_seconds", &none, Unit::SECONDS, Better::Neither, &[watched]);
    if name != "rack" {
        let text = "watched for 1 h; three days show more".to_owned();
        out.push(Body::Note { task: Some(task.clone()), level: Level::Warning, text });
    }
    out.end(&task, Outcome::ok(), watched + 4.0, vec![]);
}
