//! The runner: takes a schedule through its lanes and writes down all that happens.
//!
//! The dispatcher is the one writer of the journal and the one who knows whether the run goes on. Executors, one a
//! lane, run tasks one after the other and tell it everything. They share no state but a ledger of what has ended.
//! A failed task is data; an error here means that the run cannot go on.

mod book;
mod clock;
mod contact;
mod executor;
mod ledger;
mod link;
mod logs;
mod preflight;
mod schedule;
mod secrets;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    journal::{Journal, JournalError},
    measure::Finite,
    record::{Body, Cause, Level, Outcome, OutcomeKind, TaskId},
    stage::drive::Earlier,
    transport::Transport,
};
use executor::Executor;
use ledger::Ledger;

pub use preflight::{Look, look};
pub use schedule::{Choice, Place, Schedule, Task, least_seconds, schedule, target};
pub use secrets::Secrets;

/// A new identity for a run.
pub fn new_run_id() -> String {
    link::random_word()[..12].to_owned()
}

/// Gives the way to a place.
pub type Ways = Arc<dyn Fn(&Place) -> Result<Arc<dyn Transport>, Outcome> + Send + Sync>;

/// Why a run stops before all is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// A signal, with its number.
    Signal(i32),
    /// A limit of the plan, in words.
    Limit(String),
    /// The journal cannot be written.
    Journal,
    /// A fault of planrun.
    Bug,
}

impl Stop {
    /// How a task ends that was running.
    fn outcome(&self) -> Outcome {
        let (cause, reason) = match self {
            Self::Signal(n) => (Cause::Stopped, format!("the run was stopped by signal {n}")),
            Self::Limit(what) => (Cause::PlanLimit, what.clone()),
            Self::Journal => (Cause::Internal, "the journal could not be written".to_owned()),
            Self::Bug => (Cause::Internal, "another task met a fault of planrun".to_owned()),
        };
        Outcome::new(OutcomeKind::Interrupted, cause, reason)
    }
}

/// Sees everything as it happens, for people.
pub trait Watch: Send {
    /// A line of the journal.
    fn body(&mut self, body: &Body);
    /// How far a task is: done, of how many, and its rate as text.
    fn progress(&mut self, task: &TaskId, done: f64, of: f64, rate: &str);
}

/// All that a run needs.
pub struct Run {
    /// Its identity.
    pub id: String,
    /// The folder that it writes to.
    pub dir: PathBuf,
    /// What is to be done.
    pub schedule: Schedule,
    /// Outcomes of tasks that ended in an earlier process of this run: they are not repeated.
    pub finished: BTreeMap<TaskId, Outcome>,
    /// Tries that an earlier process of this run has begun, by task.
    pub begun: BTreeMap<TaskId, u32>,
    /// Whether an earlier process of this run was at work: agents then look for what it left behind.
    pub resumed: bool,
    /// What finished tasks found, for stages that compare their variants.
    pub earlier: Vec<(TaskId, Earlier)>,
    /// A rehearsal.
    pub quick: bool,
    /// How long hosts work on without us.
    pub lease: Duration,
    /// When to warn, and when to stop, in seconds left from now.
    pub warn_after: Option<f64>,
    /// When everything stops.
    pub stop_after: Option<f64>,
    /// Values that must not be written anywhere.
    pub secrets: Vec<String>,
    /// Ways to the hosts.
    pub transport: Ways,
    /// Set from outside when the run is to stop.
    pub stop: watch::Receiver<Option<Stop>>,
}

/// How a run went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// Whether every planned task has ended.
    pub complete: bool,
    /// Why it stopped before, if it did.
    pub stopped: Option<Stop>,
}

/// From an executor to the dispatcher.
enum Message {
    /// To be written; answered once it is on disk when somebody waits.
    Record(Body, Option<oneshot::Sender<()>>),
    /// Only for those who watch.
    Progress(TaskId, f64, f64, String),
}

/// The executors' way to the dispatcher.
#[derive(Clone)]
struct Recorder(mpsc::Sender<Message>);

impl Recorder {
    /// Writes down a fact, soon.
    async fn record(&self, body: Body) {
        let _ = self.0.send(Message::Record(body, None)).await;
    }

    /// Writes down the beginning or end of a task; returns once it is on disk, `false` if it never will be.
    async fn edge(&self, body: Body) -> bool {
        let (done, written) = oneshot::channel();
        self.0.send(Message::Record(body, Some(done))).await.is_ok() && written.await.is_ok()
    }
}

/// The line of a task that is settled before anything runs.
pub fn settled(task: &TaskId, outcome: &Outcome) -> Body {
    Body::TaskEnded {
        task: task.clone(),
        attempt: 0,
        outcome: outcome.clone(),
        retried: false,
        seconds: Finite::default(),
        expectations: Vec::new(),
        log: None,
    }
}

/// Messages that are written at once.
const BATCH: usize = 256;

