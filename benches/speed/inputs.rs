//! Inputs of fixed content: plans as large as `check` takes, and journals of runs that never were.

use std::{error::Error, fmt::Write as _, path::Path};

use planrun::{
    journal::Journal,
    measure::{Better, Finite, Labels, Unit},
    plan::{Loaded, Options, Unset, digest, load},
    record::{Body, Cause, Outcome, OutcomeKind, PlanRef, PlannedTask, RunStarted, SCHEMA, Series, TaskId},
};

const PLATFORMS: usize = 1_700;
const STAGES: usize = 2_000;
const WORKLOADS: usize = 200;

/// What is wrong with a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    /// Nothing.
    None,
    /// Faults of ten kinds, spread over the text.
    Sixty,
    /// No stage names a workload that there is.
    EveryName,
}

/// A plan of about 1 MB: nearly the largest that is read.
pub(crate) fn plan(faults: Faults) -> String {
    let mut text = String::with_capacity(1 << 20);
    text.push_str("schema: 1\nname: large\nperiod: 2026-Q1\ncurrency: CNY\nlimits: { stop_after: 90d }\n");
    text.push_str("x-fast: &fast { repeat: 2, timeout: 2h }\n");
    text.push_str("workloads:\n");
    for i in 0..WORKLOADS {
        let _ = writeln!(text, "  w{i:03}: {{ command: ./train --model {i}, unit: tokens }}");
    }
    text.push_str("platforms:\n");
    for i in 0..PLATFORMS {
        // 30 of them, of five kinds, and as many stages below.
        let fault = (faults == Faults::Sixty && i % 58 == 7).then_some(i / 58 % 5);
        let either = |kind: usize, wrong: &'static str, right: &'static str| {
            if fault == Some(kind) { wrong } else { right }
        };
        let _ = writeln!(
            text,
            "  p{i:04}:\n    {}: Platform {i}\n    tier: {}\n    region: r{}\n    promises: {{ gpu: NVIDIA H100, gpus: {} }}\n    \
             offers: {{ now: {{ rate: {}, seen_on: 2026-01-12, source: list }} }}\n    \
             fees: {{ storage: 0.7 CNY/GB-month, egress: 0.8 CNY/GB }}\n    \
             endpoints: {{ main: {{ ssh: root@h{i}.example, gpus: 8, offer: {} }} }}\n    \
             declared: {{ billing.itemised: {{ value: true, by: ops, seen_on: 2026-01-12, evidence: t/{i} }} }}",
            either(0, "titel", "title"),
            either(1, "rentl", "rental"),
            i % 40,
            either(2, "\"8\"", "8"),
            either(3, "25.8 CNY", "25.8 CNY/gpu-hour"),
            either(4, "nwo", "now"),
        );
    }
    text.push_str("stages:\n");
    for i in 0..STAGES {
        let fault = (faults == Faults::Sixty && i % 68 == 7).then_some(i / 68 % 5);
        let either = |kind: usize, wrong: &'static str, right: &'static str| {
            if fault == Some(kind) { wrong } else { right }
        };
        let workload = if faults == Faults::EveryName || fault == Some(0) { "v" } else { "w" };
        let _ = write!(text, "  - {{ id: s{i:04}, <<: *fast, ");
        // Each waits for the one behind it, so that the last comes first.
        if i + 1 < STAGES {
            let _ = write!(text, "{}: [{}{:04}], ", either(1, "need", "needs"), either(2, "z", "s"), i + 1);
        }
        let _ = writeln!(
            text,
            "expect: {{ {}: \"{}\" }}, throughput: {{ workload: {workload}{:03}, steps: 500 }} }}",
            either(3, "tokens_per_secnd", "tokens_per_second"),
            either(4, ">= 7 apples", ">= 7 tokens/s"),
            i % WORKLOADS,
        );
    }
    text.push_str("bind: { throughput: s0000 }\njobs:\n  big: { work: 1e12 tokens, from: s0000, gpus: 8 }\n");
    text.push_str("scenarios: { cheap: { objective: cost, job: big } }\n");
    text
}

/// Nine levels of lists that hold the level before nine times.
pub(crate) fn bomb() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for i in 1..9 {
        let before = format!("*a{}", i - 1);
        let _ = writeln!(text, "a{i}: &a{i} [{}]", vec![before; 9].join(", "));
    }
    text
}

/// A run: how much of what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) platforms: usize,
    pub(crate) stages: usize,
    pub(crate) series: usize,
    pub(crate) samples: usize,
    /// Samples in one line of the journal.
    pub(crate) per_line: usize,
    /// Two runs of one shape and other seeds differ in their values.
    pub(crate) seed: u64,
}

impl Shape {
    /// A million samples in 40 series.
    pub(crate) const MILLION: Self =
        Self { platforms: 4, stages: 5, series: 2, samples: 25_000, per_line: 1_000, seed: 1 };
    /// 10,000 series of five samples.
    pub(crate) const WIDE: Self =
        Self { platforms: 4, stages: 5, series: 500, samples: 5, per_line: 5, seed: 1 };

