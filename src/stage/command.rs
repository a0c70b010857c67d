//! `command`: anything, by the user's own program.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::StageSpec;
use crate::{
    findings::At,
    measure::{Better, Metric, Unit},
};

/// Options of `command`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandStage {
    /// The workload to run, by its name under `workloads`.
    pub workload: At<String>,
    /// How many accelerators it may use; handed over as `PLANRUN_GPUS`.
    #[serde(default = "one")]
    pub gpus: u32,
}

fn one() -> u32 {
    1
}

impl StageSpec for CommandStage {
    const KIND: &'static str = "command";
    const DOC: &'static str = "anything: the user's own program, read by a declared reader";
    const METRICS: &'static [Metric] = &[
        Metric::new(
            "seconds",
            Unit::SECONDS,
            Better::Lower,
            "how long the program ran, by the host's monotonic clock",
        ),
        Metric::new("exit_code", Unit::COUNT, Better::Neither, "the exit code of the program"),
    ];
    const OPEN: bool = true;

    fn workload(&self) -> Option<&At<String>> {
        Some(&self.workload)
    }
}
