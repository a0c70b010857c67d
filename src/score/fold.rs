//! From the lines of a journal to observations: which tasks were planned, how each ended, what was seen.
//!
//! Not here: reading files, judging. Lines come one at a time, so that a journal of any length is never held as a
//! whole; a sample takes 8 bytes.
//!
//! Invariant: only the last try of a task counts, and what a task measured that did not end `ok` stays apart from
//! results.

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use super::judgement::Judgement;
use crate::record::{
    Body, Cause, CheckResult, Expectation, Level, Outcome, OutcomeKind, PlanRef, PlannedTask, Record,
    RunStarted, SCHEMA, Series, TaskId,
};

/// Why lines cannot be folded.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// The journal is of a later version.
    #[error("read a journal of schema {0}: this version knows up to {SCHEMA}")]
    NewerSchema(u32),
    /// The first line is missing, or there are two.
    #[error("fold line {seq}: {what}")]
    Order {
        /// The line's number.
        seq: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// A line speaks of a task that was never planned.
    #[error("fold line {seq}: task {task} was never planned")]
    UnknownTask {
        /// The line's number.
        seq: u64,
        /// The task.
        task: TaskId,
    },
    /// The judgement part of the plan does not read back.
    #[error("read the judgement part of the plan in the journal's first line")]
    Judgement(#[source] serde_json::Error),
    /// No line at all.
    #[error("fold a journal without a first line")]
    Empty,
}

/// A run as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct RunSeen {
    /// The version of planrun that began it.
    pub planrun: String,
    /// Its identity.
    pub id: String,
    /// Its plan.
    pub plan: PlanRef,
    /// A rehearsal.
    pub quick: bool,
    /// Wall clock at its first line.
    pub started: String,
    /// Wall clock at its end; `None`: it has not ended in order.
    pub finished: Option<String>,
    /// Whether every planned task has ended.
    pub complete: bool,
    /// Why it ended, in words.
    pub end_reason: Option<String>,
    /// How often another process went on with it.
    pub resumed: u32,
}

/// A planned task with all that is known of its last try.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskSeen {
    /// As planned.
    pub planned: PlannedTask,
    /// The number of its last try; 0: it never began.
    pub attempts: u32,
    /// How it ended; `None`: it has not been run yet.
    pub outcome: Option<Outcome>,
    /// Seconds that its last try took.
    pub seconds: Option<f64>,
    /// What the plan expected of it.
    pub expectations: Vec<Expectation>,
    /// Its raw output, relative to the run's folder.
    pub log: Option<String>,
    /// Facts about the host.
    pub facts: BTreeMap<String, Value>,
    /// Checks of the host.
    pub checks: Vec<CheckResult>,
    /// Values by series, in the order of their first value.
    pub series: Vec<(Series, Vec<f64>)>,
}

impl TaskSeen {
    fn new(planned: PlannedTask) -> Self {
        Self {
            planned,
            attempts: 0,
            outcome: None,
            seconds: None,
            expectations: Vec::new(),
            log: None,
            facts: BTreeMap::new(),
            checks: Vec::new(),
            series: Vec::new(),
        }
    }

    /// Whether its values are results: it ended `ok`.
    pub fn ok(&self) -> bool {
        self.outcome.as_ref().is_some_and(|o| o.kind == OutcomeKind::Ok)
    }
}

/// Something that a reader should know.
#[derive(Debug, Clone, PartialEq)]
pub struct NoteSeen {
    /// The task; `None`: the run.
    pub task: Option<TaskId>,
    /// How loud.
    pub level: Level,
    /// In words.
    pub text: String,
}

/// All that a journal says.
#[derive(Debug, Clone)]
pub struct Observations {
    /// The run.
    pub run: RunSeen,
    /// The judgement part of the plan; may be replaced, to judge again by another rubric or other prices.
    pub judgement: Judgement,
    /// Every planned task, in the plan's order.
    pub tasks: Vec<TaskSeen>,
    /// Notes in order.
    pub notes: Vec<NoteSeen>,
}

struct InProgress {
    run: RunSeen,
    judgement: Judgement,
    tasks: Vec<TaskSeen>,
    index: HashMap<TaskId, usize>,
    /// Of each task: where each of its series stands. A program may label every value, so a search would take long.
    series: Vec<HashMap<Series, usize>>,
    open: Vec<Open>,
    notes: Vec<NoteSeen>,
}

/// Where a task stands between its lines.
#[derive(Clone, PartialEq)]
enum Open {
    Closed,
    Running,
    Retrying(String),
}

/// Takes the lines of a journal one by one.
#[derive(Default)]
pub struct Fold(Option<InProgress>);

