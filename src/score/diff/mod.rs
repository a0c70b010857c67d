//! What changed between two scorecards: metric by metric, cost by cost, and why the score moved.
//!
//! Not here: the decision on one pair of figures (`call`), the words of the headline (`headline`).
//!
//! Invariant: a scorecard against itself calls nothing better or worse; swapping the two swaps every call.

mod call;
mod headline;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use call::{Call, Direction, Figure, decide};

use super::{
    build, compare_hosts,
    cost::CostCard,
    judge,
    judgement::StageRef,
    query::Evidence,
    rubric::Rubric,
    scorecard::{GateCard, MetricCard, PlatformCard, Range, Score, Scorecard, VerdictKind, round6},
};
use crate::{
    measure::{Better, Labels, MetricPath, Money, Unit},
    record::{CheckOutcome, PlanRef},
};

/// The version of the comparison's format.
pub const SCHEMA: u32 = 1;
/// The relative change that counts as one, where runs are too few to test.
pub const BAND: f64 = 0.05;
/// How many metrics are headline metrics at most.
pub const HEADLINE: usize = 6;

/// Why two scorecards cannot be compared.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum DiffError {
    /// One of them is a rehearsal.
    #[error("compare run {0}: it is a rehearsal (`--quick`), whose numbers say nothing about speed")]
    Quick(String),
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Diff {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The earlier one.
    pub old: Side,
    /// The later one.
    pub new: Side,
    /// The relative change that counts, where runs are too few to test.
    pub band: f64,
    /// What a manager must know, in a sentence or two.
    pub headline: String,
    /// The candidates: those of the new scorecard in its order, then those that are gone.
    pub platforms: Vec<PlatformDiff>,
    /// What makes the comparison uneven.
    pub cautions: Vec<String>,
}

/// One of the two scorecards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Side {
    /// Its plan.
    pub plan: PlanRef,
    /// Its run.
    pub run: String,
    /// When that began.
    pub started: String,
    /// Its rubric.
    pub rubric: String,
    /// Its weight preset.
    pub preset: Option<String>,
}

/// A candidate then and now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PlatformDiff {
    /// Its key.
    pub id: String,
    /// Its name.
    pub title: String,
    /// In which of the two it stands.
    pub presence: Presence,
    /// Its verdict before.
    pub old_verdict: Option<VerdictKind>,
    /// Its verdict now.
    pub new_verdict: Option<VerdictKind>,
    /// How its score moved.
    pub score: Option<ScoreDelta>,
    /// Every metric, headline metrics first.
    pub metrics: Vec<MetricDelta>,
    /// What a finished job costs, then and now.
    pub costs: Vec<CostDelta>,
    /// Checks that came out otherwise.
    pub checks: Vec<CheckDelta>,
    /// Gates that fire now.
    pub gates: Vec<GateCard>,
    /// What changed about its machines.
    pub cautions: Vec<String>,
}

/// Where a candidate stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// In both.
    Both,
    /// Only in the new one.
    Appeared,
    /// Only in the old one.
    Gone,
}

/// A metric then and now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricDelta {
    /// Its identity.
    pub id: String,
    /// Its unit.
    pub unit: Unit,
    /// Which way it gets better.
    pub better: Better,
    /// Whether it is a headline metric.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub headline: bool,
    /// Before.
    pub old: Option<Figure>,
    /// Now.
    pub new: Option<Figure>,
    /// The relative change of the median: 0.1 is 10 % more; null where there is none to give.
    pub change: Option<f64>,
    /// What to make of it.
    pub call: Call,
    /// Better or worse, where the call has a direction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Why so.
    pub why: String,
}

/// The least and the most of a score, moved by so much.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
pub struct Shift {
    /// The least.
    pub low: f64,
    /// The most.
    pub high: f64,
}

impl Shift {
    fn between(old: Score, new: Score) -> Self {
        Self { low: round6(new.low - old.low), high: round6(new.high - old.high) }
    }
}

