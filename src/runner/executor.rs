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
    Ledger, Message, Place, Recorder, Stop, Ways,
    clock::Reading,
    ledger::Needs,
    link::{Link, Terms},
    logs::{Logs, series_labels, task_dir},
    schedule::Task,
    secrets::Secrets,
};
use crate::{
    measure::{Better, Finite, Labels, MetricPath, Unit, quantity::Bound, summary::Summary},
    record::{Body, Cause, Expectation, Level, Outcome, OutcomeKind, Series, TaskId},
    stage::{
        drive::{Drive, Earlier, Found, Tell},
        host::{Run as Program, TELEMETRY},
    },
};

/// Between TERM and KILL.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// How long an agent may take to clean up after a task before it is given up.
const CLEAN_UP: Duration = Duration::from_secs(20);

/// Values are written when so many of a series have come, or so much time has passed.
const BATCH: usize = 4096;
/// See [`BATCH`].
const FLUSH_EVERY: Duration = Duration::from_secs(5);

/// Notes that a task may leave in the journal.
const MOST_NOTES: usize = 200;

/// Series and facts that a task may leave there: a program that puts the step into a label makes one for each line.
const MOST_NAMES: usize = 10_000;

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
    pub(super) transport: Ways,
    pub(super) ledger: Arc<Ledger>,
    pub(super) recorder: Recorder,
    pub(super) stop: watch::Receiver<Option<Stop>>,
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
        for task in tasks.iter().filter(|t| !finished.contains_key(&t.planned.id)) {
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
            self.task(task, &mut links, *left == 0).await;
        }
        for link in links.into_values() {
            link.close().await;
        }
    }

    /// Takes one task to its end, with the tries that the plan allows.
    async fn task(&mut self, task: &Task, links: &mut BTreeMap<String, Link>, last: bool) {
        // Numbers go on where an earlier process stopped, so that its logs are not mixed with ours.
        let before = self.begun.get(&task.planned.id).copied().unwrap_or(0);
        for attempt in before + 1.. {
            let id = task.planned.id.clone();
            if !self.recorder.edge(Body::TaskStarted { task: id, attempt }).await {
                return;
            }
            let tried = self.attempt(task, attempt, links, last).await;
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
        last: bool,
    ) -> Tried {
        let begun = Instant::now();
        let (tell, told) = mpsc::unbounded_channel();
        let mut book = Book::new(task, self.recorder.clone(), self.secrets.clone());
        // What was told is written down before the work goes on: a flood of numbers must not pile up here.
        let outcome = {
            let work = self.work(task, (attempt, last), links, tell);
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
        &self,
        task: &Task,
        (attempt, last): (u32, bool),
        links: &mut BTreeMap<String, Link>,
        tell: mpsc::UnboundedSender<Tell>,
    ) -> Result<(), Outcome> {
        let place = &task.place.name;
        let mut first_offset = None;
        if !links.contains_key(place) {
            let transport = (self.transport)(&task.place)?;
            let lasting = transport.lasting();
            let link = tokio::select! {
                link = Link::open(transport, self.terms(task)) => link?,
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
                first_offset = Some(tokio::spawn(link.offset().read()));
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
        let over_the_net = task.place.ssh.is_some();
        // Contact may have to come back first.
        let patience = if over_the_net { self.lease + CLEAN_UP } else { CLEAN_UP };
        let offset = link.offset();
        let again = async { if over_the_net && last { offset.read().await } else { None } };
        let (cleaned, again) = tokio::join!(timeout(patience, link.host.finish()), again);
        tell_offset("end", again, &tell);
        tell_gaps(&link.take_gaps(), &tell);
        for line in link.take_noise() {
            let _ = tell.send(Tell::Note(false, format!("beside the agent's messages: {line}")));
        }
        match cleaned {
            Ok(Ok(swept)) => {
                if !swept.stuck.is_empty() {
                    let text = format!(
                        "processes {:?} could not be ended: the kernel does not let them go",
                        swept.stuck
                    );
                    let _ = tell.send(Tell::Note(true, text));
                }
                for trouble in swept.troubles {
                    let _ = tell.send(Tell::Note(true, trouble));
                }
            }
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
        Terms {
            run: self.run.clone(),
            place: place_name(&task.place),
            lease: self.lease,
            grace: GRACE,
            cpus: task.place.cpus,
            workdir: task.place.workdir.clone(),
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
    host.start(Program::probe(TELEMETRY, "telemetry", &spec)).await?;
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

/// What a task tells, on its way to the journal: numbers in batches, notes bounded, secrets masked.
struct Book {
    task: TaskId,
    labels: Labels,
    recorder: Recorder,
    secrets: Arc<Secrets>,
    waiting: BTreeMap<Series, Vec<Finite>>,
    /// The values that an expectation is about; of others only the last.
    all: BTreeMap<Series, Vec<Finite>>,
    wanted: BTreeSet<String>,
    notes: usize,
    facts: usize,
    /// Numbers and facts beyond the limit.
    left_out: usize,
}

impl Book {
    fn new(task: &Task, recorder: Recorder, secrets: Arc<Secrets>) -> Self {
        let (labels, waiting, all) = (task.labels.clone(), BTreeMap::new(), BTreeMap::new());
        let wanted = task.expect.iter().map(|(path, _)| path.name.clone()).collect();
        let (notes, facts, left_out) = (0, 0, 0);
        Self {
            task: task.planned.id.clone(),
            labels,
            recorder,
            secrets,
            waiting,
            all,
            wanted,
            notes,
            facts,
            left_out,
        }
    }

    async fn take(&mut self, tell: Tell) {
        let task = self.task.clone();
        match tell {
            Tell::Found(Found { name, labels, unit, better, values }) => {
                let (name, labels, unit) = self.secrets.mask_series(name, labels, unit);
                let series = Series { name, labels: series_labels(&self.labels, labels), unit, better };
                if !self.all.contains_key(&series) && self.all.len() >= MOST_NAMES {
                    self.left_out += values.len();
                    return;
                }
                let kept = self.all.entry(series.clone()).or_default();
                if self.wanted.contains(&series.name) {
                    kept.extend(&values);
                } else {
                    kept.clear();
                    kept.extend(values.last());
                }
                let waiting = self.waiting.entry(series).or_default();
                waiting.extend(values);
                if waiting.len() >= BATCH {
                    self.flush(false).await;
                }
            }
            Tell::Fact(name, value) => {
                self.facts += 1;
                if self.facts > MOST_NAMES {
                    self.left_out += 1;
                    return;
                }
                let (name, value) = (self.secrets.mask(&name), self.secrets.mask_value(value));
                self.recorder.record(Body::Fact { task, name, value }).await;
            }
            Tell::Check(check) => {
                let check = self.secrets.mask_check(check);
                self.recorder.record(Body::Check { task, check }).await;
            }
            Tell::Note(loud, text) => {
                self.notes += 1;
                if self.notes > MOST_NOTES {
                    return;
                }
                let level = if loud { Level::Warning } else { Level::Info };
                let text = self.secrets.mask(&text);
                self.recorder.record(Body::Note { task: Some(task), level, text }).await;
            }
            Tell::Progress(done, of, rate) => {
                let _ = self.recorder.0.send(Message::Progress(task, done, of, rate)).await;
            }
        }
    }

    async fn flush(&mut self, end: bool) {
        for (series, values) in std::mem::take(&mut self.waiting) {
            let task = self.task.clone();
            self.recorder.record(Body::Samples { task, series, values }).await;
        }
        let mut words = Vec::new();
        if end && self.notes > MOST_NOTES {
            words.push(format!("{} more notes were left out", self.notes - MOST_NOTES));
        }
        if end && self.left_out > 0 {
            words.push(format!(
                "{} numbers or facts were left out: more than {MOST_NAMES} different series or facts",
                self.left_out
            ));
        }
        for text in words {
            let (task, level) = (Some(self.task.clone()), Level::Warning);
            self.recorder.record(Body::Note { task, level, text }).await;
        }
    }
}

/// The result of one expectation over all series that it selects: the median of each must hold.
fn expectation(path: &MetricPath, bound: &Bound, found: &BTreeMap<Series, Vec<Finite>>) -> Expectation {
    let (mut value, mut met) = (None, None);
    for (series, values) in found.iter().filter(|(s, _)| s.name == path.name && path.labels.within(&s.labels))
    {
        let numbers: Vec<f64> = values.iter().map(|v| v.get()).collect();
        let (Some(summary), Ok((comparison, limit))) = (Summary::of(&numbers), bound.limit_in(&series.unit))
        else {
            continue;
        };
        let holds = comparison.holds(summary.median.get(), limit);
        // The first that fails is the one to show.
        if met != Some(false) {
            met = Some(holds);
            let shown = match bound {
                Bound::Number { unit: Some(unit), .. } => series.unit.convert(summary.median.get(), unit),
                _ => Some(summary.median.get()),
            };
            value = shown.and_then(|v| Finite::new(v).ok());
        }
    }
    Expectation { metric: path.to_string(), bound: bound.to_string(), value, met }
}

fn expectations(task: &Task, found: &BTreeMap<Series, Vec<Finite>>) -> Vec<Expectation> {
    let meant = |path: &&(MetricPath, Bound)| applies(task, &path.0);
    task.expect.iter().filter(meant).map(|(path, bound)| expectation(path, bound, found)).collect()
}

/// An expectation with `gpus=8` is not about the variant `gpus=4`.
fn applies(task: &Task, path: &MetricPath) -> bool {
    path.labels.0.iter().all(|(k, v)| task.planned.labels.0.get(k).is_none_or(|own| own == v))
}

/// Expectations of a task that measured nothing: not met, and not failed either.
fn unmeasured(task: &Task) -> Vec<Expectation> {
    expectations(task, &BTreeMap::new())
}

/// What later variants of the stage may compare themselves with.
fn earlier(task: &Task, found: &BTreeMap<Series, Vec<Finite>>) -> Vec<Earlier> {
    let last = |(series, values): (&Series, &Vec<Finite>)| {
        let (labels, name) = (task.planned.labels.clone(), series.name.clone());
        values.last().map(|value| Earlier { labels, name, value: value.get() })
    };
    found.iter().filter_map(last).collect()
}
