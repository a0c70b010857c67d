//! `scaling`: how throughput grows with the number of accelerators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StageSpec;
use crate::{
    findings::At,
    measure::{
        Better, Labels, Metric, Unit,
        quantity::{Bytes, Duration},
    },
};

/// Options of `scaling`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scaling {
    /// The workload to run, by its name under `workloads`.
    pub workload: At<String>,
    /// Numbers of accelerators, rising, from the baseline on; those beyond what the host has are `unsupported`.
    pub gpus: Vec<u32>,
    /// Whether the work per accelerator (`weak`) or the whole work (`strong`) stays the same.
    pub mode: Mode,
    /// How many steps at each number at least.
    #[serde(default = "two_hundred")]
    pub steps: u32,
    /// How long at each number at least.
    #[serde(default)]
    pub at_least: Option<Duration>,
    /// Sizes at which collectives are timed; needs accelerators.
    #[serde(default)]
    pub collectives: Vec<Bytes>,
}

/// What stays the same when accelerators are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// The work of each accelerator.
    Weak,
    /// The work of all together.
    Strong,
}

fn two_hundred() -> u32 {
    200
}

impl StageSpec for Scaling {
    const KIND: &'static str = "scaling";
    const DOC: &'static str = "how throughput grows with the number of accelerators";
    const METRICS: &'static [Metric] = &[
        Metric::new("step_time", Unit::SECONDS, Better::Lower, "time of each step after warm-up"),
        Metric::new(
            "samples_per_second",
            Unit::SAMPLES_PER_SECOND,
            Better::Higher,
            "samples of the whole job per second",
        ),
        Metric::new(
            "tokens_per_second",
            Unit::TOKENS_PER_SECOND,
            Better::Higher,
            "tokens of the whole job per second",
        ),
        Metric::new("steps_per_second", Unit::STEPS_PER_SECOND, Better::Higher, "steps per second"),
        Metric::new(
            "speedup",
            Unit::TIMES,
            Better::Higher,
            "throughput as a multiple of that of the baseline per accelerator",
        ),
        Metric::new(
            "efficiency",
            Unit::RATIO,
            Better::Higher,
            "speedup divided by the number of accelerators",
        ),
        Metric::new(
            "increment",
            Unit::RATIO,
            Better::Higher,
            "efficiency as a share of that of the number before: where scaling breaks",
        ),
        Metric::new(
            "comm_share",
            Unit::RATIO,
            Better::Lower,
            "share of step time spent in communication, where the program says so",
        ),
        Metric::new(
            "data_share",
            Unit::RATIO,
            Better::Lower,
            "share of step time spent waiting for data, where the program says so",
        ),
    ];

    fn workload(&self) -> Option<&At<String>> {
        Some(&self.workload)
    }
    fn variants(&self) -> Vec<Labels> {
        self.gpus.iter().map(|n| Labels::none().with("gpus", n)).collect()
    }
    fn at_least_seconds(&self) -> f64 {
        self.at_least.map_or(0.0, |d| d.seconds)
    }
}
