//! What a task tells, on its way to the journal: numbers in batches, names and notes bounded, secrets masked; and what
//! its numbers mean for what the plan expects and for later variants.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use super::{Message, Recorder, logs::series_labels, schedule::Task, secrets::Secrets};
use crate::{
    measure::{Finite, Labels, MetricPath, quantity::Bound, summary::Summary},
    record::{Body, Expectation, Level, Series, TaskId},
    stage::drive::{Earlier, Found, Tell},
};

/// Values are written when so many of a series have come.
const BATCH: usize = 4096;

/// Notes that a task may leave in the journal.
const MOST_NOTES: usize = 200;

/// Series and facts that a task may leave there: a program that puts the step into a label makes one for each line.
const MOST_NAMES: usize = 10_000;

/// What a task tells, on its way to the journal: numbers in batches, notes bounded, secrets masked.
pub(super) struct Book {
    task: TaskId,
    labels: Labels,
    recorder: Recorder,
    secrets: Arc<Secrets>,
    waiting: BTreeMap<Series, Vec<Finite>>,
    /// The values that an expectation is about; of others only the last.
    pub(super) all: BTreeMap<Series, Vec<Finite>>,
    wanted: BTreeSet<String>,
    notes: usize,
    facts: usize,
    /// Numbers and facts beyond the limit.
    left_out: usize,
    /// Numbers that are secrets.
    secret: usize,
}

impl Book {
    pub(super) fn new(task: &Task, recorder: Recorder, secrets: Arc<Secrets>) -> Self {
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
            secret: 0,
        }
    }

    pub(super) async fn take(&mut self, tell: Tell) {
        let task = self.task.clone();
        match tell {
            Tell::Found(Found { name, labels, unit, better, values }) => {
                let (name, labels, unit) = self.secrets.mask_series(name, labels, unit);
                let told = values.len();
                let values: Vec<Finite> =
                    values.into_iter().filter(|value| !self.secrets.is_secret(*value)).collect();
                self.secret += told - values.len();
                if values.is_empty() {
                    return;
                }
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

    pub(super) async fn flush(&mut self, end: bool) {
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
        if end && self.secret > 0 {
            words.push(format!("{} numbers were left out: each is the value of a secret", self.secret));
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

pub(super) fn expectations(task: &Task, found: &BTreeMap<Series, Vec<Finite>>) -> Vec<Expectation> {
    let meant = |path: &&(MetricPath, Bound)| applies(task, &path.0);
    task.expect.iter().filter(meant).map(|(path, bound)| expectation(path, bound, found)).collect()
}

/// An expectation with `gpus=8` is not about the variant `gpus=4`.
fn applies(task: &Task, path: &MetricPath) -> bool {
    path.labels.0.iter().all(|(k, v)| task.planned.labels.0.get(k).is_none_or(|own| own == v))
}

/// Expectations of a task that measured nothing: not met, and not failed either.
pub(super) fn unmeasured(task: &Task) -> Vec<Expectation> {
    expectations(task, &BTreeMap::new())
}

/// What later variants of the stage may compare themselves with.
pub(super) fn earlier(task: &Task, found: &BTreeMap<Series, Vec<Finite>>) -> Vec<Earlier> {
    let last = |(series, values): (&Series, &Vec<Finite>)| {
        let (labels, name) = (task.planned.labels.clone(), series.name.clone());
        values.last().map(|value| Earlier { labels, name, value: value.get() })
    };
    found.iter().filter_map(last).collect()
}
