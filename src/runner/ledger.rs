//! What has ended so far, and what it found: the only state that lanes share.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use super::schedule::Schedule;
use crate::{
    record::{Cause, Outcome, OutcomeKind, PlannedTask, TaskId},
    stage::drive::Earlier,
};

/// A stage on a platform.
type Place = (String, String);

#[derive(Default)]
struct Entries {
    /// Tasks of a stage on a platform that have not ended.
    open: BTreeMap<Place, usize>,
    /// Outcomes of those that have.
    ended: BTreeMap<Place, Vec<Outcome>>,
    /// What tasks found, by everything of theirs but the variant.
    found: BTreeMap<(String, String, Option<String>, u32), Vec<Earlier>>,
    /// Places by the machine that they are on, with their lanes.
    machines: BTreeMap<String, Vec<(String, String)>>,
}

/// What has ended so far.
pub(super) struct Ledger {
    entries: Mutex<Entries>,
    changed: Notify,
}

/// What became of the stages that a task needs.
pub(super) enum Needs {
    /// All ended well.
    Met,
    /// This one did not: how the task ends that needs it.
    Failed(Outcome),
    /// Some have not ended.
    Open,
}

impl Ledger {
    /// A place is on this machine. Returns another place on it that does not take turns with this one: a hostname is no
    /// identity, but one start of one kernel is.
    pub(super) fn shares_machine(&self, boot_id: &str, place: &str, lane: &str) -> Option<String> {
        let mut entries = self.lock();
        let places = entries.machines.entry(boot_id.to_owned()).or_default();
        let other = places.iter().find(|(p, l)| p != place && l != lane).map(|(p, _)| p.clone());
        if !boot_id.is_empty() && !places.iter().any(|(p, _)| p == place) {
            places.push((place.to_owned(), lane.to_owned()));
        }
        other.filter(|_| !boot_id.is_empty())
    }

    pub(super) fn new(
        schedule: &Schedule,
        finished: &BTreeMap<TaskId, Outcome>,
        earlier: &[(TaskId, Earlier)],
    ) -> Self {
        let mut entries = Entries::default();
        let settled: BTreeMap<&TaskId, &Outcome> = schedule.settled.iter().map(|(id, o)| (id, o)).collect();
        for task in &schedule.planned {
            match finished.get(&task.id).or_else(|| settled.get(&task.id).copied()) {
                Some(outcome) => entries.ended.entry(place(task)).or_default().push(outcome.clone()),
                None => *entries.open.entry(place(task)).or_default() += 1,
            }
            let found = earlier.iter().filter(|(id, _)| *id == task.id).map(|(_, e)| e.clone());
            entries.found.entry(key(task)).or_default().extend(found);
        }
        Self { entries: Mutex::new(entries), changed: Notify::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A task has ended for good, and found this.
    pub(super) fn ended(&self, task: &PlannedTask, outcome: &Outcome, found: Vec<Earlier>) {
        let mut entries = self.lock();
        if let Some(open) = entries.open.get_mut(&place(task)) {
            *open = open.saturating_sub(1);
        }
        entries.ended.entry(place(task)).or_default().push(outcome.clone());
        if outcome.kind == OutcomeKind::Ok {
            entries.found.entry(key(task)).or_default().extend(found);
        }
        drop(entries);
        self.changed.notify_waiters();
    }

    /// What earlier variants of the same stage on the same machine in the same repetition found.
    pub(super) fn earlier(&self, task: &PlannedTask) -> Vec<Earlier> {
        self.lock().found.get(&key(task)).cloned().unwrap_or_default()
    }

    /// Whether what a task needs has ended well.
    pub(super) fn needs(&self, platform: &str, stages: &[String]) -> Needs {
        let entries = self.lock();
        for stage in stages {
            let place = (platform.to_owned(), stage.clone());
            if entries.open.get(&place).is_some_and(|n| *n > 0) {
                return Needs::Open;
            }
            let ended = entries.ended.get(&place).map_or(&[][..], Vec::as_slice);
            let bad = ended.iter().find(|o| !matches!(o.kind, OutcomeKind::Ok) && !harmless(o));
            if let Some(bad) = bad {
                return Needs::Failed(without(stage, bad));
            }
            if !ended.iter().any(|o| o.kind == OutcomeKind::Ok) {
                let none = Outcome::new(OutcomeKind::Skipped, Cause::NeedFailed, "");
                return Needs::Failed(without(stage, ended.first().unwrap_or(&none)));
            }
        }
        Needs::Met
    }

    /// Waits until something ends that had not when `check` last looked.
    pub(super) async fn wait_until<T>(&self, mut check: impl FnMut(&Self) -> Option<T>) -> T {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            // Registered before looking: an end in between wakes us.
            changed.as_mut().enable();
            if let Some(answer) = check(self) {
                return answer;
            }
            changed.await;
        }
    }
}

/// A variant that this host cannot do takes nothing from the others.
fn harmless(outcome: &Outcome) -> bool {
    outcome.kind == OutcomeKind::Unsupported && outcome.cause == Cause::NotEnoughDevices
}

/// How a task ends that needs a stage which ended like this. What was left out on purpose, or is not offered, takes
/// along what builds on it; neither is a failure.
fn without(stage: &str, bad: &Outcome) -> Outcome {
    let reason = format!("it needs `{stage}`, which ended {}: {}", bad.kind, bad.reason);
    match (bad.kind, bad.cause) {
        (OutcomeKind::Skipped, Cause::NotSelected)
        | (OutcomeKind::Unsupported, Cause::NotOffered | Cause::NotEnoughDevices) => {
            Outcome::new(bad.kind, bad.cause, reason)
        }
        _ => Outcome::new(OutcomeKind::Skipped, Cause::NeedFailed, reason),
    }
}

fn place(task: &PlannedTask) -> Place {
    (task.platform.clone(), task.stage.clone())
}

fn key(task: &PlannedTask) -> (String, String, Option<String>, u32) {
    (task.platform.clone(), task.stage.clone(), task.endpoint.clone(), task.repeat)
}
