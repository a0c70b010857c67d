//! `command`: anything, by the user's own program.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    StageSpec,
    drive::{Amount, Drive, Found, Tell},
    launch::{self, Ask},
    scaling::Mode,
};
use crate::{
    findings::At,
    measure::{Better, Labels, Metric, Unit},
    outcome::{Cause, Outcome, OutcomeKind, printable},
    readers::Said,
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
    const METRICS: &'static [Metric] = &[Metric::new(
        "seconds",
        Unit::SECONDS,
        Better::Lower,
        "how long the program ran, by the host's monotonic clock",
    )];
    const OPEN: bool = true;

    fn workload(&self) -> Option<&At<String>> {
        Some(&self.workload)
    }

    async fn drive(&self, cx: &mut Drive<'_>) -> Result<(), Outcome> {
        let amount = Amount::asked(if cx.quick { 20 } else { 200 }, None, cx.quick);
        let ask = Ask {
            gpus: self.gpus,
            amount,
            mode: Mode::Weak,
            cores_per_rank: cx.host.cpus / self.gpus.max(1),
        };
        let queue = cx.tell.clone();
        let (mut unreadable, mut said_anything) = (0_usize, false);
        let mut each = |said: Said, _at: f64| {
            let tell = match said {
                Said::Step(step) => {
                    // A training program in a plain `command`: its steps are numbers like any other.
                    let Ok(value) = step.seconds.try_into() else { return };
                    found("step_time", Labels::none(), Unit::SECONDS, Better::Lower, value)
                }
                Said::Number { name, value, unit, labels, better } => {
                    let unit = unit.unwrap_or(Unit::RATIO);
                    found(&name, labels, unit, better.unwrap_or(Better::Neither), value)
                }
                Said::Fact { name, value: Some(value), .. } => Tell::Fact(format!("program.{name}"), value),
                Said::Fact { .. } => return,
                Said::Note(text) => Tell::Note(false, printable(&text)),
                Said::Unreadable(why) => {
                    unreadable += 1;
                    if unreadable > 3 {
                        return;
                    }
                    Tell::Note(true, format!("unreadable line: {}", printable(&why)))
                }
            };
            said_anything |= matches!(tell, Tell::Found(_));
            let _ = queue.send(tell);
        };
        let ended = launch::run(cx, ask, &mut each).await?;
        cx.figure(Self::METRICS, "seconds", &Labels::none(), &[ended.seconds])?;
        if unreadable > 0 && !said_anything {
            let reason = format!("{unreadable} lines look like data, and none can be read");
            return Err(Outcome::new(OutcomeKind::Failed, Cause::Unreadable, reason));
        }
        let wants_metrics = cx.workload.is_some_and(|(_, w)| w.reader.is_some());
        if !said_anything && wants_metrics {
            let reason = "the program ended well, and its reader found no metric in what it printed";
            return Err(Outcome::new(OutcomeKind::Failed, Cause::NoStepRecorded, reason));
        }
        Ok(())
    }
}

fn found(name: &str, labels: Labels, unit: Unit, better: Better, value: crate::measure::Finite) -> Tell {
    Tell::Found(Found { name: name.to_owned(), labels, unit, better, values: vec![value] })
}
