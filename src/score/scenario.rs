//! Which candidate for which kind of work: requirements, then the objective, then a verdict with its reasons.
//!
//! Not here: points (`judge`), costs (`cost`).
//!
//! Invariant: a candidate is rejected only on evidence and recommended only with enough of it; a lead within noise
//! recommends all of the tied.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    cost::CostCard,
    figure,
    judge::Judged,
    judgement::{Objective, Scenario},
    query::{self, Evidence},
    ranking,
    scorecard::{CheckCard, Range, Score, Verdict, VerdictKind},
};
use crate::{
    findings::At,
    measure::{
        Money, Unit,
        quantity::{Bound, Comparison},
    },
    platform::{Name, Platform, Promises},
    record::CheckOutcome,
};

/// The share of the weight that must rest on evidence.
pub const ENOUGH: f64 = 0.8;

/// A kind of work and which candidates suit it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScenarioCard {
    /// Its key in the plan.
    pub id: String,
    /// What decides.
    pub objective: Objective,
    /// The weight preset; null: the plan's.
    pub preset: Option<String>,
    /// The job whose cost counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// What a platform must have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub require: Vec<String>,
    /// The candidates, the best first; in the order of the plan where nothing is decided.
    pub candidates: Vec<CandidateCard>,
    /// Which weight decides the first place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sensitivity: Option<String>,
}

/// A candidate in a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CandidateCard {
    /// Which platform.
    pub platform: String,
    /// What to do with it.
    pub verdict: Verdict,
    /// Its points under the scenario's preset.
    pub score: Score,
    /// Its cheapest offer for the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offer: Option<String>,
    /// What the job costs there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<Money>,
    /// The true cost is that or more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lower_bound: bool,
    /// A steady state under 30 min stands behind that cost.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub short: bool,
    /// Why the throughput behind that cost only stands in for the job's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
}

impl ScenarioCard {
    /// Puts the candidates in order: by verdict, then by what decides; the plan's order stands where they are level.
    pub(crate) fn sort(&mut self) {
        let verdict = |c: &CandidateCard| match c.verdict.kind {
            VerdictKind::Recommended => 0,
            VerdictKind::Acceptable => 1,
            VerdictKind::Inconclusive => 2,
            VerdictKind::Rejected => 3,
        };
        let objective = self.objective;
        let worth = |c: &CandidateCard| match objective {
            Objective::Points => -c.score.low.midpoint(c.score.high),
            Objective::Cost => c.cost.as_ref().map_or(f64::INFINITY, Money::amount),
        };
        self.candidates
            .sort_by(|a, b| verdict(a).cmp(&verdict(b)).then_with(|| worth(a).total_cmp(&worth(b))));
    }
}

/// All about one candidate that a verdict rests on.
pub(crate) struct Candidate<'a> {
    pub(crate) id: &'a str,
    pub(crate) title: &'a str,
    pub(crate) platform: &'a Platform,
    pub(crate) evidence: Evidence<'a>,
    pub(crate) checks: &'a [CheckCard],
    pub(crate) costs: &'a [CostCard],
    pub(crate) judged: Judged,
}

/// What a candidate fails, and what is not known of it.
#[derive(Default)]
struct Standing {
    failed: Vec<String>,
    missing: Vec<String>,
}