/// How a score moved and what moved it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScoreDelta {
    /// Before.
    pub old: Range,
    /// Now.
    pub new: Range,
    /// All together.
    pub change: Shift,
    /// By what was measured, under the old rubric with the old offer and answers.
    pub by_measurement: Shift,
    /// By offer and answers, under the old rubric.
    pub by_price: Shift,
    /// By the rubric and its weights.
    pub by_rule: Shift,
}

/// A cost then and now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CostDelta {
    /// The job.
    pub job: String,
    /// The offer.
    pub offer: String,
    /// Before; null: there was none.
    pub old: Option<Money>,
    /// Now; null: there is none.
    pub new: Option<Money>,
    /// One of the two is a lower bound.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lower_bound: bool,
    /// The price that was quoted, where it changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<String>,
}

/// A check that came out otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckDelta {
    /// Endpoint and check.
    pub id: String,
    /// Before.
    pub old: Option<CheckOutcome>,
    /// Now.
    pub new: Option<CheckOutcome>,
    /// Why so now.
    pub reason: String,
}

impl Diff {
    /// Whether a headline metric got worse, surely or likely.
    pub fn has_regression(&self) -> bool {
        self.platforms.iter().flat_map(|p| &p.metrics).any(MetricDelta::regressed)
    }

    /// Every gate that fires in the new scorecard, with its platform.
    pub fn gate_failures(&self) -> impl Iterator<Item = (&str, &GateCard)> {
        self.platforms.iter().flat_map(|p| p.gates.iter().map(|g| (p.id.as_str(), g)))
    }
}

impl MetricDelta {
    /// Whether it is a headline metric that got worse, surely or likely.
    pub fn regressed(&self) -> bool {
        self.headline && self.direction == Some(Direction::Worse)
    }
}

/// Compares two scorecards.
///
/// # Errors
/// When one of them is a rehearsal.
pub fn diff(old: &Scorecard, new: &Scorecard) -> Result<Diff, DiffError> {
    if let Some(quick) = [old, new].into_iter().find(|c| c.quick) {
        return Err(DiffError::Quick(quick.run.id.clone()));
    }
    let find = |card: &'_ Scorecard, id: &str| card.platforms.iter().position(|p| p.id == id);
    let mut platforms: Vec<PlatformDiff> = new
        .platforms
        .iter()
        .map(|p| match find(old, &p.id) {
            Some(i) => both((old, &old.platforms[i]), (new, p)),
            None => single(p, Presence::Appeared),
        })
        .collect();
    let gone = old.platforms.iter().filter(|p| find(new, &p.id).is_none());
    platforms.extend(gone.map(|p| single(p, Presence::Gone)));
    let mut diff = Diff {
        schema: SCHEMA,
        old: side(old),
        new: side(new),
        band: BAND,
        headline: String::new(),
        platforms,
        cautions: cautions(old, new),
    };
    diff.headline = headline::sentence(&diff);
    Ok(diff)
}

fn side(card: &Scorecard) -> Side {
    Side {
        plan: card.plan.clone(),
        run: card.run.id.clone(),
        started: card.run.started.clone(),
        rubric: card.rubric.name.clone(),
        preset: card.rubric.preset.clone(),
    }
}

fn cautions(old: &Scorecard, new: &Scorecard) -> Vec<String> {
    let mut out = Vec::new();
    let mut changed = |what: &str, a: &str, b: &str| {
        if a != b {
            out.push(format!("{what} changed: {a} before, {b} now"));
        }
    };
    changed("the plan", &old.plan.name, &new.plan.name);
    changed("the rubric", &old.rubric.name, &new.rubric.name);
    let preset = |c: &Scorecard| c.rubric.preset.clone().unwrap_or_else(|| "its own weights".to_owned());
    changed("the weights", &preset(old), &preset(new));
    changed("the currency", old.currency.code(), new.currency.code());
    changed("planrun", &old.planrun, &new.planrun);
    if old.rubric.name == new.rubric.name && old.rubric.criteria != new.rubric.criteria {
        out.push(format!("the rules of {} changed", new.rubric.name));
    }
    for (card, when) in [(old, "earlier"), (new, "later")] {
        if !card.run.complete {
            out.push(format!("the {when} run is not complete"));
        }
    }
    out
}

