//! From observations to a scorecard: metrics summed up, rubric, costs, verdicts and ranking put together.
//!
//! Not here: any rule of judgement; this file only calls them in order.
//!
//! Invariant: only values of tasks that ended `ok` become metrics.

use std::{collections::BTreeMap, fmt::Write as _};

use sha2::{Digest, Sha256};

use super::{
    compare_hosts,
    cost::{self, CostCard, Terms},
    figure,
    fold::{Observations, TaskSeen},
    judge::{self, Judged},
    judgement::Judgement,
    query::Evidence,
    ranking::{self, Entrant},
    rubric::{Band, Part, Rule},
    scenario::{self, Candidate, CandidateCard, ScenarioCard},
    scorecard::{
        Answer, CheckCard, FindingCard, MetricCard, OfferCard, Partial, PlatformCard, Range, RubricCard,
        RuleCard, RunCard, SCHEMA, Score, Scorecard, TELEMETRY, TaskCard, Verdict, VerdictKind,
    },
};
use crate::{
    findings::At,
    measure::{
        Finite,
        steady::LONG_ENOUGH,
        summary::{self, Percentile, Summary},
    },
    platform::{Endpoint, Name, Platform},
    record::{CheckOutcome, Level, Series},
};

/// How many samples stand in the scorecard itself; of more there is a digest.
const INLINE: usize = 64;
/// From how many samples on percentiles are shown.
const PERCENTILES_FROM: usize = 10;

/// Makes the scorecard of a run.
pub fn scorecard(seen: &Observations) -> Scorecard {
    let j = &seen.judgement;
    let cards: Vec<PlatformCard> = j.platforms.iter().map(|(id, p)| platform(id, p, seen)).collect();
    let judged: Vec<Judged> = cards.iter().map(|c| judge_card(j, j.preset.as_deref(), c)).collect();
    let verdicts = verdicts(j, &cards, &judged);
    let mut scenarios: Vec<ScenarioCard> =
        j.scenarios.iter().map(|(id, s)| scenario_card(id, s, j, &cards)).collect();
    let findings = findings(seen, &cards);
    let mut platforms = cards;
    for ((card, judged), verdict) in platforms.iter_mut().zip(judged).zip(verdicts) {
        (card.criteria, card.gates, card.score) = (judged.criteria, judged.gates, judged.score);
        card.verdict = verdict;
    }
    let entrants: Vec<Entrant<'_>> = platforms
        .iter()
        .map(|c| Entrant {
            platform: &c.id,
            rejected: c.verdict.kind == VerdictKind::Rejected,
            points: Range { low: c.score.low, high: c.score.high },
            open: c.score.open(),
        })
        .collect();
    let ranking = if seen.run.quick { ranking::unplaced(&entrants) } else { ranking::rank(&entrants) };
    if seen.run.quick {
        undecided(&mut platforms, &mut scenarios);
    } else {
        scenarios.iter_mut().for_each(ScenarioCard::sort);
    }
    Scorecard {
        schema: SCHEMA,
        planrun: seen.run.planrun.clone(),
        plan: seen.run.plan.clone(),
        run: RunCard {
            id: seen.run.id.clone(),
            started: seen.run.started.clone(),
            finished: seen.run.finished.clone(),
            complete: seen.run.complete,
            end_reason: seen.run.end_reason.clone(),
        },
        quick: seen.run.quick,
        currency: j.currency.clone(),
        rubric: rubric_card(j),
        stages: j.stages.clone(),
        bind: j.bind.clone(),
        headline: j.headline.iter().map(ToString::to_string).collect(),
        platforms,
        scenarios,
        ranking,
        findings,
    }
}

/// The evidence that a platform's card holds.
pub(crate) fn evidence<'a>(
    stages: &'a [super::judgement::StageRef],
    bind: &'a indexmap::IndexMap<String, String>,
    card: &'a PlatformCard,
) -> Evidence<'a> {
    Evidence {
        stages,
        bind,
        metrics: &card.metrics,
        tasks: &card.tasks,
        answers: &card.answers,
        offers: &card.offers,
    }
}

