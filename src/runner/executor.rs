//! An executor: takes the tasks of one lane one after the other to their hosts and tells the dispatcher everything.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};

use super::{
    Ledger, Place, Recorder, Stop, Ways,
    book::{Book, earlier, expectations, unmeasured},
    clock::Reading,
    ledger::Needs,
    link::{Link, Terms},
    logs::{Logs, task_dir},
    schedule::Task,
    secrets::Secrets,
};
use crate::{
    measure::{Better, Finite, Labels, Unit},
    record::{Body, Cause, Expectation, Outcome, OutcomeKind, Series, TaskId},
    stage::{
        drive::{Drive, Earlier, Found, Tell},
        host::{Run as Program, Swept, TELEMETRY},
    },
};

/// Between TERM and KILL.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// How long an agent may take to clean up after a task before it is given up.
const CLEAN_UP: Duration = Duration::from_secs(20);

/// Values are written when so much time has passed, whether or not many have come.
const FLUSH_EVERY: Duration = Duration::from_secs(5);

/// Pings under way at a time: the clock is read within two round trips.
const PINGS_AT_ONCE: u32 = 8;

/// Seconds after which the host is sampled: a task that is over before has nothing to sample.
const TELEMETRY_AFTER: f64 = 0.1;

/// How long a new agent may take to end what one that is gone has left behind.
const REAP: Duration = Duration::from_secs(10);

/// Runs the tasks of one lane.
pub(super) struct Executor {
    pub(super) run: String,
    pub(super) dir: PathBuf,
    pub(super) quick: bool,
    pub(super) lease: Duration,
    pub(super) secrets: Arc<Secrets>,
    /// Tries that an earlier process of this run has begun.
    pub(super) begun: Arc<BTreeMap<TaskId, u32>>,
    /// Whether an earlier process of this run was at work.
    pub(super) resumed: bool,
    /// Places where an agent of this process has been.
    pub(super) opened: BTreeSet<String>,
    pub(super) transport: Ways,
    pub(super) ledger: Arc<Ledger>,
    pub(super) recorder: Recorder,
    pub(super) stop: watch::Receiver<Option<Stop>>,
}

/// What follows a task in its lane.
#[derive(Clone, Copy)]
struct Next {
    /// The next task is on the same host.
    goes_on: bool,
    /// No other task is on this host.
    last: bool,
}

/// What one try of a task came to.
struct Tried {
    outcome: Outcome,
    found: BTreeMap<Series, Vec<Finite>>,
    seconds: Finite,
}

impl Executor {
    /// Takes all tasks of the lane to their end, or until the run stops.
    pub(super) async fn lane(mut self, tasks: Vec<Task>, finished: BTreeMap<TaskId, Outcome>) {
        let mut links: BTreeMap<String, Link> = BTreeMap::new();
        let mut left: BTreeMap<&str, usize> = BTreeMap::new();
        for task in &tasks {
            *left.entry(&task.place.name).or_default() +=
                usize::from(!finished.contains_key(&task.planned.id));
        }
        let todo: Vec<&Task> = tasks.iter().filter(|t| !finished.contains_key(&t.planned.id)).collect();
        for (index, task) in todo.iter().enumerate() {
            let needs = {
                let (platform, stages) = (task.planned.platform.clone(), task.needs.clone());
                let met = self.ledger.wait_until(|ledger| match ledger.needs(&platform, &stages) {
                    Needs::Open => None,
                    Needs::Met => Some(Ok(())),
                    Needs::Failed(why) => Some(Err(why)),
                });
                tokio::select! {
                    met = met => met,
                    () = stopped(self.stop.clone()) => break,
                }
            };
            if self.stop.borrow().is_some() {
                break;
            }
            if let Err(outcome) = needs {
                self.end(task, 0, outcome, false, Finite::default(), Vec::new(), Vec::new()).await;
                continue;
            }
            let left = left.entry(&task.place.name).or_default();
            *left -= 1;
            let goes_on = todo.get(index + 1).is_some_and(|next| next.place.name == task.place.name);
            self.task(task, &mut links, Next { goes_on, last: *left == 0 }).await;
        }
        for link in links.into_values() {
            link.close().await;
        }
    }