fn single(p: &PlatformCard, presence: Presence) -> PlatformDiff {
    let (old, new) = match presence {
        Presence::Gone => (Some(p.verdict.kind), None),
        _ => (None, Some(p.verdict.kind)),
    };
    PlatformDiff {
        id: p.id.clone(),
        title: p.title.clone(),
        presence,
        old_verdict: old,
        new_verdict: new,
        score: None,
        metrics: Vec::new(),
        costs: Vec::new(),
        checks: Vec::new(),
        gates: if presence == Presence::Gone { Vec::new() } else { p.gates.clone() },
        cautions: Vec::new(),
    }
}

type One<'a> = (&'a Scorecard, &'a PlatformCard);

fn both(old: One<'_>, new: One<'_>) -> PlatformDiff {
    let (a, b) = (old.1, new.1);
    let (device, cautions) = hosts(a, b);
    let headline = headline_ids(new);
    let mut metrics: Vec<MetricDelta> = Vec::new();
    let (before, after) = (by_name(&a.metrics), by_name(&b.metrics));
    for m in &b.metrics {
        let before = before.get(&name(m)).copied();
        metrics.push(metric(before, Some(m), device.as_deref(), (&old.0.stages, &new.0.stages)));
    }
    let gone = a.metrics.iter().filter(|o| !after.contains_key(&name(o)));
    metrics.extend(gone.map(|o| metric(Some(o), None, None, (&old.0.stages, &new.0.stages))));
    for id in &headline {
        match id.as_str() {
            "score" => metrics.push(scores(a, b)),
            id => metrics.extend(id.strip_prefix("cost.").map(|job| cost_metric(job, a, b))),
        }
    }
    for m in &mut metrics {
        m.headline = headline.contains(&m.id);
    }
    let place = |m: &MetricDelta| headline.iter().position(|h| *h == m.id).unwrap_or(HEADLINE);
    metrics.sort_by_key(place);
    PlatformDiff {
        id: b.id.clone(),
        title: b.title.clone(),
        presence: Presence::Both,
        old_verdict: Some(a.verdict.kind),
        new_verdict: Some(b.verdict.kind),
        score: Some(score_delta(old, new)),
        metrics,
        costs: costs(a, b),
        checks: checks(a, b),
        gates: b.gates.clone(),
        cautions,
    }
}

/// What makes two figures the same metric.
type MetricName<'a> = (&'a str, &'a str, &'a Labels);

fn name(m: &MetricCard) -> MetricName<'_> {
    (&m.stage, &m.name, &m.labels)
}

fn by_name(metrics: &[MetricCard]) -> HashMap<MetricName<'_>, &MetricCard> {
    // Of two of one name the first counts.
    metrics.iter().rev().map(|m| (name(m), m)).collect()
}

/// Why figures of another device cannot be compared, and what else changed about the machines.
fn hosts(a: &PlatformCard, b: &PlatformCard) -> (Option<String>, Vec<String>) {
    let (mut device, mut cautions) = (None, Vec::new());
    let pairs: Vec<_> = compare_hosts::aspects(a).into_iter().zip(compare_hosts::aspects(b)).collect();
    let has_gpu = pairs.iter().any(|((name, x), (_, y))| *name == "GPU" && (x.is_some() || y.is_some()));
    for ((name, before), (_, now)) in pairs {
        let (Some(before), Some(now)) = (before, now) else { continue };
        if before == now {
            continue;
        }
        let text = format!("{name} changed: {before} before, {now} now");
        if name == "GPU" || (name == "CPU" && !has_gpu) {
            device = Some(text.clone());
        }
        cautions.push(text);
    }
    (device, cautions)
}

