//! Progress for people, on stderr: one line a machine on a terminal, plain lines elsewhere.

use std::{
    collections::BTreeMap,
    io::{IsTerminal as _, Write as _},
    time::Instant,
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::{
    findings::visible,
    record::{Body, Level, Outcome, OutcomeKind, PlannedTask, TaskId},
};

/// How much is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Talk {
    /// Only errors.
    Silent,
    /// What went wrong, and the end.
    Little,
    /// The end of every task, too.
    Normal,
    /// Beginnings and notes, too.
    Much,
}

/// Shows how a run goes.
pub struct Progress {
    talk: Talk,
    bars: Option<MultiProgress>,
    machines: BTreeMap<String, ProgressBar>,
    of_task: BTreeMap<TaskId, String>,
    begun: Instant,
    total: usize,
    ended: usize,
}

impl Progress {
    /// Progress over these tasks, of which `ended` have ended before.
    pub fn new(talk: Talk, tasks: &[PlannedTask], ended: usize) -> Self {
        let bars = (talk >= Talk::Normal && std::io::stderr().is_terminal()).then(MultiProgress::new);
        let machine = |t: &PlannedTask| match &t.endpoint {
            Some(endpoint) => format!("{}/{endpoint}", t.platform),
            None => t.platform.clone(),
        };
        let of_task = tasks.iter().map(|t| (t.id.clone(), machine(t))).collect();
        let (machines, begun, total) = (BTreeMap::new(), Instant::now(), tasks.len());
        Self { talk, bars, machines, of_task, begun, total, ended }
    }

    /// Takes all bars off the screen.
    pub fn clear(&mut self) {
        for bar in std::mem::take(&mut self.machines).into_values() {
            bar.finish_and_clear();
        }
    }

    fn line(&self, text: &str) {
        let clock = clock(self.begun.elapsed().as_secs());
        let text = format!("{clock} {}", visible(text));
        match &self.bars {
            Some(bars) => drop(bars.println(text)),
            None => drop(writeln!(std::io::stderr(), "{text}")),
        }
    }

    fn bar(&mut self, task: &TaskId) -> Option<&ProgressBar> {
        let bars = self.bars.as_ref()?;
        let machine = self.of_task.get(task)?.clone();
        Some(self.machines.entry(machine.clone()).or_insert_with(|| {
            let bar = bars.add(ProgressBar::new(1));
            let style = ProgressStyle::with_template("{prefix:20} {msg} {wide_bar} {elapsed} left {eta}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
            bar.set_prefix(machine);
            bar
        }))
    }
}

impl crate::runner::Watch for Progress {
    fn body(&mut self, body: &Body) {
        match body {
            Body::TaskStarted { task, attempt } => {
                if self.talk >= Talk::Much || (self.talk == Talk::Normal && self.bars.is_none()) {
                    let again = if *attempt > 1 { format!(" (try {attempt})") } else { String::new() };
                    self.line(&format!("{task}: begins{again}"));
                }
                if let Some(bar) = self.bar(task) {
                    bar.reset();
                    bar.set_length(0);
                    bar.set_message(task.to_string());
                }
            }
            Body::TaskEnded { task, outcome, retried, seconds, expectations, attempt, .. } => {
                if !retried {
                    self.ended += 1;
                }
                let quiet =
                    [OutcomeKind::Ok, OutcomeKind::Unsupported, OutcomeKind::Skipped].contains(&outcome.kind);
                let show = self.talk >= Talk::Normal || (self.talk == Talk::Little && !quiet);
                if show && (*attempt > 0 || self.talk >= Talk::Much || !quiet) {
                    let again = if *retried { ", will be tried again" } else { "" };
                    let took = clock(seconds.get() as u64);
                    let at = format!("[{}/{}]", self.ended, self.total);
                    self.line(&format!("{at} {task}: {} after {took}{again}", said(outcome)));
                }
                for missed in expectations.iter().filter(|e| e.met == Some(false)) {
                    let value = missed.value.map_or_else(|| "nothing".to_owned(), |v| v.to_string());
                    if self.talk >= Talk::Little {
                        self.line(&format!(
                            "{task}: expected {} {}, measured {value}",
                            missed.metric, missed.bound
                        ));
                    }
                }
            }
            Body::Note { task, level, text }
                if (self.talk >= Talk::Much || *level == Level::Warning) && self.talk >= Talk::Normal =>
            {
                let about = task.as_ref().map_or_else(String::new, |t| format!("{t}: "));
                self.line(&format!("{about}{text}"));
            }
            _ => {}
        }
    }

    fn progress(&mut self, task: &TaskId, done: f64, of: f64, rate: &str) {
        let message = format!("{task} {rate}");
        if let Some(bar) = self.bar(task) {
            bar.set_length(of as u64);
            bar.set_position(done as u64);
            bar.set_message(visible(&message).into_owned());
        }
    }
}

fn said(outcome: &Outcome) -> String {
    if outcome.reason.is_empty() {
        outcome.kind.to_string()
    } else {
        format!("{}: {}", outcome.kind, outcome.reason)
    }
}

/// `1:02:03` or `02:03`.
fn clock(seconds: u64) -> String {
    let (h, m, s) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if h > 0 { format!("{h}:{m:02}:{s:02}") } else { format!("{m:02}:{s:02}") }
}