/// Verdicts for a scenario; without one, for the plan's rubric as a whole.
pub(crate) fn verdicts(
    scenario: Option<&Scenario>,
    candidates: &[Candidate<'_>],
) -> (Vec<Verdict>, Option<String>) {
    let objective = scenario.map_or(Objective::Points, |s| s.objective);
    let job = scenario.and_then(|s| s.job.as_ref()).map(|j| j.as_str());
    let standing: Vec<Standing> = candidates.iter().map(|c| stand(c, scenario, objective, job)).collect();
    let eligible: Vec<usize> = (0..candidates.len())
        .filter(|i| standing[*i].failed.is_empty() && standing[*i].missing.is_empty())
        .collect();
    let worth = |i: usize| match objective {
        Objective::Points => candidates[i].judged.score.open(),
        Objective::Cost => cost_range(candidates[i].costs, job),
    };
    let mut first = firsts(&eligible, worth);
    let mut by_cost = false;
    if objective == Objective::Points && first.len() > 1 && job.is_some() {
        let cheaper = firsts(&first, |i| cost_range(candidates[i].costs, job));
        by_cost = cheaper.len() < first.len();
        first = cheaper;
    }
    let verdicts = (0..candidates.len())
        .map(|i| {
            let Standing { failed, missing } = &standing[i];
            if !failed.is_empty() {
                return Verdict { kind: VerdictKind::Rejected, reasons: failed.clone() };
            }
            if !missing.is_empty() {
                return Verdict { kind: VerdictKind::Inconclusive, reasons: missing.clone() };
            }
            let mut reasons = vec![claim(&candidates[i], objective, job)];
            let kind = if first.contains(&i) { VerdictKind::Recommended } else { VerdictKind::Acceptable };
            let also: Vec<&str> = first.iter().filter(|j| **j != i).map(|j| candidates[*j].title).collect();
            match kind {
                VerdictKind::Recommended if also.is_empty() && eligible.len() == 1 => {
                    reasons.push("the only candidate that qualifies".to_owned());
                }
                VerdictKind::Recommended if also.is_empty() => {
                    let by = match (objective, by_cost) {
                        (Objective::Points, false) => "first by points, beyond noise",
                        (Objective::Points, true) => "level in points, first by cost beyond noise",
                        (Objective::Cost, _) => "first by cost, beyond noise",
                    };
                    reasons.push(by.to_owned());
                }
                VerdictKind::Recommended => {
                    reasons.push(format!("level with {} as far as evidence and noise tell", also.join(", ")));
                }
                _ => reasons.push(format!("behind {}", also.join(", "))),
            }
            if kind == VerdictKind::Recommended && objective == Objective::Points {
                let least = candidates[i].judged.score.low;
                let ahead = |j: &usize| {
                    standing[*j].failed.is_empty()
                        && !standing[*j].missing.is_empty()
                        && candidates[*j].judged.score.high > least
                };
                let maybe: Vec<&str> =
                    (0..candidates.len()).filter(ahead).map(|j| candidates[j].title).collect();
                if !maybe.is_empty() {
                    reasons.push(format!(
                        "{} could still come before it: too little was measured there",
                        maybe.join(", ")
                    ));
                }
            }
            Verdict { kind, reasons }
        })
        .collect();
    let sensitivity = match (objective, first.as_slice()) {
        (Objective::Points, [one]) => {
            let others: Vec<_> = eligible
                .iter()
                .filter(|i| *i != one)
                .map(|i| (candidates[*i].title, candidates[*i].judged.criteria.as_slice()))
                .collect();
            ranking::sensitivity((candidates[*one].title, &candidates[*one].judged.criteria), &others)
        }
        _ => None,
    };
    (verdicts, sensitivity)
}

/// Those that no other is surely before.
fn firsts(among: &[usize], worth: impl Fn(usize) -> Range) -> Vec<usize> {
    let ranges: Vec<Range> = among.iter().map(|i| worth(*i)).collect();
    let places = ranking::places(&ranges);
    among.iter().zip(places).filter(|(_, p)| p.best == 1).map(|(i, _)| *i).collect()
}

/// The cheapest total for a job.
pub(crate) fn cheapest<'a>(costs: &'a [CostCard], job: Option<&str>) -> Option<&'a CostCard> {
    costs
        .iter()
        .filter(|c| Some(c.job.as_str()) == job && c.total.is_some())
        .min_by_key(|c| c.total.as_ref().map_or(i128::MAX, |t| t.micros))
}

/// Cost as a worth: less is better. A lower bound may be anything above, up to what another offer is known to cost.
fn cost_range(costs: &[CostCard], job: Option<&str>) -> Range {
    let (mut least, mut most) = (f64::INFINITY, f64::INFINITY);
    for card in costs.iter().filter(|c| Some(c.job.as_str()) == job) {
        let Some(total) = card.total.as_ref().map(Money::amount) else { continue };
        // A single run has noise, too, and nothing tells how much.
        let alone = (total * (1.0 - query::NOISE), total * (1.0 + query::NOISE));
        let (low, high) = card.spread.as_ref().map_or(alone, |s| (s.low.amount(), s.high.amount()));
        least = least.min(low);
        most = most.min(if card.lower_bound { f64::INFINITY } else { high });
    }
    if least.is_finite() {
        Range { low: -most, high: -least }
    } else {
        Range { low: f64::NEG_INFINITY, high: f64::INFINITY }
    }
}

/// What a candidate has to show for the objective.
fn claim(c: &Candidate<'_>, objective: Objective, job: Option<&str>) -> String {
    let score = &c.judged.score;
    let points = format!("{} of {} points", figure::range(score.low, score.high), figure::points(score.of));
    match (objective, cheapest(c.costs, job)) {
        (Objective::Cost, Some(card)) => {
            let total =
                card.total.as_ref().map(|t| format!("{} {}", t.rounded(), t.currency)).unwrap_or_default();
            let least = match card.open_terms().as_slice() {
                [] if card.lower_bound => " or more".to_owned(),
                [] => String::new(),
                open => format!(" or more (not known: {})", open.join(", ")),
            };
            let stands_in = if card.proxy.is_some() { ", by a workload that stands in" } else { "" };
            format!("{total}{least} for {} ({}){stands_in}; {points}", card.job, card.offer)
        }
        _ => points,
    }
}

