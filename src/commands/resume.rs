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
    journal::Journal,
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
pub fn resume(args: &ResumeArgs, talking: Talk) -> commands::Result {
    let dir = &args.dir;
    if !dir.join(crate::journal::FILE).is_file() {
        return Err(Error::new(
            Exit::USAGE,
            format!("{} holds no run (no {})", dir.display(), crate::journal::FILE),
        )
        .hint("name the folder that `planrun run` wrote to"));
    }
    let resumed = Journal::resume(dir).map_err(|e| journal_error(&e, dir))?;
    let mut journal = resumed.journal;
    let Some(first) = resumed.records.first().and_then(run_started) else {
        return Err(Error::new(Exit::JOURNAL, "the journal does not begin with a run"));
    };
    same_plan(first)?;
    if resumed.tail.torn > 0 {
        talk(&format!(
            "the journal ended in the middle of a line: {} bytes were dropped\n",
            resumed.tail.torn
        ));
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
    let finished = finished(&resumed.records);
    let found = found(&resumed.records, &finished, first);
    if talking >= Talk::Normal {
        talk(&format!("{} of {} tasks have ended before\n", finished.len(), schedule.planned.len()));
    }
    if finished.len() == schedule.planned.len()
        && resumed.records.iter().any(|r| matches!(r.body, Body::RunEnded { complete: true, .. }))
    {
        talk("the run is complete: nothing is left to do\n");
        return run::show(dir, &plan.report, talking);
    }
    let body =
        Body::RunResumed { planrun: env!("CARGO_PKG_VERSION").to_owned(), dropped_bytes: resumed.tail.torn };
    journal.append(body).map_err(|e| journal_error(&e, dir))?;
    let spent_seconds = spent(&resumed.records);
    let settings =
        Settings { id: first.run.clone(), dir, plan: &plan, quick: first.quick, spent_seconds, talking };
    let begun = begun(&resumed.records);
    execute(settings, schedule, run::Earlier { finished, begun, found }, &mut journal)
}

/// Far more than any run tries; leaves room to count on.
const MOST_ATTEMPTS: u32 = u32::MAX / 2;

fn run_started(record: &Record) -> Option<&RunStarted> {
    match &record.body {
        Body::RunStarted(first) => Some(first),
        _ => None,
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

/// Tasks that have ended for good: all but those that a stop or a crash cut short.
fn finished(records: &[Record]) -> BTreeMap<TaskId, Outcome> {
    let mut finished = BTreeMap::new();
    for record in records {
        match &record.body {
            Body::TaskEnded { task, outcome, retried: false, .. } => {
                let cut_short = outcome.kind == OutcomeKind::Interrupted
                    && [Cause::Stopped, Cause::Crashed, Cause::PlanLimit, Cause::Internal]
                        .contains(&outcome.cause);
                if cut_short {
                    finished.remove(task);
                } else {
                    finished.insert(task.clone(), outcome.clone());
                }
            }
            Body::TaskStarted { task, .. } => drop(finished.remove(task)),
            _ => {}
        }
    }
    finished
}

/// The highest number of a try of each task.
fn begun(records: &[Record]) -> BTreeMap<TaskId, u32> {
    let mut begun = BTreeMap::new();
    for record in records {
        if let Body::TaskStarted { task, attempt } = &record.body {
            // No run tries so often: a number beyond counts on from the greatest that can be.
            begun.insert(task.clone(), (*attempt).min(MOST_ATTEMPTS));
        }
    }
    begun
}

/// What finished tasks found, the last value of each series.
fn found(
    records: &[Record],
    finished: &BTreeMap<TaskId, Outcome>,
    first: &RunStarted,
) -> Vec<(TaskId, Earlier)> {
    let mut last: BTreeMap<(TaskId, String), Earlier> = BTreeMap::new();
    for record in records {
        match &record.body {
            Body::Samples { task, series, values }
                if finished.get(task).is_some_and(|o| o.kind == OutcomeKind::Ok) =>
            {
                let planned = first.tasks.iter().find(|t| t.id == *task);
                if let (Some(planned), Some(value)) = (planned, values.last()) {
                    let (labels, name) = (planned.labels.clone(), series.name.clone());
                    last.insert((task.clone(), name.clone()), Earlier { labels, name, value: value.get() });
                }
            }
            Body::TaskStarted { task, .. } => last.retain(|(t, _), _| t != task),
            _ => {}
        }
    }
    last.into_iter().map(|((task, _), earlier)| (task, earlier)).collect()
}

/// Seconds that the processes of a run took so far, each by its own clock.
fn spent(records: &[Record]) -> f64 {
    let (mut sum, mut latest) = (0.0, 0.0_f64);
    for record in records {
        let since = record.since.get();
        if since < latest {
            sum += latest;
        }
        latest = since;
    }
    sum + latest
}
