//! `soak`: whether a machine stays as fast as it was, over hours or days.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StageSpec;
use crate::{
    findings::At,
    measure::{Better, Metric, Unit, quantity::Duration},
};

/// Options of `soak`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Soak {
    /// The workload to run, by its name under `workloads`.
    pub workload: At<String>,
    /// How long.
    pub duration: At<Duration>,
    /// How many accelerators it uses.
    #[serde(default = "one")]
    pub gpus: u32,
    /// The window whose median is compared with that of the run; default 1 minute.
    #[serde(default)]
    pub window: Option<Duration>,
}

fn one() -> u32 {
    1
}

impl StageSpec for Soak {
    const KIND: &'static str = "soak";
    const DOC: &'static str = "whether a machine stays as fast as it was, over hours or days";
    const METRICS: &'static [Metric] = &[
        Metric::new("step_time", Unit::SECONDS, Better::Lower, "time of each step"),
        Metric::new("interruptions", Unit::COUNT, Better::Lower, "times the work stopped"),
        Metric::new(
            "fluctuations",
            Unit::COUNT,
            Better::Lower,
            "windows whose median step time is more than 5 % off that of the run",
        ),
        Metric::new("events", Unit::COUNT, Better::Lower, "interruptions and fluctuations together"),
        Metric::new(
            "clock_gaps",
            Unit::COUNT,
            Better::Lower,
            "jumps of the wall clock against the monotonic one",
        ),
        Metric::new(
            "stability",
            Unit::RATIO,
            Better::Higher,
            "useful time as a share of all time; cost divides by it",
        ),
        Metric::new(
            "last_to_first",
            Unit::RATIO,
            Better::Higher,
            "throughput of the last part as a share of the first",
        ),
        Metric::new("observed_seconds", Unit::SECONDS, Better::Neither, "how long it was watched"),
    ];

    fn workload(&self) -> Option<&At<String>> {
        Some(&self.workload)
    }
    fn at_least_seconds(&self) -> f64 {
        self.duration.seconds
    }
}