fn metric(
    old: Option<&MetricCard>,
    new: Option<&MetricCard>,
    device: Option<&str>,
    stages: (&[StageRef], &[StageRef]),
) -> MetricDelta {
    let figure = |m: Option<&MetricCard>| m.map(Figure::of);
    let id = new.or(old).map(MetricCard::id).unwrap_or_default();
    let unit = new.or(old).map_or(Unit::COUNT, |m| m.unit.clone());
    let better = new.or(old).map_or(Better::Neither, |m| m.better);
    let mut delta = MetricDelta {
        id,
        unit,
        better,
        headline: false,
        old: figure(old),
        new: figure(new),
        change: None,
        call: Call::Incomparable,
        direction: None,
        why: String::new(),
    };
    let (Some(a), Some(b)) = (old, new) else {
        delta.call = if new.is_some() { Call::Appeared } else { Call::Gone };
        delta.why = if new.is_some() { "not measured before" } else { "not measured now" }.to_owned();
        return delta;
    };
    let options = |stages: &[StageRef]| {
        stages.iter().find(|s| s.id == a.stage).map(|s| (s.options.clone(), s.workload.clone()))
    };
    let other = if a.unit != b.unit {
        Some(format!("the unit changed: {} before, {} now", a.unit, b.unit))
    } else if let Some(device) = device {
        Some(device.to_owned())
    } else if options(stages.0) != options(stages.1) {
        Some(format!("the options of {} changed", a.stage))
    } else {
        None
    };
    if let Some(why) = other {
        delta.why = why;
        return delta;
    }
    settle(&mut delta);
    delta
}

/// Fills in change, call and reason from the two figures.
fn settle(delta: &mut MetricDelta) {
    let (Some(a), Some(b)) = (&delta.old, &delta.new) else { return };
    let decided = decide(a, b, delta.better, BAND);
    delta.change = call::change(a.median, b.median).map(round6);
    (delta.call, delta.direction, delta.why) = (decided.call, decided.direction, decided.why);
}

fn scores(a: &PlatformCard, b: &PlatformCard) -> MetricDelta {
    let figure = |s: &Score| {
        let open = s.open();
        Figure { runs: 1, n: 1, median: s.low.midpoint(s.high), low: open.low, high: open.high }
    };
    let mut delta = MetricDelta {
        id: "score".to_owned(),
        unit: Unit::new("points"),
        better: Better::Higher,
        headline: true,
        old: Some(figure(&a.score)),
        new: Some(figure(&b.score)),
        change: None,
        call: Call::NotTestable,
        direction: None,
        why: String::new(),
    };
    settle(&mut delta);
    delta
}

fn cheapest<'a>(p: &'a PlatformCard, job: &str) -> Option<&'a CostCard> {
    super::scenario::cheapest(&p.costs, Some(job))
}

fn cost_metric(job: &str, a: &PlatformCard, b: &PlatformCard) -> MetricDelta {
    let figure = |p: &PlatformCard| {
        let card = cheapest(p, job)?;
        let total = card.total.as_ref()?.amount();
        let (low, high) = card.spread.as_ref().map_or((total, total), |s| (s.low.amount(), s.high.amount()));
        Some(Figure { runs: 1, n: 1, median: total, low, high })
    };
    let currency = |p: &PlatformCard| cheapest(p, job).and_then(|c| Some(c.total.as_ref()?.currency.clone()));
    let unit =
        currency(b).or_else(|| currency(a)).map_or(Unit::new("money"), |c| Unit::new(c.code().to_owned()));
    let (old, new) = (figure(a), figure(b));
    let call = match (&old, &new) {
        (None, Some(_)) => Call::Appeared,
        (Some(_), None) => Call::Gone,
        _ => Call::Incomparable,
    };
    let mut delta = MetricDelta {
        id: format!("cost.{job}"),
        unit,
        better: Better::Lower,
        headline: true,
        old,
        new,
        change: None,
        call,
        direction: None,
        why: "the cheapest offer".to_owned(),
    };
    if currency(a) == currency(b) {
        settle(&mut delta);
    } else if call == Call::Incomparable {
        "the currency changed".clone_into(&mut delta.why);
    }
    delta
}

