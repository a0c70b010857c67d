//! `throughput`: how fast a workload trains in its steady state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StageSpec;
use crate::{
    findings::At,
    measure::{Better, Metric, Unit, quantity::Duration},
};

/// Options of `throughput`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Throughput {
    /// The workload to run, by its name under `workloads`.
    pub workload: At<String>,
    /// How many accelerators it uses.
    #[serde(default = "one")]
    pub gpus: u32,
    /// How many steps at least.
    #[serde(default = "two_hundred")]
    pub steps: u32,
    /// How long at least, beside the steps.
    #[serde(default)]
    pub at_least: Option<Duration>,
}

fn one() -> u32 {
    1
}

fn two_hundred() -> u32 {
    200
}

impl StageSpec for Throughput {
    const KIND: &'static str = "throughput";
    const DOC: &'static str = "how fast a workload trains in its steady state";
    const METRICS: &'static [Metric] = &METRICS;

    fn workload(&self) -> Option<&At<String>> {
        Some(&self.workload)
    }
    fn at_least_seconds(&self) -> f64 {
        self.at_least.map_or(0.0, |d| d.seconds)
    }
}

/// What a training run measures; shared with `scaling` and `soak`.
pub const METRICS: [Metric; 15] = [
    Metric::new("step_time", Unit::SECONDS, Better::Lower, "time of each step after warm-up"),
    Metric::new(
        "samples_per_second",
        Unit::SAMPLES_PER_SECOND,
        Better::Higher,
        "samples of the whole job per second of steady state",
    ),
    Metric::new(
        "tokens_per_second",
        Unit::TOKENS_PER_SECOND,
        Better::Higher,
        "tokens of the whole job per second of steady state",
    ),
    Metric::new(
        "steps_per_second",
        Unit::STEPS_PER_SECOND,
        Better::Higher,
        "steps per second of steady state",
    ),
    Metric::new(
        "flops",
        Unit::FLOPS,
        Better::Higher,
        "model floating-point operations per second, by the workload's stated count",
    ),
    Metric::new(
        "mfu",
        Unit::RATIO,
        Better::Higher,
        "model FLOP/s as a share of the sourced dense peak of all devices",
    ),
    Metric::new(
        "jitter",
        Unit::RATIO,
        Better::Lower,
        "coefficient of variation of the step time in steady state",
    ),
    Metric::new("stalls", Unit::COUNT, Better::Lower, "steps far outside their neighbourhood"),
    Metric::new("warmup_steps", Unit::COUNT, Better::Lower, "steps before the steady state"),
    Metric::new("steady_seconds", Unit::SECONDS, Better::Neither, "length of the steady state"),
    Metric::new(
        "data_share",
        Unit::RATIO,
        Better::Lower,
        "share of step time spent waiting for data, where the program says so",
    ),
    Metric::new(
        "comm_share",
        Unit::RATIO,
        Better::Lower,
        "share of step time spent in communication, where the program says so",
    ),
    Metric::new("restarts", Unit::COUNT, Better::Lower, "restarts of the job from an earlier step"),
    Metric::new("redone_steps", Unit::COUNT, Better::Lower, "steps made again after a restart"),
    Metric::new(
        "seconds_to_first_step",
        Unit::SECONDS,
        Better::Lower,
        "from the start of the program to the end of its first step",
    ),
];
