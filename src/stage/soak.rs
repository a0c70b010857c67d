//! `soak`: whether a machine stays as fast as it was, over hours or days.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    StageSpec,
    drive::{Amount, Drive},
    host::Run,
    launch::Ask,
    scaling::Mode,
    training::{self, Heard, Recorded},
};
use crate::{
    findings::At,
    measure::{
        Better, Finite, Labels, Metric, Unit,
        quantity::Duration,
        window::{SoakRule, Timed, clock_jumps, soak},
    },
    outcome::{Cause, Outcome, OutcomeKind},
    readers::{JsonLines, Reader as _, Said},
};

/// How often a program that ends early is started again.
const MOST_STARTS: usize = 20;

/// How far the wall clock may go off the monotonic one within a second before it counts, in seconds.
const CLOCK_TOLERANCE: f64 = 0.5;

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
            "stability_running",
            Unit::RATIO,
            Better::Higher,
            "the same outside interruptions; for costs that pay for these elsewhere",
        ),
        Metric::new(
            "last_to_first",
            Unit::RATIO,
            Better::Neither,
            "throughput of the last part as a share of the first: 1 is steady, either way off is not",
        ),
        training::RESTARTS,
        training::REDONE_STEPS,
        training::GOODPUT,
        training::SILENT_SECONDS,
        Metric::new("observed_seconds", Unit::SECONDS, Better::Neither, "how long it was watched"),
    ];

    fn workload(&self) -> Option<&At<String>> {
        Some(&self.workload)
    }
    fn at_least_seconds(&self) -> f64 {
        self.duration.seconds
    }

    async fn drive(&self, cx: &mut Drive<'_>) -> Result<(), Outcome> {
        let duration = if cx.quick { self.duration.seconds.min(3.0) } else { self.duration.seconds };
        let clock = cx.host.start(Run::probe("clock", "clock", &serde_json::Value::Null)).await?;
        let watched = self.watch(cx, duration).await;
        cx.host.stop(clock).await?;
        let (lives, labels, until) = watched?;
        let steps: Vec<&Heard> = lives.iter().flatten().collect();
        let readings = clock_readings(&cx.host.said_by("clock"));
        let defaults = SoakRule::default();
        let rule = SoakRule {
            // A short soak still wants several windows; the rule in use is told.
            window_s: self.window.map_or(defaults.window_s, |w| w.seconds).min(duration / 5.0),
            part_s: defaults.part_s.min(duration / 3.0),
            gap_s: defaults.gap_s.min((duration / 10.0).max(1.0)),
            until_s: Some(until),
            ..defaults
        };
        let timed: Vec<Timed> =
            steps.iter().map(|h| Timed { end_s: h.at, seconds: h.step.seconds }).collect();
        let impossible = |e: String| Outcome::new(OutcomeKind::Implausible, Cause::Impossible, e);
        let judged = soak(&timed, &rule).map_err(|e| impossible(e.to_string()))?;
        let Some(judged) = judged else {
            return Err(Outcome::new(OutcomeKind::Failed, Cause::NoStepRecorded, "no step was reported"));
        };
        cx.note(format!(
            "windows of {} s, fluctuation beyond {} %, interruption beyond {} s, first and last part of {} s",
            rule.window_s,
            rule.band * 100.0,
            rule.gap_s,
            rule.part_s
        ));
        let step_times: Vec<f64> = steps.iter().map(|h| h.step.seconds).collect();
        training::tell_progress(cx, Self::METRICS, &labels, &lives, Some(until))?;
        let (interruptions, fluctuations) = (judged.interruptions.len() as f64, judged.fluctuations as f64);
        let mut figure = |name: &str, values: &[f64]| cx.figure(Self::METRICS, name, &labels, values);
        figure("step_time", &step_times)?;
        figure("interruptions", &[interruptions])?;
        figure("fluctuations", &[fluctuations])?;
        figure("events", &[interruptions + fluctuations])?;
        figure("stability", &[judged.stability.get()])?;
        let known = |x: Option<Finite>| x.map(Finite::get).into_iter().collect::<Vec<_>>();
        figure("stability_running", &known(judged.stability_running))?;
        figure("last_to_first", &known(judged.last_to_first))?;
        figure("observed_seconds", &[judged.total_s.get()])?;
        if readings.len() > 1 {
            figure("clock_gaps", &[clock_jumps(&readings, CLOCK_TOLERANCE).len() as f64])?;
        }
        Ok(())
    }
}

impl Soak {
    /// Keeps the workload running until the time is over; one that ends early or breaks down after some steps is started
    /// again. Returns the steps of each of its lives, their labels and when watching ended, by the host's clock.
    async fn watch(
        &self,
        cx: &mut Drive<'_>,
        duration: f64,
    ) -> Result<(Vec<Vec<Heard>>, Labels, f64), Outcome> {
        let mut lives: Vec<Vec<Heard>> = Vec::new();
        let mut labels = Labels::none();
        let begun = std::time::Instant::now();
        let mut left = duration;
        for start in 1.. {
            let amount = Amount { steps: 1, seconds: left };
            let cores_per_rank = cx.host.cpus / self.gpus.max(1);
            let ask = Ask { gpus: self.gpus, amount, mode: Mode::Weak, cores_per_rank };
            let mut recorded = Recorded::default();
            let outcome = training::record(cx, ask, &[], &mut recorded).await.err();
            if !recorded.steps.is_empty() {
                labels = training::device_labels(&recorded);
                lives.push(recorded.steps);
            }
            // What breaks down in the middle of training interrupts it; what cannot be is no soak at all.
            if let Some(outcome) = &outcome
                && (outcome.kind != OutcomeKind::Failed || lives.is_empty())
            {
                return Err(outcome.clone());
            }
            left = duration - begun.elapsed().as_secs_f64();
            if left <= duration * 0.02 {
                break;
            }
            let why = outcome.map_or_else(|| "it ended early".to_owned(), |o| o.reason);
            if start == MOST_STARTS {
                let reason = format!("the workload ended early {start} times; the last time: {why}");
                return Err(Outcome::new(OutcomeKind::Failed, Cause::CommandFailed, reason));
            }
            cx.warn(format!("started again with {left:.0} s to go: {why}"));
        }
        // The clock probe prints each second: a program that hangs at its end is seen to hang.
        let until = lives.last().and_then(|l| l.last()).map_or(0.0, |h| h.at).max(cx.host.latest);
        Ok((lives, labels, until))
    }
}

/// (monotonic, wall) readings in seconds from what the clock probe said.
fn clock_readings(lines: &[String]) -> Vec<(f64, f64)> {
    let (mut said, mut readings) = (Vec::new(), Vec::new());
    let mut monotonic = None;
    for line in lines {
        JsonLines.line(line, &mut said);
        for what in said.drain(..) {
            match what {
                Said::Number { name, value, .. } if name == "monotonic" => monotonic = Some(value.get()),
                Said::Number { name, value, .. } if name == "wall" => {
                    readings.extend(monotonic.take().map(|m| (m, value.get())));
                }
                _ => {}
            }
        }
    }
    readings
}
