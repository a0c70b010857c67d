//! What changed between two scorecards: metric by metric, cost by cost, and why the score moved.
//!
//! Series whose name starts with `host_` are the host's own telemetry, recorded beside the results to explain them.
//! They are context: no comparison lists, counts or tests them, even where a plan names one as a headline metric.
//!
//! Not here: the decision on one pair of figures (`call`), the words of the headline (`headline`).
//!
//! Invariant: a scorecard against itself calls nothing better or worse; swapping the two swaps every call.

mod call;
mod headline;
#[cfg(test)]
mod tests;
mod types;

use std::collections::{HashMap, HashSet};

pub use call::{Call, Decided, Direction, Figure, Pair, decide};
pub use types::{CheckDelta, CostDelta, Diff, MetricDelta, PlatformDiff, Presence, ScoreDelta, Shift, Side};

use super::{
    build, compare_hosts,
    cost::CostCard,
    judge,
    judgement::StageRef,
    query::Evidence,
    rubric::Rubric,
    scorecard::{MetricCard, PlatformCard, Range, Score, Scorecard, round6},
};
use crate::measure::{Better, Labels, MetricPath, Unit, compare};

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
    let before: HashMap<_, &MetricCard> = results(a).map(|m| (identity(m), m)).collect();
    let now: HashSet<_> = results(b).map(identity).collect();
    let stages = (old.0.stages.as_slice(), new.0.stages.as_slice());
    let mut open: Vec<(MetricDelta, Option<Pair>)> = results(b)
        .map(|m| metric(before.get(&identity(m)).copied(), Some(m), device.as_deref(), stages))
        .collect();
    let gone = results(a).filter(|m| !now.contains(&identity(m)));
    open.extend(gone.map(|m| metric(Some(m), None, None, stages)));
    for id in &headline {
        match id.as_str() {
            "score" => open.push(scores(a, b)),
            id => open.extend(id.strip_prefix("cost.").map(|job| cost_metric(job, a, b))),
        }
    }
    for (m, _) in &mut open {
        m.headline = headline.contains(&m.id);
    }
    let mut metrics = settle(open);
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

/// The metrics that are results.
fn results(p: &PlatformCard) -> impl Iterator<Item = &MetricCard> {
    p.metrics.iter().filter(|m| !m.is_telemetry())
}

fn identity(m: &MetricCard) -> (&str, &str, &Labels) {
    (&m.stage, &m.name, &m.labels)
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
) -> (MetricDelta, Option<Pair>) {
    let figure = |m: Option<&MetricCard>| m.and_then(|m| Figure::of(m.per_run(), m.n));
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
        interval: None,
        call: Call::Incomparable,
        direction: None,
        why: String::new(),
    };
    let (Some(a), Some(b)) = (old, new) else {
        delta.call = if new.is_some() { Call::Appeared } else { Call::Gone };
        let why = if new.is_some() { "not measured before" } else { "not measured now" };
        why.clone_into(&mut delta.why);
        return (delta, None);
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
    match other {
        Some(why) => {
            delta.why = why;
            (delta, None)
        }
        None => (delta, Pair::of(a.per_run(), b.per_run(), (a.n, b.n))),
    }
}

/// Fills in change, call and reason of all that can be compared: the headline metrics are tested and corrected
/// together, the rest go by the band.
fn settle(open: Vec<(MetricDelta, Option<Pair>)>) -> Vec<MetricDelta> {
    let tested = |(delta, pair): &(MetricDelta, Option<Pair>)| {
        pair.as_ref().filter(|_| delta.headline).and_then(Pair::p)
    };
    let p: Vec<f64> = open.iter().filter_map(tested).collect();
    let mut corrected = compare::holm(&p).into_iter();
    open.into_iter()
        .map(|both| {
            let corrected = tested(&both).and_then(|_| corrected.next());
            let (mut delta, pair) = both;
            if let Some(pair) = pair {
                let decided = decide(&pair, delta.better, BAND, corrected);
                delta.change = call::change(pair.old.median, pair.new.median).map(round6);
                delta.interval = pair.interval();
                (delta.call, delta.direction) = (decided.call, decided.direction);
                let between = if delta.why.is_empty() { "" } else { "; " };
                delta.why = format!("{}{between}{}", delta.why, decided.why);
            }
            delta
        })
        .collect()
}

fn scores(a: &PlatformCard, b: &PlatformCard) -> (MetricDelta, Option<Pair>) {
    let figure = |s: &Score| {
        let open = s.open();
        Figure { runs: 1, n: 1, median: s.low.midpoint(s.high), low: open.low, high: open.high }
    };
    let (old, new) = (figure(&a.score), figure(&b.score));
    let delta = MetricDelta {
        id: "score".to_owned(),
        unit: Unit::new("points"),
        better: Better::Higher,
        headline: true,
        old: Some(old),
        new: Some(new),
        change: None,
        interval: None,
        call: Call::NotTestable,
        direction: None,
        why: String::new(),
    };
    (delta, Some(Pair { old, new, change: None }))
}

fn cheapest<'a>(p: &'a PlatformCard, job: &str) -> Option<&'a CostCard> {
    super::scenario::cheapest(&p.costs, Some(job))
}

/// Which terms of a job's cost at the cheapest offer are not known.
fn open_terms(p: &PlatformCard, job: &str) -> String {
    let terms = cheapest(p, job).map(CostCard::open_terms).unwrap_or_default();
    if terms.is_empty() { "none".to_owned() } else { terms.join(", ") }
}

fn cost_metric(job: &str, a: &PlatformCard, b: &PlatformCard) -> (MetricDelta, Option<Pair>) {
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
        interval: None,
        call,
        direction: None,
        why: "the cheapest offer".to_owned(),
    };
    let (before, now) = (open_terms(a, job), open_terms(b, job));
    if before == now && before != "none" {
        delta.why.push_str(", a lower bound before and now");
    }
    let pair = match (old, new) {
        (Some(_), Some(_)) if before != now => {
            delta.why = format!("the terms not known changed: {before} before, {now} now");
            None
        }
        (Some(old), Some(new)) if currency(a) == currency(b) => Some(Pair { old, new, change: None }),
        (Some(_), Some(_)) => {
            "the currency changed".clone_into(&mut delta.why);
            None
        }
        (None, None) => {
            "no cost before or now".clone_into(&mut delta.why);
            None
        }
        _ => None,
    };
    (delta, pair)
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
    let bound = |c: Option<&CostCard>| c.is_some_and(|c| c.lower_bound);
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
            lower_bound: bound(old) || bound(new),
            old_lower_bound: bound(old),
            new_lower_bound: bound(new),
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
