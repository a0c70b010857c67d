//! `throughput`: how fast a workload trains in its steady state.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    StageSpec,
    drive::{Amount, Drive},
    launch::Ask,
    program::WorkUnit,
    scaling::Mode,
    training::{self, Recorded},
};
use crate::{
    findings::At,
    measure::{
        Better, Metric, Unit,
        quantity::{Duration, Level},
    },
    outcome::{Cause, Outcome, OutcomeKind},
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
    /// How far segments may lie apart and still count as one steady state; default 2 %.
    #[serde(default)]
    pub steady_band: Option<Level>,
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
    const METRICS: &'static [Metric] = &[
        Metric::new("step_time", Unit::SECONDS, Better::Lower, "time of each step in steady state"),
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
        Metric::new("stalls", Unit::COUNT, Better::Lower, "slow steps far outside their neighbourhood"),
        Metric::new("warmup_steps", Unit::COUNT, Better::Lower, "steps before the steady state"),
        training::STEADY_SECONDS,
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
        training::RESTARTS,
        training::REDONE_STEPS,
        training::GOODPUT,
        training::SILENT_SECONDS,
        Metric::new(
            "seconds_outside_steps",
            Unit::SECONDS,
            Better::Lower,
            "life of the program that no step accounts for: start-up, end, gaps",
        ),
        Metric::new("loss", Unit::NATS, Better::Neither, "training loss, where the program says so"),
    ];

    fn workload(&self) -> Option<&At<String>> {
        Some(&self.workload)
    }
    fn at_least_seconds(&self) -> f64 {
        self.at_least.map_or(0.0, |d| d.seconds)
    }

    async fn drive(&self, cx: &mut Drive<'_>) -> Result<(), Outcome> {
        let amount = Amount::asked(self.steps, self.at_least, cx.quick);
        let cores_per_rank = cx.host.cpus / self.gpus.max(1);
        let ask = Ask { gpus: self.gpus, amount, mode: Mode::Weak, cores_per_rank };
        let mut recorded = Recorded::default();
        let ended = training::record(cx, ask, Self::METRICS, &mut recorded).await?;
        let labels = training::device_labels(&recorded);
        let lives = std::slice::from_ref(&recorded.steps);
        if training::tell_progress(cx, Self::METRICS, &labels, lives, None)? == 0 {
            let inside: f64 = recorded.steps.iter().map(|h| h.step.seconds).sum();
            cx.figure(Self::METRICS, "seconds_outside_steps", &labels, &[(ended.seconds - inside).max(0.0)])?;
        }
        let band = training::band(cx, self.steady_band.as_ref())?;
        let pace = training::pace(&recorded, amount, band)?;
        training::tell(cx, Self::METRICS, &labels, &pace)?;
        let rate = match cx.workload.and_then(|(_, w)| w.unit.as_ref()).map(|u| u.value) {
            Some(WorkUnit::Tokens) => pace.tokens_per_second,
            Some(WorkUnit::Samples) => pace.samples_per_second,
            None => pace.tokens_per_second.or(pace.samples_per_second),
        };
        if rate.is_none() {
            cx.warn("the program's steps do not say how many samples or tokens of the workload's unit they trained on");
        }
        let per_unit = cx.workload.and_then(|(_, w)| w.flops_per_unit).or(recorded.flops_per_token);
        let (Some(rate), Some(per_unit)) = (rate, per_unit) else { return Ok(()) };
        let flops = rate * per_unit;
        cx.figure(Self::METRICS, "flops", &labels, &[flops])?;
        let precision = cx.workload.and_then(|(_, w)| w.reference.as_ref()).map(|r| r.precision.name());
        let peak = match (precision, cx.site.peaks.as_slice()) {
            (Some(precision), peaks) => peaks.iter().find(|(name, _)| *name == precision),
            (None, [only]) => Some(only),
            (None, _) => None,
        };
        // Cores that stand in for accelerators have no peak of an accelerator.
        let Some((_, peak)) = peak.filter(|_| !recorded.on_cpu) else { return Ok(()) };
        let mfu = flops / (peak.tflops * 1e12 * f64::from(self.gpus));
        cx.figure(Self::METRICS, "mfu", &labels, &[mfu])?;
        if mfu > 1.0 {
            let reason =
                format!("{mfu:.2} of the peak of {} TFLOP/s ({}): more than all", peak.tflops, peak.source);
            return Err(Outcome::new(OutcomeKind::Implausible, Cause::Impossible, reason));
        }
        Ok(())
    }
}