/// Takes every decision out of what a rehearsal shows: no verdict, no first choice, no cost to choose by.
fn undecided(platforms: &mut [PlatformCard], scenarios: &mut [ScenarioCard]) {
    let reason = "a rehearsal of a few steps, which says nothing about speed: it decides nothing";
    let verdict = Verdict { kind: VerdictKind::Inconclusive, reasons: vec![reason.to_owned()] };
    for p in platforms {
        p.verdict = verdict.clone();
    }
    for s in scenarios {
        s.sensitivity = None;
        for c in &mut s.candidates {
            *c = CandidateCard {
                platform: c.platform.clone(),
                verdict: verdict.clone(),
                score: c.score,
                offer: None,
                cost: None,
                lower_bound: false,
                short: false,
                proxy: None,
            };
        }
    }
}

fn judge_card(j: &Judgement, preset: Option<&str>, card: &PlatformCard) -> Judged {
    judge::judge(&j.rubric, preset, &evidence(&j.stages, &j.bind, card))
}

fn candidates<'a>(j: &'a Judgement, cards: &'a [PlatformCard], judged: Vec<Judged>) -> Vec<Candidate<'a>> {
    cards
        .iter()
        .zip(j.platforms.values())
        .zip(judged)
        .map(|((card, platform), judged)| Candidate {
            id: &card.id,
            title: &card.title,
            platform,
            evidence: evidence(&j.stages, &j.bind, card),
            checks: &card.checks,
            costs: &card.costs,
            judged,
        })
        .collect()
}

fn verdicts(j: &Judgement, cards: &[PlatformCard], judged: &[Judged]) -> Vec<Verdict> {
    scenario::verdicts(None, &candidates(j, cards, judged.to_vec())).0
}

fn scenario_card(
    id: &str,
    s: &super::judgement::Scenario,
    j: &Judgement,
    cards: &[PlatformCard],
) -> ScenarioCard {
    let preset = s.preset.as_ref().map(|p| p.as_str()).or(j.preset.as_deref());
    let judged = cards.iter().map(|c| judge_card(j, preset, c)).collect();
    let candidates = candidates(j, cards, judged);
    let (verdicts, sensitivity) = scenario::verdicts(Some(s), &candidates);
    let job = s.job.as_ref().map(|job| job.as_str());
    let candidates = candidates
        .into_iter()
        .zip(verdicts)
        .map(|(c, verdict)| {
            let cheapest = scenario::cheapest(c.costs, job);
            CandidateCard {
                platform: c.id.to_owned(),
                verdict,
                score: c.judged.score,
                offer: cheapest.map(|k| k.offer.clone()),
                cost: cheapest.and_then(|k| k.total.clone()),
                lower_bound: cheapest.is_some_and(|k| k.lower_bound),
                short: cheapest.is_some_and(|k| k.short),
                proxy: cheapest.and_then(|k| k.proxy.clone()),
            }
        })
        .collect();
    ScenarioCard {
        id: id.to_owned(),
        objective: s.objective,
        preset: preset.map(str::to_owned),
        job: job.map(str::to_owned),
        require: s.require.iter().map(|(k, b)| format!("{k} {}", **b)).collect(),
        candidates,
        sensitivity,
    }
}

