//! `resume`: goes on where a run stopped. Finished tasks are not repeated, none is lost.

use std::{collections::BTreeMap, path::Path};

use crate::{
    cli::ResumeArgs,
    commands::{
        self,
        run::{self, Settings, execute, journal_error},
        source::Source,
        talk,
    },
    error::{Error, Exit},
    journal::{Journal, Resumed},
    outcome::{Cause, Outcome, OutcomeKind},
    plan::model,
    progress::Talk,
    record::{Body, Record, RunStarted, TaskId},
    runner::{Choice, schedule},
    stage::drive::Earlier,
};

/// Goes on with a run.
///
/// # Errors
/// When the folder holds no run, its journal is locked, damaged, of a newer planrun or of another plan.
pub fn resume(args: &ResumeArgs, ssh_config: Option<&std::path::Path>, talking: Talk) -> commands::Result {
    let dir = &args.dir;
    if !dir.join(crate::journal::FILE).is_file() {
        return Err(Error::new(
            Exit::USAGE,
            format!("{} holds no run (no {})", dir.display(), crate::journal::FILE),
        )
        .hint("name the folder that `planrun run` wrote to"));
    }
    let mut past = Past::default();
    let Resumed { mut journal, tail } =
        Journal::resume(dir, |record| past.take(record)).map_err(|e| journal_error(&e, dir))?;
    let Some(first) = past.first.take() else {
        return Err(Error::new(Exit::JOURNAL, "the journal does not begin with a run"));
    };
    same_plan(&first)?;
    if tail.torn > 0 {
        talk(&format!("the journal ended in the middle of a line: {} bytes were dropped\n", tail.torn));
    }
    let path = std::path::PathBuf::from(&first.plan_path);
    let source = Source {
        name: if first.plan_path.is_empty() {
            super::source::LOCAL_NAME.to_owned()
        } else {
            first.plan_path.clone()
        },
        bytes: first.plan_text.clone().into_bytes(),
        dir: path.parent().map_or_else(|| ".".into(), std::path::Path::to_owned),
    };
    let (plan, _) = source.load_to_run(&first.set, true)?;
    let choice = Choice { quick: first.quick, ..Choice::default() };
    let schedule = schedule(&plan, &choice, &source.dir);
    if schedule.planned != first.tasks {
        return Err(Error::new(Exit::JOURNAL, "the plan gives other tasks than those of the journal")
            .hint("was it made by another version of planrun, or in another environment? Start a new run"));
    }
    if talking >= Talk::Normal {
        talk(&format!("{} of {} tasks have ended before\n", past.finished.len(), schedule.planned.len()));
    }
    if past.finished.len() == schedule.planned.len() && past.complete {
        talk("the run is complete: nothing is left to do\n");
        return run::show(dir, &plan.report, talking);
    }
    let body = Body::RunResumed { planrun: env!("CARGO_PKG_VERSION").to_owned(), dropped_bytes: tail.torn };
    journal.append(body).map_err(|e| journal_error(&e, dir))?;
    let spent_seconds = past.spent + past.latest;
    let ways = run::ways(run::controller(&schedule, &plan, ssh_config)?);
    let found = past.found(&first);
    let (id, plan, quick) = (first.run.clone(), &plan, first.quick);
    let settings = Settings { id, dir, plan, quick, spent_seconds, ways, talking };
    let earlier = run::Earlier { finished: past.finished, resumed: true, begun: past.begun, found };
    execute(settings, schedule, earlier, &mut journal)
}

/// Far more than any run tries; leaves room to count on.
const MOST_ATTEMPTS: u32 = u32::MAX / 2;

/// What a run must know of its past, gathered line by line.
#[derive(Default)]
struct Past {
    first: Option<Box<RunStarted>>,
    /// Tasks that have ended for good: all but those that a stop or a crash cut short.
    finished: BTreeMap<TaskId, Outcome>,
    /// The highest number of a try of each task.
    begun: BTreeMap<TaskId, u32>,
    /// The last value of each quantity of a task.
    last: BTreeMap<TaskId, BTreeMap<String, f64>>,
    complete: bool,
    /// Seconds that the processes of the run took, each by its own clock; of the last one until its latest line.
    spent: f64,
    latest: f64,
}

impl Past {
    fn take(&mut self, Record { since, body, .. }: Record) {
        let since = since.get();
        if since < self.latest {
            self.spent += self.latest;
        }
        self.latest = since;
        match body {
            Body::RunStarted(first) => {
                self.first.get_or_insert(first);
            }
            Body::TaskStarted { task, attempt } => {
                self.finished.remove(&task);
                self.last.remove(&task);
                self.begun.insert(task, attempt.min(MOST_ATTEMPTS));
            }
            Body::Samples { task, series, values } => {
                if let Some(value) = values.last() {
                    self.last.entry(task).or_default().insert(series.name, value.get());
                }
            }
            Body::TaskEnded { task, outcome, retried: false, .. } => {
                let cut_short = outcome.kind == OutcomeKind::Interrupted
                    && [Cause::Stopped, Cause::Crashed, Cause::PlanLimit, Cause::Internal]
                        .contains(&outcome.cause);
                if cut_short {
                    self.finished.remove(&task);
                } else {
                    self.finished.insert(task, outcome);
                }
            }
            Body::RunEnded { complete, .. } => self.complete |= complete,
            _ => {}
        }
    }

    /// What finished tasks found.
    fn found(&self, first: &RunStarted) -> Vec<(TaskId, Earlier)> {
        let is_ok = |id: &TaskId| self.finished.get(id).is_some_and(|o| o.kind == OutcomeKind::Ok);
        let mut found = Vec::new();
        for task in first.tasks.iter().filter(|task| is_ok(&task.id)) {
            for (name, value) in self.last.get(&task.id).into_iter().flatten() {
                let earlier = Earlier { labels: task.labels.clone(), name: name.clone(), value: *value };
                found.push((task.id.clone(), earlier));
            }
        }
        found
    }
}

/// The plan's file, where it is still there, must be the one that the run began with.
fn same_plan(first: &RunStarted) -> Result<(), Error> {
    let other = |what: &str| {
        Error::new(Exit::JOURNAL, what.to_owned())
            .hint("start a new run for the new plan; `planrun score --plan` judges the old one by new prices")
    };
    if model::digest(&first.plan_text, &first.set) != first.plan.digest {
        return Err(other("the plan in the journal is not the one that the run began with"));
    }
    match super::read_regular(Path::new(&first.plan_path)) {
        Ok(text) if text != first.plan_text.as_bytes() => Err(other(&format!(
            "{} has changed since the run began: the journal is of another plan",
            first.plan_path
        ))),
        _ => Ok(()),
    }
}
