//! Stages: what can be measured. One file a stage holds its options, its metrics and its way to measure.
//!
//! A stage knows neither journal nor score: it emits samples, facts, checks and notes, and ends in an outcome.

pub mod command;
pub mod inventory;
pub mod program;
pub mod scaling;
pub mod soak;
pub mod storage;
pub mod throughput;

/// Calls a macro with the list of stages: `key: Type` in the order in which help shows them. A new stage is its
/// file, its `pub mod` line and its line here.
#[macro_export]
macro_rules! stage_kinds {
    ($callback:ident) => {
        $callback! {
            inventory: $crate::stage::inventory::Inventory,
            command: $crate::stage::command::CommandStage,
            throughput: $crate::stage::throughput::Throughput,
            scaling: $crate::stage::scaling::Scaling,
            storage: $crate::stage::storage::Storage,
            soak: $crate::stage::soak::Soak,
        }
    };
}

/// What every stage says of itself.
pub trait StageSpec {
    /// The key in a plan.
    const KIND: &'static str;
    /// One sentence for `planrun stages`.
    const DOC: &'static str;
    /// What it measures.
    const METRICS: &'static [crate::measure::Metric];
    /// Whether its program may report metrics beyond [`Self::METRICS`].
    const OPEN: bool = false;

    /// The workload that it runs, if it runs one.
    fn workload(&self) -> Option<&crate::findings::At<String>> {
        None
    }
    /// Labels of its variants: `gpus=1`, `gpus=2` …; one without labels for most.
    fn variants(&self) -> Vec<crate::measure::Labels> {
        vec![crate::measure::Labels::none()]
    }
    /// Seconds that one task takes at least, as the options ask; for the estimate of `--dry-run`.
    fn at_least_seconds(&self) -> f64 {
        0.0
    }
}
