//! What a stage gets to do its work, and how it tells what it found.

use crate::{
    measure::{Better, Finite, Labels, Metric, Unit, quantity::Duration},
    outcome::{Cause, CheckResult, Outcome, OutcomeKind},
    platform::{Peak, Promises},
    stage::{host::Host, program::Workload},
};

/// The machine that a task runs on, as the plan describes it.
#[derive(Debug, Clone, Default)]
pub struct Site {
    /// The platform's key.
    pub platform: String,
    /// The endpoint's key.
    pub endpoint: String,
    /// What the seller promises of it.
    pub promises: Promises,
    /// How many accelerators it has; 0: CPU cores take their place.
    pub gpus: u32,
    /// Peak rates that the plan gives, by precision.
    pub peaks: Vec<(String, Peak)>,
    /// The folder of the plan on the controller, for files that it names.
    pub plan_dir: std::path::PathBuf,
}

/// A series of numbers that a stage found.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The quantity.
    pub name: String,
    /// Its labels, without those of the task.
    pub labels: Labels,
    /// The unit.
    pub unit: Unit,
    /// Which way it gets better.
    pub better: Better,
    /// The values.
    pub values: Vec<Finite>,
}

/// Something that a stage tells.
#[derive(Debug, Clone, PartialEq)]
pub enum Tell {
    /// Numbers.
    Found(Found),
    /// A fact about the host.
    Fact(String, serde_json::Value),
    /// The result of a check.
    Check(CheckResult),
    /// Something that a reader should know; `true`: the report shows it.
    Note(bool, String),
    /// How far it is: steps or seconds done, of how many, and the current rate as text.
    Progress(f64, f64, String),
}

/// What an earlier variant of the same stage on the same machine found, for figures that need both.
#[derive(Debug, Clone, PartialEq)]
pub struct Earlier {
    /// The variant's labels.
    pub labels: Labels,
    /// Its quantity.
    pub name: String,
    /// The last value.
    pub value: f64,
}

/// Everything that a stage has at hand while it works on one task.
pub struct Drive<'a> {
    /// The machine.
    pub site: &'a Site,
    /// The way to it.
    pub host: &'a mut Host,
    /// The workload that the stage names, if it names one, with its name.
    pub workload: Option<(&'a str, &'a Workload)>,
    /// The stage's id in the plan.
    pub stage: &'a str,
    /// The variant, such as `gpus=8`.
    pub labels: &'a Labels,
    /// Which repetition, from 1.
    pub repeat: u32,
    /// A rehearsal: a few steps are enough.
    pub quick: bool,
    /// What earlier variants found.
    pub earlier: &'a [Earlier],
    /// Takes what the stage tells; a copy of it may be used while the drive is busy.
    pub tell: tokio::sync::mpsc::UnboundedSender<Tell>,
}

impl Drive<'_> {
    /// Tells values of a declared metric.
    ///
    /// # Errors
    /// When one is NaN or infinite: then the stage has computed nonsense.
    pub fn found(&mut self, metric: &Metric, labels: Labels, values: &[f64]) -> Result<(), Outcome> {
        let finite: Result<Vec<Finite>, _> = values.iter().map(|v| Finite::new(*v)).collect();
        let values = finite.map_err(|e| {
            Outcome::new(
                OutcomeKind::Implausible,
                Cause::Impossible,
                format!("{} came out as {e}", metric.name),
            )
        })?;
        if !values.is_empty() {
            let (name, unit, better) = (metric.name.to_owned(), metric.unit.clone(), metric.better);
            self.say(Tell::Found(Found { name, labels, unit, better, values }));
        }
        Ok(())
    }

    /// Tells anything. Nobody listens any more only when the task is over.
    pub fn say(&mut self, tell: Tell) {
        let _ = self.tell.send(tell);
    }

    /// Tells values of the declared metric of that name; a name that the stage does not declare says nothing.
    ///
    /// # Errors
    /// As [`Self::found`].
    pub fn figure(
        &mut self,
        of: &[Metric],
        name: &str,
        labels: &Labels,
        values: &[f64],
    ) -> Result<(), Outcome> {
        match of.iter().find(|m| m.name == name) {
            Some(metric) => self.found(metric, labels.clone(), values),
            None => Ok(()),
        }
    }

    /// Tells something that the report shows.
    pub fn warn(&mut self, text: impl Into<String>) {
        self.say(Tell::Note(true, text.into()));
    }

    /// Tells something for the curious.
    pub fn note(&mut self, text: impl Into<String>) {
        self.say(Tell::Note(false, text.into()));
    }

    /// The number of accelerators that the variant asks for, or `otherwise`.
    pub fn gpus(&self, otherwise: u32) -> u32 {
        self.labels.0.get("gpus").and_then(|n| n.parse().ok()).unwrap_or(otherwise)
    }
}

/// How much a training stage asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Amount {
    /// Steps at least.
    pub steps: u32,
    /// Seconds at least.
    pub seconds: f64,
}

impl Amount {
    /// What options ask for; a rehearsal asks for little.
    pub fn asked(steps: u32, at_least: Option<Duration>, quick: bool) -> Self {
        let seconds = at_least.map_or(0.0, |d| d.seconds);
        if quick { Self { steps: steps.min(20), seconds: seconds.min(2.0) } } else { Self { steps, seconds } }
    }
}