fn platform(id: &str, p: &Platform, seen: &Observations) -> PlatformCard {
    let tasks: Vec<&TaskSeen> = seen.tasks.iter().filter(|t| t.planned.platform == id).collect();
    let mut environment: BTreeMap<String, BTreeMap<String, serde_json::Value>> = BTreeMap::new();
    let mut checks = Vec::new();
    for t in &tasks {
        let Some(endpoint) = &t.planned.endpoint else { continue };
        if !t.facts.is_empty() {
            environment.entry(endpoint.clone()).or_default().extend(t.facts.clone());
        }
        checks.extend(t.checks.iter().map(|c| CheckCard {
            endpoint: endpoint.clone(),
            id: c.id.clone(),
            outcome: c.outcome,
            value: c.value.clone(),
            promised: c.promised.clone(),
            reason: c.reason.clone(),
            action: c.action.clone(),
        }));
    }
    checks.extend(unmeasured_iops(p, &checks));
    let mut card = PlatformCard {
        id: id.to_owned(),
        title: p.title.clone().unwrap_or_else(|| id.to_owned()),
        tier: p.tier,
        region: p.region.clone(),
        environment,
        metrics: metrics(&tasks),
        tasks: tasks.iter().map(|t| task(t)).collect(),
        checks,
        answers: answers(p, &seen.run.started),
        offers: offers(p),
        costs: Vec::new(),
        criteria: Vec::new(),
        gates: Vec::new(),
        score: Score { low: 0.0, high: 0.0, of: 0.0, coverage: 0.0, spread: None },
        verdict: Verdict { kind: VerdictKind::Inconclusive, reasons: Vec::new() },
    };
    card.costs = costs(p, &card, &tasks, &seen.judgement);
    card
}

/// A promise of disk operations that no storage stage has held against a machine.
fn unmeasured_iops(p: &Platform, checks: &[CheckCard]) -> Vec<CheckCard> {
    const ID: &str = "disk_iops";
    let open = |(endpoint, e): (&Name, &At<Endpoint>)| {
        let promised = p.promises.overridden_by(&e.promises).disk_iops?;
        (!checks.iter().any(|c| c.id == ID && c.endpoint == endpoint.value)).then(|| CheckCard {
            endpoint: endpoint.value.clone(),
            id: ID.to_owned(),
            outcome: CheckOutcome::NotObservable,
            value: None,
            promised: Some(promised.to_string()),
            reason: "no storage stage measured the disk here".to_owned(),
            action: None,
        })
    };
    p.endpoints.iter().filter_map(open).collect()
}

fn costs(p: &Platform, card: &PlatformCard, tasks: &[&TaskSeen], j: &Judgement) -> Vec<CostCard> {
    let evidence = evidence(&j.stages, &j.bind, card);
    let mut out = Vec::new();
    for (job_id, job) in &j.jobs {
        let stage = evidence.stage(&job.from).ok();
        let ran_on = tasks
            .iter()
            .filter(|t| stage.is_some_and(|s| s.id == t.planned.stage))
            .find_map(|t| t.planned.endpoint.as_deref());
        let endpoint = ran_on.and_then(|e| p.endpoints.get(e)).or_else(|| p.endpoints.values().next());
        for (offer_id, offer) in &p.offers {
            let terms = Terms {
                offer_id,
                offer,
                fees: &p.fees,
                instance_gpus: endpoint.and_then(|e| e.gpus),
                currency: &j.currency,
                rates: &j.rates,
            };
            out.push(cost::cost(job_id, job, &terms, &evidence));
        }
    }
    out
}

fn metrics(tasks: &[&TaskSeen]) -> Vec<MetricCard> {
    type Group<'a> = (&'a TaskSeen, &'a Series, Vec<(&'a TaskSeen, &'a [f64])>);
    let mut groups: Vec<Group<'_>> = Vec::new();
    let mut index: BTreeMap<(&str, &Series), usize> = BTreeMap::new();
    for t in tasks.iter().filter(|t| t.ok()) {
        for (series, values) in t.series.iter().filter(|(_, v)| !v.is_empty()) {
            let at = *index.entry((&t.planned.stage, series)).or_insert_with(|| {
                groups.push((t, series, Vec::new()));
                groups.len() - 1
            });
            groups[at].2.push((t, values));
        }
    }
    groups.iter().filter_map(|(first, series, parts)| metric(first, series, parts)).collect()
}