    fn plan(&self) -> String {
        let mut text = "schema: 1\nname: wide\nperiod: 2026-Q1\ncurrency: CNY\n".to_owned();
        text.push_str("workloads: { w: { command: ./w, unit: tokens, reader: json-lines } }\nplatforms:\n");
        for p in 0..self.platforms {
            let _ = writeln!(
                text,
                "  p{p}: {{ offers: {{ now: {{ rate: {}.5 CNY/gpu-hour, seen_on: 2026-01-12, source: list }} }}, \
                 endpoints: {{ main: {{ ssh: h{p}.example, gpus: 8 }} }} }}",
                p + 10
            );
        }
        text.push_str("stages:\n");
        for s in 0..self.stages {
            let _ = writeln!(text, "  - {{ id: s{s}, command: {{ workload: w }} }}");
        }
        text.push_str(
            "rubric:\n  name: one\n  criteria:\n    speed:\n      title: Speed\n      weight: 100\n      parts:\n        \
             - points: 100\n          metric: s0.tokens_per_second\n          \
             rule: { linear: { zero_at: 0 tokens/s, full_at: 2000 tokens/s } }\n\
             jobs: { big: { work: 1e12 tokens, from: s0, gpus: 8 } }\n\
             scenarios: { cheap: { objective: cost, job: big }, best: { objective: points } }\n\
             headline: [score, cost.big, s0.tokens_per_second, s1.tokens_per_second]\n",
        );
        text
    }

    fn series(k: usize) -> Series {
        if k == 0 {
            return Series {
                name: "tokens_per_second".to_owned(),
                labels: Labels::none(),
                unit: Unit::TOKENS_PER_SECOND,
                better: Better::Higher,
            };
        }
        Series {
            name: format!("bus_bandwidth_{}", k / 10),
            labels: Labels::none().with("op", "all_reduce").with("bytes", 1_u64 << (k % 10 + 10)),
            unit: Unit::BYTES_PER_SECOND,
            better: Better::Higher,
        }
    }
}

/// Writes the journal of a run into a new folder.
pub(crate) fn journal(dir: &Path, shape: &Shape) -> Result<(), Box<dyn Error>> {
    std::fs::create_dir(dir)?;
    let text = shape.plan();
    let Loaded { plan: Some(plan), rubric: Some(rubric), .. } = load(
        "wide",
        &text,
        &Options {
            set: Vec::new(),
            env: &|_| None,
            unset: Unset::Error,
            read_file: &|_| Err("there is none".to_owned()),
            has_file: &|_| true,
            builtin_rubric: &|_| None,
            today: None,
        },
    ) else {
        return Err("the plan of the run is wrong".into());
    };
    let mut tasks = Vec::new();
    for p in 0..shape.platforms {
        for s in 0..shape.stages {
            tasks.push(PlannedTask {
                id: TaskId(format!("p{p}/s{s}")),
                platform: format!("p{p}"),
                stage: format!("s{s}"),
                kind: "command".to_owned(),
                endpoint: Some("main".to_owned()),
                labels: Labels::none(),
                repeat: 1,
            });
        }
    }
    let first = RunStarted {
        schema: SCHEMA,
        planrun: env!("CARGO_PKG_VERSION").to_owned(),
        run: format!("bench-{}", shape.seed),
        plan: PlanRef { name: plan.name.clone(), period: plan.period.clone(), digest: digest(&text, &[]) },
        plan_text: text.clone(),
        set: Vec::new(),
        plan_path: "wide.yaml".to_owned(),
        judgement: serde_json::to_value(plan.judgement(rubric))?,
        tasks: tasks.clone(),
        quick: false,
    };
    let mut journal = Journal::create(dir, first, Vec::new())?;
    let mut noise = Noise(shape.seed);
    for PlannedTask { id: task, .. } in tasks {
        journal.append(Body::TaskStarted { task: task.clone(), attempt: 1 })?;
        let series: Vec<Series> = (0..shape.series).map(Shape::series).collect();
        for _ in 0..shape.samples / shape.per_line {
            for series in &series {
                let values = (0..shape.per_line).map(|_| Finite::new(1_000.0 + 30.0 * noise.next()));
                let values = values.collect::<Result<Vec<Finite>, _>>()?;
                journal.append(Body::Samples { task: task.clone(), series: series.clone(), values })?;
            }
        }
        journal.append(Body::TaskEnded {
            task,
            attempt: 1,
            outcome: Outcome::new(OutcomeKind::Ok, Cause::None, ""),
            retried: false,
            seconds: Finite::new(60.0)?,
            expectations: Vec::new(),
            log: None,
        })?;
    }
    journal.append(Body::RunEnded { complete: true, reason: "all done".to_owned() })?;
    Ok(())
}

/// Numbers from 0 to 1 that look random and never change (splitmix64).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}
