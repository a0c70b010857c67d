//! Workloads as a plan declares them: planrun's own reference training, or a program of the user's.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{findings::At, measure::Better, platform::Command};

/// A workload: `reference`, or a `command` with what goes with it.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Workload {
    /// planrun's own small GPT.
    #[serde(default)]
    pub reference: Option<At<Reference>>,
    /// Files that the program needs, relative to the plan; copied into its folder under their file names.
    #[serde(default)]
    pub files: Vec<At<String>>,
    /// Runs first, untimed: installs, data.
    #[serde(default)]
    pub setup: Option<Command>,
    /// The program.
    #[serde(default)]
    pub command: Option<Command>,
    /// Environment of all its commands.
    #[serde(default)]
    pub env: IndexMap<String, String>,
    /// The folder to run in; default a fresh one that is removed afterwards.
    #[serde(default)]
    pub workdir: Option<String>,
    /// A server that runs beside the program and is ended with it.
    #[serde(default)]
    pub serve: Option<Command>,
    /// Files and folders to fetch afterwards, relative to the working folder.
    #[serde(default)]
    pub collect: Vec<String>,
    /// A container image to run in, by docker or podman; without a runtime the stage is unsupported.
    #[serde(default)]
    pub image: Option<String>,
    /// How its output is read; default JSON lines.
    #[serde(default)]
    pub reader: Option<At<Reader>>,
    /// What one unit of its throughput is: `samples` or `tokens`.
    #[serde(default)]
    pub unit: Option<At<WorkUnit>>,
    /// Floating-point operations of the model per unit, so that it has an MFU.
    #[serde(default)]
    pub flops_per_unit: Option<f64>,
}

/// What a training program counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkUnit {
    /// Training samples.
    Samples,
    /// Tokens.
    Tokens,
}

/// Shape of planrun's own small GPT.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reference {
    /// Transformer blocks.
    pub layers: u32,
    /// Attention heads; divides `width`.
    pub heads: u32,
    /// Width of the residual stream.
    pub width: u32,
    /// Tokens of a sequence.
    pub sequence: u32,
    /// Sequences of a step, for each accelerator when scaling is weak.
    pub batch: u32,
    /// Number format of the matrix products.
    #[serde(default)]
    pub precision: Precision,
    /// Seed of the initial weights.
    #[serde(default)]
    pub seed: u64,
}

/// A number format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    /// 32-bit IEEE floats.
    #[default]
    Fp32,
    /// NVIDIA's 19-bit format inside matrix products.
    Tf32,
    /// bfloat16.
    Bf16,
    /// 16-bit IEEE floats.
    Fp16,
    /// 8-bit floats.
    Fp8,
}

impl Precision {
    /// The word in a plan.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fp32 => "fp32",
            Self::Tf32 => "tf32",
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
            Self::Fp8 => "fp8",
        }
    }
}

/// How a program's output becomes metrics.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reader {
    /// The contract for programs: one JSON object a line.
    JsonLines,
    /// Regular expressions with one capture group each.
    Pattern(Vec<Pattern>),
}

/// A metric that is found by a regular expression.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pattern {
    /// The name of the metric.
    pub metric: String,
    /// A regular expression whose first group is the number.
    pub regex: At<String>,
    /// The unit of the number.
    pub unit: String,
    /// Which way it gets better.
    #[serde(default = "neither")]
    pub better: Better,
}

impl Pattern {
    /// What is wrong with the expression, if anything.
    pub fn fault(&self) -> Option<String> {
        crate::readers::compile(&self.regex.value).err()
    }
}

fn neither() -> Better {
    Better::Neither
}