fn metric(first: &TaskSeen, series: &Series, parts: &[(&TaskSeen, &[f64])]) -> Option<MetricCard> {
    let all: Vec<f64> = parts.iter().flat_map(|(_, v)| v.iter().copied()).collect();
    let sorted = summary::sorted(&all);
    let s = Summary::of(&sorted)?;
    let percentile = |p| (s.n >= PERCENTILES_FROM).then(|| Percentile::of(&sorted, p)).flatten();
    let ranked = [("p95", percentile(95.0)), ("p99", percentile(99.0))];
    let value = |i: usize| ranked[i].1.map(|p| p.value.get());
    let single = parts.iter().all(|(_, v)| v.len() == 1);
    let inline = all.len() <= INLINE;
    let runs = if single && inline {
        Vec::new()
    } else {
        parts.iter().filter_map(|(_, v)| summary::median(&summary::sorted(v))).collect()
    };
    Some(MetricCard {
        stage: first.planned.stage.clone(),
        kind: first.planned.kind.clone(),
        name: series.name.clone(),
        labels: series.labels.clone(),
        unit: series.unit.clone(),
        better: series.better,
        n: s.n,
        mean: s.mean.get(),
        median: s.median.get(),
        stddev: s.stddev.map(Finite::get),
        min: s.min.get(),
        max: s.max.get(),
        p95: value(0),
        p99: value(1),
        few_samples: ranked
            .iter()
            .filter(|(_, p)| p.is_some_and(|p| p.few_samples))
            .map(|(name, _)| (*name).to_owned())
            .collect(),
        samples_digest: (!inline).then(|| digest(&all)),
        samples: inline.then_some(all),
        runs,
        evidence: parts.iter().map(|(t, _)| t.planned.id.clone()).collect(),
        short: !series.name.starts_with(TELEMETRY) && parts.iter().any(|(t, _)| short(t)),
    })
}

/// Whether a task's figures rest on a steady state that was too short to stand for hours.
fn short(task: &TaskSeen) -> bool {
    let steady = task.series.iter().find(|(series, _)| series.name == "steady_seconds");
    steady.is_some_and(|(_, seconds)| seconds.iter().any(|s| *s < LONG_ENOUGH))
}