/// Runs a schedule to its end, or until told to stop.
///
/// # Errors
/// When the journal cannot be written: nothing more is started then, what runs is ended.
pub async fn run(run: Run, journal: &mut Journal, watcher: &mut dyn Watch) -> Result<Ran, JournalError> {
    let (send, mut messages) = mpsc::channel(256);
    let (inner_stop, stop) = watch::channel(None::<Stop>);
    let planned: Vec<TaskId> = run.schedule.planned.iter().map(|t| t.id.clone()).collect();
    let mut ended = run.finished.len();
    let ledger = Arc::new(Ledger::new(&run.schedule, &run.finished, &run.earlier));
    let recorder = Recorder(send);
    for (task, outcome) in &run.schedule.settled {
        if !run.finished.contains_key(task) {
            let body = settled(task, outcome);
            watcher.body(&body);
            journal.append(body)?;
            ended += 1;
        }
    }
    let (secrets, begun) = (Arc::new(Secrets::new(&run.secrets)), Arc::new(run.begun));
    let mut lanes = tokio::task::JoinSet::new();
    for (_, tasks) in run.schedule.lanes {
        let executor = Executor {
            run: run.id.clone(),
            dir: run.dir.clone(),
            quick: run.quick,
            lease: run.lease,
            secrets: secrets.clone(),
            begun: begun.clone(),
            resumed: run.resumed,
            opened: std::collections::BTreeSet::new(),
            transport: run.transport.clone(),
            ledger: ledger.clone(),
            recorder: recorder.clone(),
            stop: stop.clone(),
        };
        let finished = run.finished.clone();
        lanes.spawn(executor.lane(tasks, finished));
    }
    drop(recorder);
    let clock = Clock::start();
    let mut outer = run.stop;
    let (mut failed, mut fault) = (None, None);
    let mut batch = Vec::with_capacity(BATCH);
    let mut warned = run.warn_after.is_none();
    let mut tick = tokio::time::interval(Duration::from_millis(500));
    loop {
        tokio::select! {
            count = messages.recv_many(&mut batch, BATCH) => {
                if count == 0 {
                    break;
                }
                // The disk is waited for once for all that have come meanwhile.
                let (mut bodies, mut done, mut ends) = (Vec::new(), Vec::new(), 0);
                for message in batch.drain(..) {
                    match message {
                        Message::Progress(task, done, of, rate) => watcher.progress(&task, done, of, &rate),
                        Message::Record(body, written) => {
                            watcher.body(&body);
                            // What was interrupted is not over: a resume takes it up again.
                            ends += usize::from(matches!(&body, Body::TaskEnded { retried: false, outcome, .. }
                                if outcome.kind != OutcomeKind::Interrupted));
                            bodies.push(body);
                            done.extend(written);
                        }
                    }
                }
                if failed.is_some() {
                    continue; // nobody is told that it was written
                }
                match journal.append_all(bodies) {
                    Ok(()) => {
                        ended += ends;
                        for waiting in done {
                            let _ = waiting.send(());
                        }
                    }
                    Err(e) => {
                        failed = Some(e);
                        inner_stop.send_replace(Some(Stop::Journal));
                    }
                }
            },
            Some(Err(e)) = lanes.join_next() => {
                if let Ok(payload) = e.try_into_panic() {
                    fault = Some(payload);
                    inner_stop.send_replace(Some(Stop::Bug));
                }
            }
            Ok(()) = outer.changed() => {
                let why = outer.borrow_and_update().clone();
                inner_stop.send_if_modified(|now| now.is_none() && { *now = why; now.is_some() });
            }
            _ = tick.tick() => {
                let elapsed = clock.elapsed();
                if !warned && run.warn_after.is_some_and(|limit| elapsed > limit) {
                    warned = true;
                    let text = "the run has passed limits.warn_after".to_owned();
                    let note = Body::Note { task: None, level: Level::Warning, text };
                    watcher.body(&note);
                    if let Err(e) = journal.append(note) {
                        failed = Some(e);
                        inner_stop.send_replace(Some(Stop::Journal));
                    }
                }
                if run.stop_after.is_some_and(|limit| elapsed > limit) {
                    let why = Some(Stop::Limit("limits.stop_after has passed".to_owned()));
                    inner_stop.send_if_modified(|now| now.is_none() && { *now = why; true });
                }
            }
        }
    }
    while let Some(joined) = lanes.join_next().await {
        fault = fault.or(joined.err().and_then(|e| e.try_into_panic().ok()));
    }
    if let Some(payload) = fault {
        // All that ran was ended and written down; the fault is for `main` to show.
        std::panic::resume_unwind(payload);
    }
    if let Some(e) = failed {
        return Err(e);
    }
    let stopped = inner_stop.borrow().clone();
    Ok(Ran { complete: ended >= planned.len(), stopped })
}

/// Seconds since a start, the time included that the machine slept.
struct Clock(f64);

impl Clock {
    fn start() -> Self {
        Self(Self::now())
    }
    fn now() -> f64 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
    }
    fn elapsed(&self) -> f64 {
        Self::now() - self.0
    }
}