impl Fold {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next line.
    ///
    /// # Errors
    /// When the line cannot belong to a journal that this version wrote.
    pub fn push(&mut self, record: &Record) -> Result<(), FoldError> {
        let seq = record.seq;
        let Some(state) = &mut self.0 else {
            let Body::RunStarted(started) = &record.body else {
                return Err(FoldError::Order { seq, what: "the run has not begun" });
            };
            self.0 = Some(begin(started, &record.at)?);
            return Ok(());
        };
        match &record.body {
            Body::RunStarted(_) => return Err(FoldError::Order { seq, what: "the run begins twice" }),
            Body::RunResumed { .. } => {
                state.run.resumed += 1;
                (state.run.finished, state.run.end_reason) = (None, None);
            }
            Body::TaskStarted { task, attempt } => {
                let i = state.find(seq, task)?;
                let planned = state.tasks[i].planned.clone();
                state.tasks[i] = TaskSeen { attempts: *attempt, ..TaskSeen::new(planned) };
                state.series[i].clear();
                state.open[i] = Open::Running;
            }
            Body::Fact { task, name, value } => {
                let i = state.find(seq, task)?;
                state.tasks[i].facts.insert(name.clone(), value.clone());
            }
            Body::Check { task, check } => {
                let i = state.find(seq, task)?;
                state.tasks[i].checks.push(check.clone());
            }
            Body::Samples { task, series, values } => {
                let i = state.find(seq, task)?;
                let known = &mut state.tasks[i].series;
                let at = state.series[i].get(series).copied().unwrap_or_else(|| {
                    known.push((series.clone(), Vec::new()));
                    state.series[i].insert(series.clone(), known.len() - 1);
                    known.len() - 1
                });
                known[at].1.extend(values.iter().map(|v| v.get()));
            }
            Body::Note { task, level, text } => {
                let note = NoteSeen { task: task.clone(), level: *level, text: text.clone() };
                state.notes.push(note);
            }
            Body::TaskEnded { task, attempt, outcome, retried, seconds, expectations, log } => {
                let i = state.find(seq, task)?;
                let seen = &mut state.tasks[i];
                seen.attempts = *attempt;
                seen.seconds = (*attempt > 0).then(|| seconds.get());
                seen.expectations.clone_from(expectations);
                seen.log.clone_from(log);
                if *retried {
                    state.open[i] = Open::Retrying(outcome.reason.clone());
                } else {
                    seen.outcome = Some(outcome.clone());
                    state.open[i] = Open::Closed;
                }
            }
            Body::RunEnded { complete, reason } => {
                state.run.finished = Some(record.at.clone());
                state.run.complete = *complete;
                state.run.end_reason = Some(reason.clone());
            }
        }
        Ok(())
    }

    /// All that was seen. A task that began and has no end is `interrupted`: planrun itself ended while it ran.
    ///
    /// # Errors
    /// When there was no line at all.
    pub fn finish(self) -> Result<Observations, FoldError> {
        let mut state = self.0.ok_or(FoldError::Empty)?;
        for (task, open) in state.tasks.iter_mut().zip(&state.open) {
            let reason = match open {
                Open::Closed => continue,
                Open::Running => "planrun ended while it ran".to_owned(),
                Open::Retrying(last) => format!("planrun ended before the next try; the last one: {last}"),
            };
            task.outcome = Some(Outcome::new(OutcomeKind::Interrupted, Cause::Crashed, reason));
        }
        Ok(Observations {
            run: state.run,
            judgement: state.judgement,
            tasks: state.tasks,
            notes: state.notes,
        })
    }
}

impl InProgress {
    fn find(&self, seq: u64, task: &TaskId) -> Result<usize, FoldError> {
        self.index.get(task).copied().ok_or_else(|| FoldError::UnknownTask { seq, task: task.clone() })
    }
}

fn begin(started: &RunStarted, at: &str) -> Result<InProgress, FoldError> {
    if started.schema > SCHEMA {
        return Err(FoldError::NewerSchema(started.schema));
    }
    let judgement = serde_json::from_value(started.judgement.clone()).map_err(FoldError::Judgement)?;
    let tasks: Vec<TaskSeen> = started.tasks.iter().cloned().map(TaskSeen::new).collect();
    Ok(InProgress {
        run: RunSeen {
            planrun: started.planrun.clone(),
            id: started.run.clone(),
            plan: started.plan.clone(),
            quick: started.quick,
            started: at.to_owned(),
            finished: None,
            complete: false,
            end_reason: None,
            resumed: 0,
        },
        judgement,
        index: tasks.iter().enumerate().map(|(i, t)| (t.planned.id.clone(), i)).collect(),
        series: vec![HashMap::new(); tasks.len()],
        open: vec![Open::Closed; tasks.len()],
        tasks,
        notes: Vec::new(),
    })
}