fn digest(values: &[f64]) -> String {
    let mut hash = Sha256::new();
    for v in values {
        hash.update(v.to_le_bytes());
    }
    hash.finalize().iter().fold(String::with_capacity(64), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn task(t: &TaskSeen) -> TaskCard {
    let partial = |(s, v): &(Series, Vec<f64>)| {
        Some(Partial {
            metric: format!("{}{}", s.name, s.labels),
            unit: s.unit.clone(),
            n: v.len(),
            last: *v.last()?,
        })
    };
    TaskCard {
        id: t.planned.id.clone(),
        stage: t.planned.stage.clone(),
        kind: t.planned.kind.clone(),
        outcome: t.outcome.as_ref().map(|o| o.kind),
        cause: t.outcome.as_ref().map(|o| o.cause).filter(|c| *c != crate::record::Cause::None),
        reason: t.outcome.as_ref().map_or_else(|| "not run yet".to_owned(), |o| o.reason.clone()),
        attempts: t.attempts,
        seconds: t.seconds,
        log: t.log.clone(),
        expectations: t.expectations.clone(),
        partial: if t.ok() { Vec::new() } else { t.series.iter().filter_map(partial).collect() },
    }
}

fn answers(p: &Platform, started: &str) -> BTreeMap<String, Answer> {
    let day = started.get(..10).unwrap_or_default();
    p.declared
        .iter()
        .map(|(question, d)| {
            let expires = d.expires.map(|e| e.to_string());
            let answer = Answer {
                value: d.value.value.clone(),
                by: d.by.clone(),
                seen_on: d.seen_on.to_string(),
                // Both are written year first, so that their order is that of the text.
                expired: expires.as_deref().is_some_and(|e| e < day),
                expires,
                evidence: d.evidence.clone(),
            };
            (question.value.clone(), answer)
        })
        .collect()
}

fn offers(p: &Platform) -> Vec<OfferCard> {
    let in_use = match p.endpoints.values().next().and_then(|e| e.offer.as_ref()) {
        Some(name) => Some(name.as_str()),
        None if p.offers.len() == 1 => p.offers.keys().next().map(|k| k.as_str()),
        None => None,
    };
    p.offers
        .iter()
        .map(|(id, o)| OfferCard {
            id: id.value.clone(),
            rate: o.rate.to_string(),
            granularity: o.granularity.map(|d| d.seconds),
            minimum: o.minimum.map(|d| d.seconds),
            term: o.term.map(|d| d.seconds),
            interruptions: o.interruptions.map(|i| i.probability),
            seen_on: o.seen_on.to_string(),
            source: o.source.clone(),
            in_use: in_use == Some(id.as_str()),
        })
        .collect()
}

fn rubric_card(j: &Judgement) -> RubricCard {
    let criteria = j
        .rubric
        .criteria
        .iter()
        .map(|(id, c)| RuleCard {
            id: id.value.clone(),
            title: c.title.clone(),
            weight: judge::weight(&j.rubric, j.preset.as_deref(), id),
            reading: c.reading.clone(),
            parts: c.parts.iter().map(|p| part_text(p)).collect(),
        })
        .collect();
    RubricCard { name: j.rubric.name.clone(), preset: j.preset.clone(), criteria, source: j.rubric.clone() }
}

/// A part's rule in words, with all its parameters.
fn part_text(part: &Part) -> String {
    let rule = match &part.rule.value {
        Rule::Step(s) => {
            format!(
                "all from {}, {} less for each complete {} worse",
                s.full_at,
                figure::points(s.deduct),
                s.per
            )
        }
        Rule::Linear(l) => format!("none at {}, all at {}, even between", l.zero_at, l.full_at),
        Rule::Bands(bands) => {
            let bands: Vec<String> = bands.iter().map(|b| band_text(b)).collect();
            bands.join(", ")
        }
        Rule::PerEvent(e) => format!("{} less for each event", figure::points(e.deduct)),
        Rule::Checklist(_) => "an even share for each yes".to_owned(),
    };
    let mut text = format!("{} points by {}: {rule}", figure::points(part.points), judge::looks_at(part));
    if let Some(gate) = &part.gate {
        let _ = write!(text, "; rejected unless {}", **gate);
    }
    if let Some(needs) = &part.needs {
        let _ = write!(text, "; full evidence needs {} {}", *needs.metric, *needs.bound);
    }
    text
}

fn band_text(b: &Band) -> String {
    let ends = match (&b.from, &b.to) {
        (None, None) => "always".to_owned(),
        (None, Some(to)) => format!("under {to}"),
        (Some(from), None) => format!("from {from}"),
        (Some(from), Some(to)) => format!("{from} to {to}"),
    };
    match b.points_to {
        Some(last) => format!("{ends}: {} to {}", figure::points(b.points), figure::points(last)),
        None => format!("{ends}: {}", figure::points(b.points)),
    }
}

fn findings(seen: &Observations, cards: &[PlatformCard]) -> Vec<FindingCard> {
    let warning = |about: Option<&str>, text: String| FindingCard {
        level: Level::Warning,
        about: about.map(str::to_owned),
        text,
    };
    let mut out = Vec::new();
    if seen.run.quick {
        let text = "a rehearsal with a few steps: its numbers say nothing about speed and are never compared";
        out.push(warning(None, text.to_owned()));
    }
    if seen.run.finished.is_none() {
        out.push(warning(
            None,
            "the run has not ended in order; what follows is what was seen so far".to_owned(),
        ));
    } else if !seen.run.complete {
        out.push(warning(None, "not every planned task has ended".to_owned()));
    }
    out.extend(compare_hosts::warnings(cards).into_iter().map(|text| warning(None, text)));
    for card in cards {
        for (question, a) in card.answers.iter().filter(|(_, a)| a.expired) {
            let text =
                format!("the answer to {question} expired on {}", a.expires.as_deref().unwrap_or("its date"));
            out.push(warning(Some(&card.id), text));
        }
    }
    let notes = seen.notes.iter().map(|n| FindingCard {
        level: n.level,
        about: n.task.as_ref().map(|t| t.0.clone()),
        text: n.text.clone(),
    });
    out.extend(notes);
    out
}