/// The identities of the headline metrics of a platform: the plan's, else a default list.
fn headline_ids((card, platform): One<'_>) -> Vec<String> {
    const DEFAULT: [(&str, &[&str]); 5] = [
        ("throughput", &["tokens_per_second", "samples_per_second", "steps_per_second"]),
        ("scaling", &["speedup"]),
        ("cold_start", &["ready"]),
        ("preemption", &["notice_window"]),
        ("storage", &["read_bandwidth"]),
    ];
    let evidence = build::evidence(&card.stages, &card.bind, platform);
    let mut out: Vec<String> = Vec::new();
    if card.headline.is_empty() {
        out.push("score".to_owned());
        for (kind, names) in DEFAULT {
            let of_kind: Vec<&MetricCard> = platform.metrics.iter().filter(|m| m.kind == kind).collect();
            let name = names.iter().find(|n| of_kind.iter().any(|m| m.name == **n));
            // Of several variants the last in the plan's order counts: the largest number of accelerators.
            out.extend(of_kind.iter().rfind(|m| Some(&m.name.as_str()) == name).map(|m| m.id()));
        }
    }
    for entry in &card.headline {
        if entry == "score" || entry.starts_with("cost.") {
            out.push(entry.clone());
        } else if let Ok(path) = entry.parse::<MetricPath>() {
            out.push(evidence.metric(&path).map_or_else(|_| path.to_string(), MetricCard::id));
        }
    }
    out.truncate(HEADLINE);
    out
}

fn costs(a: &PlatformCard, b: &PlatformCard) -> Vec<CostDelta> {
    let pair = |old: Option<&CostCard>, new: Option<&CostCard>| {
        let some = new.or(old)?;
        let total = |c: Option<&CostCard>| c.and_then(|c| c.total.clone());
        let price = match (old, new) {
            (Some(o), Some(n)) if o.price != n.price => Some(format!("{} before, {} now", o.price, n.price)),
            _ => None,
        };
        Some(CostDelta {
            job: some.job.clone(),
            offer: some.offer.clone(),
            old: total(old),
            new: total(new),
            lower_bound: [old, new].into_iter().flatten().any(|c| c.lower_bound),
            price,
        })
    };
    let is = |x: &CostCard, y: &CostCard| (&x.job, &x.offer) == (&y.job, &y.offer);
    let now = b.costs.iter().filter_map(|n| pair(a.costs.iter().find(|o| is(o, n)), Some(n)));
    let gone =
        a.costs.iter().filter(|o| !b.costs.iter().any(|n| is(o, n))).filter_map(|o| pair(Some(o), None));
    now.chain(gone).collect()
}

fn checks(a: &PlatformCard, b: &PlatformCard) -> Vec<CheckDelta> {
    let find = |p: &PlatformCard, endpoint: &str, id: &str| {
        p.checks.iter().find(|c| c.endpoint == endpoint && c.id == id).map(|c| (c.outcome, c.reason.clone()))
    };
    let mut out = Vec::new();
    let names = b.checks.iter().chain(a.checks.iter().filter(|c| find(b, &c.endpoint, &c.id).is_none()));
    for c in names {
        let (old, new) = (find(a, &c.endpoint, &c.id), find(b, &c.endpoint, &c.id));
        let (was, is) = (old.as_ref().map(|o| o.0), new.as_ref().map(|n| n.0));
        if was != is {
            let reason = new.map_or_else(|| "not checked now".to_owned(), |n| n.1);
            out.push(CheckDelta { id: format!("{}/{}", c.endpoint, c.id), old: was, new: is, reason });
        }
    }
    out
}

/// What moved the score: first the measurements alone, then offer and answers, then the rules.
fn score_delta(old: One<'_>, new: One<'_>) -> ScoreDelta {
    let judged = |rubric: &Rubric, preset: Option<&str>, evidence: &Evidence<'_>| {
        judge::judge(rubric, preset, evidence).score
    };
    let now = build::evidence(&new.0.stages, &new.0.bind, new.1);
    let measured = Evidence { answers: &old.1.answers, offers: &old.1.offers, ..now };
    let (rubric, preset) = (&old.0.rubric.source, old.0.rubric.preset.as_deref());
    let s1 = judged(rubric, preset, &measured);
    let s2 = judged(rubric, preset, &now);
    let range = |s: &Score| Range { low: s.low, high: s.high };
    ScoreDelta {
        old: range(&old.1.score),
        new: range(&new.1.score),
        change: Shift::between(old.1.score, new.1.score),
        by_measurement: Shift::between(old.1.score, s1),
        by_price: Shift::between(s1, s2),
        by_rule: Shift::between(s2, new.1.score),
    }
}