fn stand(
    c: &Candidate<'_>,
    scenario: Option<&Scenario>,
    objective: Objective,
    job: Option<&str>,
) -> Standing {
    let mut s =
        Standing { failed: c.judged.gates.iter().map(|g| g.reason.clone()).collect(), ..Standing::default() };
    let no_requirements = IndexMap::new();
    let require: &IndexMap<Name, At<Bound>> = scenario.map_or(&no_requirements, |s| &s.require);
    for (key, bound) in require {
        match requirement(key, bound, c) {
            Ok(true) => {}
            Ok(false) => {
                let seen = promised(key, c.platform).map_or_else(String::new, |p| format!(", it has {p}"));
                s.failed.push(format!("requires {key} {}{seen}", **bound));
            }
            Err(Contradiction(why)) => s.failed.push(why),
            Err(Unknown(why)) => s.missing.push(format!("requires {key} {}: {why}", **bound)),
        }
    }
    let score = &c.judged.score;
    if score.coverage < ENOUGH - 1e-9 {
        let open: Vec<String> = c
            .judged
            .criteria
            .iter()
            .filter(|k| k.coverage < 1.0 - 1e-9 && k.weight > 0.0)
            .map(|k| k.title.clone())
            .collect();
        s.missing.push(format!(
            "{} % of the weight rests on evidence, {} % are needed; open: {}",
            figure::digits(score.coverage * 100.0, 3),
            figure::number(ENOUGH * 100.0),
            open.join(", ")
        ));
    }
    if objective == Objective::Cost && cheapest(c.costs, job).is_none() {
        let why = c.costs.iter().filter(|k| Some(k.job.as_str()) == job).find_map(|k| k.reason.clone());
        s.missing.push(match (job, why) {
            (None, _) => "the scenario names no job whose cost could decide".to_owned(),
            (_, Some(why)) => format!("no cost: {why}"),
            (_, None) => "no cost: the platform has no offer".to_owned(),
        });
    }
    s
}

enum Open {
    Unknown(String),
    Contradiction(String),
}
use Open::{Contradiction, Unknown};

/// The promises of the platform's first endpoint.
fn promises(platform: &Platform) -> Promises {
    platform.endpoints.values().next().map_or_else(
        || platform.promises.clone(),
        |e| {
            let mut p = platform.promises.overridden_by(&e.promises);
            p.gpus = p.gpus.or(e.gpus);
            p
        },
    )
}

/// What the platform says of itself, in words.
fn promised(key: &str, platform: &Platform) -> Option<String> {
    let p = promises(platform);
    match key {
        "gpu" => p.gpu,
        "gpus" => p.gpus.map(|n| n.to_string()),
        "interconnect" => p.interconnect,
        "network" => p.network,
        "memory_per_gpu" => p.memory_per_gpu.map(|b| b.to_string()),
        "region" => platform.region.clone(),
        "compliance" => (!platform.compliance.is_empty()).then(|| platform.compliance.join(", ")),
        _ => None,
    }
}

fn requirement(key: &str, bound: &Bound, c: &Candidate<'_>) -> Result<bool, Open> {
    let known = ["gpu", "gpus", "interconnect", "network", "memory_per_gpu", "region", "compliance"];
    if !known.contains(&key) {
        return measured(key, bound, c);
    }
    // A check that saw something else than promised outweighs the promise.
    let checked = match key {
        "gpu" => "gpu_name",
        "gpus" => "gpu_count",
        other => other,
    };
    if let Some(check) = c.checks.iter().find(|k| k.id == checked && k.outcome == CheckOutcome::Fail) {
        return Err(Contradiction(format!("requires {key} {bound}, and the check says: {}", check.reason)));
    }
    let p = promises(c.platform);
    let silent = || Unknown("neither promised nor measured".to_owned());
    let number = |value: f64, unit: &Unit| {
        let (comparison, limit) = match bound {
            Bound::Number { comparison, limit, unit: None } => (*comparison, *limit),
            _ => bound.limit_in(unit).map_err(Unknown)?,
        };
        Ok(comparison.holds(value, limit))
    };
    match (key, bound) {
        ("gpus", _) => number(f64::from(p.gpus.ok_or_else(silent)?), &Unit::COUNT),
        ("memory_per_gpu", _) => number(p.memory_per_gpu.ok_or_else(silent)?.bytes, &Unit::BYTES),
        ("compliance", Bound::Word(word)) if c.platform.compliance.is_empty() => {
            Err(Unknown(format!("nothing declared about {word}")))
        }
        ("compliance", Bound::Word(word)) => Ok(c.platform.compliance.contains(word)),
        (_, Bound::Word(word)) => promised(key, c.platform).ok_or_else(silent).map(|has| has == *word),
        (_, Bound::Number { .. }) => Err(Unknown(format!("{bound} is a number, {key} is a word"))),
    }
}

fn measured(key: &str, bound: &Bound, c: &Candidate<'_>) -> Result<bool, Open> {
    let path = key.parse().map_err(Unknown)?;
    let metric = c.evidence.metric(&path).map_err(Unknown)?;
    let (comparison, limit): (Comparison, f64) = bound.limit_in(&metric.unit).map_err(Unknown)?;
    Ok(comparison.holds(metric.median, limit))
}