    /// Takes one task to its end, with the tries that the plan allows.
    async fn task(&mut self, task: &Task, links: &mut BTreeMap<String, Link>, next: Next) {
        // Numbers go on where an earlier process stopped, so that its logs are not mixed with ours.
        let before = self.begun.get(&task.planned.id).copied().unwrap_or(0);
        for attempt in before + 1.. {
            let id = task.planned.id.clone();
            if !self.recorder.edge(Body::TaskStarted { task: id, attempt }).await {
                return;
            }
            let tried = self.attempt(task, attempt, links, next).await;
            let again = attempt - before <= task.retries
                && self.stop.borrow().is_none()
                && matches!(tried.outcome.kind, OutcomeKind::Failed | OutcomeKind::Lost)
                && helps_to_retry(tried.outcome.cause);
            let (expectations, found) = match tried.outcome.kind {
                OutcomeKind::Ok => (expectations(task, &tried.found), earlier(task, &tried.found)),
                _ => (unmeasured(task), Vec::new()),
            };
            let expectations = if again { Vec::new() } else { expectations };
            self.end(task, attempt, tried.outcome, again, tried.seconds, expectations, found).await;
            if !again {
                return;
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one line of the journal")]
    async fn end(
        &self,
        task: &Task,
        attempt: u32,
        outcome: Outcome,
        retried: bool,
        seconds: Finite,
        expectations: Vec<Expectation>,
        found: Vec<Earlier>,
    ) {
        let log = format!("logs/{}", task_dir(&task.planned).display());
        let log = (attempt > 0 && self.dir.join(&log).exists()).then_some(log);
        let outcome = Outcome { reason: self.secrets.mask(&outcome.reason), ..outcome };
        let body = Body::TaskEnded {
            task: task.planned.id.clone(),
            attempt,
            outcome: outcome.clone(),
            retried,
            seconds,
            expectations,
            log,
        };
        // Others may only build on this once it cannot be lost.
        if self.recorder.edge(body).await && !retried {
            self.ledger.ended(&task.planned, &outcome, found);
        }
    }

    /// One try.
    async fn attempt(
        &mut self,
        task: &Task,
        attempt: u32,
        links: &mut BTreeMap<String, Link>,
        next: Next,
    ) -> Tried {
        let begun = Instant::now();
        let (tell, told) = mpsc::unbounded_channel();
        let mut book = Book::new(task, self.recorder.clone(), self.secrets.clone());
        // What was told is written down before the work goes on: a flood of numbers must not pile up here.
        let outcome = {
            let work = self.work(task, (attempt, next), links, tell);
            tokio::pin!(work);
            let mut told = told;
            let mut flush = tokio::time::interval(FLUSH_EVERY);
            let outcome = loop {
                tokio::select! {
                    biased;
                    Some(tell) = told.recv() => {
                        book.take(tell).await;
                        while let Ok(tell) = told.try_recv() {
                            book.take(tell).await;
                        }
                    }
                    _ = flush.tick() => book.flush(false).await,
                    outcome = &mut work => break outcome,
                }
            };
            while let Ok(tell) = told.try_recv() {
                book.take(tell).await;
            }
            outcome
        };
        book.flush(true).await;
        let outcome = outcome.err().unwrap_or_else(Outcome::ok);
        let seconds = Finite::new(begun.elapsed().as_secs_f64()).unwrap_or_default();
        Tried { outcome, found: book.all, seconds }
    }

    /// The link to the task's host, opened if need be; then the work, its limit, and the clean-up.
    async fn work(
        &mut self,
        task: &Task,
        (attempt, next): (u32, Next),
        links: &mut BTreeMap<String, Link>,
        tell: mpsc::UnboundedSender<Tell>,
    ) -> Result<(), Outcome> {
        let place = &task.place.name;
        let mut first_offset = None;
        if !links.contains_key(place) {
            let transport = (self.transport)(&task.place)?;
            let lasting = transport.lasting();
            let terms = self.terms(task);
            self.opened.insert(place.clone());
            let link = tokio::select! {
                link = Link::open(transport, terms) => link?,
                stop = self.stopped() => return Err(stop.outcome()),
            };
            if link.hello.reaped > 0 {
                let text = format!(
                    "{} processes of an earlier agent of this run were still there and were ended",
                    link.hello.reaped
                );
                let _ = tell.send(Tell::Note(true, text));
            }
            for note in &link.notes {
                let _ = tell.send(Tell::Note(true, note.clone()));
            }
            if lasting {
                first_offset = Some(tokio::spawn(link.offset(PINGS_AT_ONCE).read()));
                self.say_if_shared(task, &link, &tell);
            }
            links.insert(place.clone(), link);
        }
        let Some(link) = links.get_mut(place) else {
            return Err(Outcome::new(OutcomeKind::Failed, Cause::Internal, "no link"));
        };
        let logs = Logs::new(&self.dir, &task.planned, attempt, tell.clone(), self.secrets.clone());
        let earlier = self.ledger.earlier(&task.planned);
        let limit = task.timeout.std();
        let done = tokio::select! {
            done = timeout(limit, drive(self.quick, task, &earlier, link, Box::new(logs), tell.clone())) => done,
            stop = self.stopped() => Ok(Err(stop.outcome())),
        };
        let outcome = done.unwrap_or_else(|_| Err(timed_out(task, link.host.heard.elapsed())));
        if let Some(reading) = first_offset {
            tell_offset("start", reading.await.ok().flatten(), &tell);
        }
        tell_gaps(&link.take_gaps(), &tell);
        if next.goes_on && outcome.is_ok() {
            // The next task's words go out behind this one's goodbye, without a round trip in between.
            let told = link.host.finish_soon().await;
            tell_swept(link.host.take_swept(), &tell);
            for line in link.take_noise() {
                let _ = tell.send(Tell::Note(false, format!("beside the agent's messages: {line}")));
            }
            return outcome.and(told);
        }
        let over_the_net = task.place.ssh.is_some();
        // Contact may have to come back first.
        let patience = if over_the_net { self.lease + CLEAN_UP } else { CLEAN_UP };
        let offset = link.offset(PINGS_AT_ONCE);
        let again = async { if over_the_net && next.last { offset.read().await } else { None } };
        let (cleaned, again) = tokio::join!(timeout(patience, link.host.finish()), again);
        tell_offset("end", again, &tell);
        tell_gaps(&link.take_gaps(), &tell);
        for line in link.take_noise() {
            let _ = tell.send(Tell::Note(false, format!("beside the agent's messages: {line}")));
        }
        match cleaned {
            Ok(Ok(swept)) => tell_swept(swept, &tell),
            Ok(Err(silence)) => {
                let mut known = None;
                if let Some(link) = links.remove(place) {
                    known = link.lost();
                    for line in link.close().await {
                        let _ = tell.send(Tell::Note(true, format!("the agent's last words: {line}")));
                    }
                }
                self.reap(task, links, &tell).await;
                let why = known.unwrap_or(silence);
                // The stage only saw its host fall silent; the link knows why.
                return match outcome {
                    Err(o) if o.cause != Cause::ContactLost => Err(o),
                    _ => Err(why),
                };
            }
            Err(_) => {
                let text =
                    "the agent did not clean up in time and was given up; it ends by itself".to_owned();
                let _ = tell.send(Tell::Note(true, text));
                links.remove(place);
            }
        }
        outcome
    }

    /// Two candidates on one machine spoil each other's numbers.
    fn say_if_shared(&self, task: &Task, link: &Link, tell: &mpsc::UnboundedSender<Tell>) {
        let Link { hello, .. } = link;
        let (place, lane) = (&task.place.name, &task.place.lane);
        if let Some(other) = self.ledger.shares_machine(&hello.boot_id, place, lane) {
            let text = format!(
                "this is the machine of `{other}`, too (one boot id): what runs on both at once disturbs the other's \
                 numbers; give both endpoints one `lane`"
            );
            let _ = tell.send(Tell::Note(true, text));
        }
    }

    fn terms(&self, task: &Task) -> Terms {
        let again = self.resumed || self.opened.contains(&task.place.name);
        Terms {
            run: self.run.clone(),
            place: place_name(&task.place),
            lease: self.lease,
            grace: GRACE,
            cpus: task.place.cpus,
            workdir: task.place.workdir.clone(),
            again,
        }
    }

    /// The agent is gone, and what it started may not be: a new one ends it, whether or not another task follows.
    async fn reap(
        &self,
        task: &Task,
        links: &mut BTreeMap<String, Link>,
        tell: &mpsc::UnboundedSender<Tell>,
    ) {
        let Ok(transport) = (self.transport)(&task.place) else { return };
        match timeout(REAP, Link::open(transport, self.terms(task))).await {
            Ok(Ok(link)) => {
                if link.hello.reaped > 0 {
                    let text =
                        format!("{} processes that the lost agent had left were ended", link.hello.reaped);
                    let _ = tell.send(Tell::Note(true, text));
                }
                links.insert(task.place.name.clone(), link);
            }
            Ok(Err(e)) => {
                let text = format!("what the lost agent had started may still run: {}", e.reason);
                let _ = tell.send(Tell::Note(true, text));
            }
            Err(_) => {
                let text = "what the lost agent had started may still run: no agent answers".to_owned();
                let _ = tell.send(Tell::Note(true, text));
            }
        }
    }

    async fn stopped(&self) -> Stop {
        let mut stop = self.stop.clone();
        loop {
            if let Some(why) = stop.borrow_and_update().clone() {
                return why;
            }
            if stop.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// The name of a place on its host. No name holds an `@`: `a/b` and a platform `a-b` do not share a folder.
pub(super) fn place_name(place: &Place) -> String {
    place.name.replace('/', "@")
}

/// Begins the task, samples the host beside it, and lets the stage do its work.
async fn drive(
    quick: bool,
    task: &Task,
    earlier: &[Earlier],
    link: &mut Link,
    logs: Box<Logs>,
    tell: mpsc::UnboundedSender<Tell>,
) -> Result<(), Outcome> {
    let host = &mut link.host;
    host.begin(&task.planned.id.0, logs).await?;
    // As many samples as it gets to take: it is ended with the task.
    let spec = serde_json::json!({ "samples": u64::MAX, "interval_seconds": if quick { 0.25 } else { 1.0 } });
    let after = Some(TELEMETRY_AFTER);
    host.start(Program { after, ..Program::probe(TELEMETRY, "telemetry", &spec) }).await?;
    let mut drive = Drive {
        site: &task.site,
        host,
        workload: task.workload.as_ref().map(|(name, workload)| (name.as_str(), workload)),
        stage: &task.planned.stage,
        labels: &task.planned.labels,
        repeat: task.planned.repeat,
        quick,
        earlier,
        tell,
    };
    task.spec.drive(&mut drive).await
}

/// What the agent could not clean up.
fn tell_swept(swept: Swept, tell: &mpsc::UnboundedSender<Tell>) {
    if !swept.stuck.is_empty() {
        let text = format!("processes {:?} could not be ended: the kernel does not let them go", swept.stuck);
        let _ = tell.send(Tell::Note(true, text));
    }
    for trouble in swept.troubles {
        let _ = tell.send(Tell::Note(true, trouble));
    }
}

/// How far the host's clock is from ours.
fn tell_offset(when: &str, reading: Option<Reading>, tell: &mpsc::UnboundedSender<Tell>) {
    let Some(Reading { offset, error }) = reading else { return };
    for (name, value, better) in
        [("host_clock_offset", offset, Better::Neither), ("host_clock_offset_error", error, Better::Lower)]
    {
        let (name, labels) = (name.to_owned(), Labels([("at".to_owned(), when.to_owned())].into()));
        let values = Finite::new(rounded(value)).into_iter().collect();
        let _ = tell.send(Tell::Found(Found { name, labels, unit: Unit::SECONDS, better, values }));
    }
}

/// To the microsecond: more is not known.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

/// Contact that was lost and came back: the task went on, and nothing that it said is missing.
fn tell_gaps(gaps: &[f64], tell: &mpsc::UnboundedSender<Tell>) {
    for gap in gaps {
        let text = format!("no contact with the host for {gap:.1} s; the task went on there");
        let _ = tell.send(Tell::Note(true, text));
    }
    let values: Vec<Finite> = gaps.iter().filter_map(|gap| Finite::new(*gap).ok()).collect();
    if !values.is_empty() {
        let (name, labels) = ("host_no_contact".to_owned(), Labels::default());
        let _ = tell.send(Tell::Found(Found {
            name,
            labels,
            unit: Unit::SECONDS,
            better: Better::Lower,
            values,
        }));
    }
}

fn timed_out(task: &Task, silent: Duration) -> Outcome {
    let limit = task.timeout;
    let hung = silent.as_secs_f64() > (limit.seconds / 2.0).max(60.0);
    let (cause, what) = if hung {
        (Cause::Hung, format!("; nothing was heard for the last {} s", silent.as_secs()))
    } else {
        (Cause::TimeLimit, String::new())
    };
    Outcome::new(OutcomeKind::TimedOut, cause, format!("it was not done within {limit}{what}"))
}

/// Waits until the run stops.
async fn stopped(mut stop: watch::Receiver<Option<Stop>>) {
    let _ = stop.wait_for(Option::is_some).await;
}

/// Whether another try may go better. A benchmark that gave a bad number is not repeated until it gives a good one.
fn helps_to_retry(cause: Cause) -> bool {
    use Cause::{CommandFailed, ContactLost, KilledBySignal, Rebooted, Unreachable};
    matches!(cause, CommandFailed | KilledBySignal | ContactLost | Unreachable | Rebooted)
}
