//! `scaling`: how throughput grows with the number of accelerators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    StageSpec,
    drive::{Amount, Drive},
    launch::{self, Ask},
    training::{self, Recorded},
};
use crate::{
    findings::At,
    measure::{
        Better, Labels, Metric, Unit,
        quantity::{Bytes, Duration, Level},
    },
    outcome::{Cause, Outcome, OutcomeKind},
};

/// An efficiency above this is a fault of the measurement, not a feat: a little above 1 is noise or cache.
const MOST_EFFICIENT: f64 = 1.25;

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
    /// How far segments may lie apart and still count as one steady state; default 2 %.
    #[serde(default)]
    pub steady_band: Option<Level>,
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
        training::STEADY_SECONDS,
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

    async fn drive(&self, cx: &mut Drive<'_>) -> Result<(), Outcome> {
        let gpus = cx.gpus(1);
        launch::enough_devices(cx, gpus)?;
        // Every number gets the same cores for a rank, those that the largest one that fits leaves for each.
        let fits = self.gpus.iter().filter(|n| **n <= cx.host.cpus).max().copied().unwrap_or(1).max(1);
        let cores_per_rank = cx.host.cpus / fits;
        let amount = Amount::asked(self.steps, self.at_least, cx.quick);
        let ask = Ask { gpus, amount, mode: self.mode, cores_per_rank };
        let mut recorded = Recorded::default();
        training::record(cx, ask, Self::METRICS, &mut recorded).await?;
        let labels = training::device_labels(&recorded);
        let band = training::band(cx, self.steady_band.as_ref())?;
        let pace = training::pace(&recorded, amount, band)?;
        training::tell(cx, Self::METRICS, &labels, &pace)?;
        if !self.collectives.is_empty() && gpus > 1 {
            cx.note("collectives were not timed: this version times none");
        }
        self.compare(cx, gpus, &pace, &labels)
    }
}

impl Scaling {
    /// Speedup and efficiency against the baseline, and against the number before.
    ///
    /// # Formula
    /// With X(n) the work per second at n accelerators and b the smallest number of the list:
    /// speedup S(n) = b X(n) / X(b), efficiency E(n) = S(n) / n, increment E(n) / E(m) with m the number before n.
    /// Work per second is tokens or samples per second as the program counts them; where it counts neither, steps per
    /// second times the work of a step, which is n times as much when scaling is weak.
    ///
    /// # Source
    /// domain facts, section "Scaling": by throughput at fixed work per device, S(n) = X(n) / X(1).
    fn compare(
        &self,
        cx: &mut Drive<'_>,
        gpus: u32,
        pace: &training::Pace,
        labels: &Labels,
    ) -> Result<(), Outcome> {
        let Some(base) = self.gpus.iter().min().copied() else { return Ok(()) };
        // What the program says that it did counts; only without it does the declared mode tell the work of a step.
        let (name, own, counted) = match (pace.tokens_per_second, pace.samples_per_second) {
            (Some(rate), _) => ("tokens_per_second", rate, true),
            (None, Some(rate)) => ("samples_per_second", rate, true),
            (None, None) => ("steps_per_second", pace.steps_per_second, false),
        };
        let work = |n: u32, rate: f64| match self.mode {
            Mode::Weak if !counted => rate * f64::from(n),
            _ => rate,
        };
        let rate_of = |n: u32| {
            if n == gpus {
                return Some(work(n, own));
            }
            let is = |e: &&super::drive::Earlier| {
                e.name == name && e.labels.0.get("gpus").is_some_and(|g| *g == n.to_string())
            };
            cx.earlier.iter().rfind(is).map(|e| work(n, e.value))
        };
        let efficiency_of = |n: u32| Some(rate_of(n)? / rate_of(base)? * f64::from(base) / f64::from(n));
        let before = self.gpus.iter().filter(|n| **n < gpus).max().copied();
        let (efficiency, increment) = (efficiency_of(gpus), before.and_then(efficiency_of));
        let Some(efficiency) = efficiency else {
            cx.warn(format!("no speedup: the baseline at {base} was not measured"));
            return Ok(());
        };
        cx.figure(Self::METRICS, "speedup", labels, &[efficiency * f64::from(gpus)])?;
        cx.figure(Self::METRICS, "efficiency", labels, &[efficiency])?;
        if let Some(increment) = increment {
            cx.figure(Self::METRICS, "increment", labels, &[efficiency / increment])?;
        }
        if efficiency > MOST_EFFICIENT {
            let reason = format!(
                "an efficiency of {efficiency:.2} at {gpus}: more than {MOST_EFFICIENT} of what {base} gave cannot be; was the baseline disturbed?"
            );
            return Err(Outcome::new(OutcomeKind::Implausible, Cause::Impossible, reason));
        }
        Ok(())
    }
}
