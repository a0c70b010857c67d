//! Stages: what can be measured. One file a stage holds its options, its metrics and its way to measure.
//!
//! A stage knows neither journal nor score: it emits samples, facts, checks and notes, and ends in an outcome.

pub mod command;
pub mod drive;
pub mod host;
pub mod inventory;
pub mod launch;
pub mod program;
pub mod scaling;
pub mod soak;
pub mod storage;
pub mod throughput;
pub mod training;

use serde::Serialize;

/// Calls a macro with the list of stages: `key: Variant(Type)` in the order in which help shows them. A new stage is
/// its file, its `pub mod` line and its line here.
#[macro_export]
macro_rules! stage_kinds {
    ($callback:ident) => {
        $callback! {
            inventory: Inventory($crate::stage::inventory::Inventory),
            command: Command($crate::stage::command::CommandStage),
            throughput: Throughput($crate::stage::throughput::Throughput),
            scaling: Scaling($crate::stage::scaling::Scaling),
            storage: Storage($crate::stage::storage::Storage),
            soak: Soak($crate::stage::soak::Soak),
        }
    };
}

/// What is known of a stage kind without any plan.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    /// The key in a plan.
    pub name: &'static str,
    /// One sentence for `planrun stages`.
    pub doc: &'static str,
    /// What it measures.
    pub metrics: &'static [crate::measure::Metric],
    /// Whether its program may report metrics beyond those.
    pub open: bool,
    /// The name of the type that holds its options, as in the JSON Schema.
    pub options: &'static str,
}

impl Kind {
    /// The kind of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.name == name)
    }

    /// The metric of that name.
    pub fn metric(&self, name: &str) -> Option<&'static crate::measure::Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

/// `a::b::C` without its path.
const fn last_segment(path: &'static str) -> &'static str {
    let bytes = path.as_bytes();
    let mut start = bytes.len();
    while start > 0 && bytes[start - 1] != b':' && bytes[start - 1] != b' ' {
        start -= 1;
    }
    path.split_at(start).1
}

macro_rules! spec {
    ($($key:ident : $variant:ident ( $spec:ty )),* $(,)?) => {
        /// The options of a stage, of whichever kind.
        #[derive(Debug, Clone, Serialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Spec {
            $(#[doc = concat!("Options of `", stringify!($key), "`.")] $variant($spec)),*
        }

        /// All stage kinds, in the order in which help shows them.
        pub const KINDS: &[Kind] = &[$(Kind {
            name: <$spec as StageSpec>::KIND,
            doc: <$spec as StageSpec>::DOC,
            metrics: <$spec as StageSpec>::METRICS,
            open: <$spec as StageSpec>::OPEN,
            options: last_segment(stringify!($spec)),
        }),*];

        impl Spec {
            /// The key in a plan.
            pub fn kind(&self) -> &'static str {
                match self { $(Self::$variant(_) => <$spec as StageSpec>::KIND),* }
            }
            /// One sentence for `planrun stages`.
            pub fn doc(&self) -> &'static str {
                match self { $(Self::$variant(_) => <$spec as StageSpec>::DOC),* }
            }
            /// What it measures.
            pub fn metrics(&self) -> &'static [crate::measure::Metric] {
                match self { $(Self::$variant(_) => <$spec as StageSpec>::METRICS),* }
            }
            /// Whether its program may report metrics beyond [`Self::metrics`].
            pub fn open(&self) -> bool {
                match self { $(Self::$variant(_) => <$spec as StageSpec>::OPEN),* }
            }
            /// The workload that it runs, if it runs one.
            pub fn workload(&self) -> Option<&crate::findings::At<String>> {
                match self { $(Self::$variant(spec) => spec.workload()),* }
            }
            /// Labels of its variants; one without labels for most.
            pub fn variants(&self) -> Vec<crate::measure::Labels> {
                match self { $(Self::$variant(spec) => spec.variants()),* }
            }
            /// Does the work of one task.
            ///
            /// # Errors
            /// How the task ended, when not well.
            pub async fn drive(&self, cx: &mut drive::Drive<'_>) -> Result<(), crate::outcome::Outcome> {
                match self { $(Self::$variant(spec) => spec.drive(cx).await),* }
            }
            /// Seconds that one task takes at least, as the options ask.
            pub fn at_least_seconds(&self) -> f64 {
                match self { $(Self::$variant(spec) => spec.at_least_seconds()),* }
            }
        }
    };
}
stage_kinds!(spec);

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
    /// Does the work of one task, on the controller: programs on the host are started through [`drive::Drive`].
    ///
    /// # Errors
    /// How the task ended, when not well.
    fn drive(
        &self,
        cx: &mut drive::Drive<'_>,
    ) -> impl Future<Output = Result<(), crate::outcome::Outcome>> + Send;
}
