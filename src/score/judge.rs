//! The rubric applied to one platform: points as ranges, gates, and the reasons for both.
//!
//! Not here: the arithmetic of a rule (`rules`), what is known (`query`), the comparison of platforms (`ranking`).
//!
//! Invariant: a part without evidence spans from 0 to all of its points, and no gate fires on it.

use super::{
    figure::{self, points},
    query::{self, Evidence},
    rubric::{Criterion, OfferProperty, Part, Rubric, Rule},
    rules::{self, Seen},
    scorecard::{CriterionCard, GateCard, PartCard, Range, Score, round6},
};
use crate::{
    measure::{
        Better, Unit,
        quantity::{Bound, Duration, Level},
    },
    platform::DeclaredValue,
};

/// What a rubric says of one platform.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// Points by criterion.
    pub criteria: Vec<CriterionCard>,
    /// Bounds that it did not hold.
    pub gates: Vec<GateCard>,
    /// All points together.
    pub score: Score,
}

/// The weight of a criterion under a preset; its own where the preset does not name it.
pub fn weight(rubric: &Rubric, preset: Option<&str>, id: &str) -> f64 {
    let own = rubric.criteria.get(id).map_or(0.0, |c| c.weight);
    preset.and_then(|p| rubric.presets.get(p)).and_then(|p| p.get(id)).copied().unwrap_or(own)
}

/// Applies a rubric.
pub fn judge(rubric: &Rubric, preset: Option<&str>, evidence: &Evidence<'_>) -> Judged {
    let mut judged = Judged {
        criteria: Vec::new(),
        gates: Vec::new(),
        score: Score { low: 0.0, high: 0.0, of: 0.0, coverage: 0.0, spread: None },
    };
    let mut spread = Range::default();
    let mut covered = 0.0;
    for (id, criterion) in &rubric.criteria {
        let weight = weight(rubric, preset, id).max(0.0);
        let (card, gates) = self::criterion(id, criterion, weight, evidence);
        covered += card.coverage * weight;
        spread = spread.plus(card.spread.unwrap_or(card.points).hull(card.points));
        let sum = Range { low: judged.score.low, high: judged.score.high }.plus(card.points);
        (judged.score.low, judged.score.high) = (sum.low, sum.high);
        judged.score.of = round6(judged.score.of + weight);
        judged.criteria.push(card);
        judged.gates.extend(gates);
    }
    let score = Range { low: judged.score.low, high: judged.score.high };
    judged.score.spread = (spread != score).then_some(spread);
    judged.score.coverage = if judged.score.of > 0.0 { round6(covered / judged.score.of) } else { 0.0 };
    judged
}

/// What a part came to.
struct PartSeen {
    card: PartCard,
    spread: Range,
    covered: bool,
}

fn criterion(
    id: &str,
    c: &Criterion,
    weight: f64,
    evidence: &Evidence<'_>,
) -> (CriterionCard, Vec<GateCard>) {
    let of: f64 = c.parts.iter().map(|p| p.points.max(0.0)).sum();
    let mut gates = Vec::new();
    let seen: Vec<PartSeen> = c
        .parts
        .iter()
        .map(|p| {
            let (seen, gate) = part(id, p, evidence);
            gates.extend(gate);
            seen
        })
        .collect();
    let mut card = CriterionCard {
        id: id.to_owned(),
        title: c.title.clone(),
        weight,
        points: Range::default(),
        spread: None,
        value: None,
        unit: None,
        why: String::new(),
        evidence: Vec::new(),
        parts: Vec::new(),
        coverage: 0.0,
    };
    if of.is_nan() || of <= 0.0 {
        card.points = Range { low: 0.0, high: weight };
        "it has no part that could give points".clone_into(&mut card.why);
        return (card, gates);
    }
    let scale = weight / of;
    let mut spread = Range::default();
    for p in &seen {
        card.points = card.points.plus(p.card.points.times(scale));
        spread = spread.plus(p.spread.times(scale));
        card.coverage += if p.covered { p.card.of / of } else { 0.0 };
        card.evidence.extend(
            p.card.evidence.iter().filter(|e| !card.evidence.contains(e)).cloned().collect::<Vec<_>>(),
        );
    }
    card.coverage = round6(card.coverage);
    card.points = Range { low: card.points.low.min(weight), high: card.points.high.min(weight) };
    card.spread = (spread != card.points).then_some(spread);
    let scaled = (scale - 1.0).abs() > 1e-9;
    let mut whys: Vec<String> = match seen.as_slice() {
        [one] => vec![one.card.why.clone()],
        several => several.iter().map(|p| format!("{}: {}", p.card.looks_at, p.card.why)).collect(),
    };
    if scaled {
        whys.push(format!(
            "at weight {} of {}: × {} = {}",
            points(weight),
            points(of),
            figure::number(scale),
            figure::range(card.points.low, card.points.high)
        ));
    }
    card.why = whys.join("; ");
    if let [one] = seen.as_slice() {
        (card.value, card.unit) = (one.card.value, one.card.unit.clone());
    } else {
        card.parts = seen.into_iter().map(|p| p.card).collect();
    }
    (card, gates)
}

/// Why a part has no value, or what it has.
enum Looked {
    Value {
        value: f64,
        unit: Unit,
        better: Better,
        spread: Option<(f64, f64)>,
        evidence: Vec<String>,
    },
    Yes {
        yes: usize,
        open: usize,
        of: usize,
        evidence: Vec<String>,
        words: Vec<String>,
    },
    Nothing {
        why: String,
        evidence: Vec<String>,
    },
    /// An answer that is worth no points, such as no reply.
    Zero {
        why: String,
        evidence: Vec<String>,
    },
}

fn part(criterion: &str, part: &Part, evidence: &Evidence<'_>) -> (PartSeen, Option<GateCard>) {
    let of = part.points.max(0.0);
    let open = Range { low: 0.0, high: of };
    let looks_at = looks_at(part);
    let seen = |range: Range, spread: Range, covered, value, unit, why: String, evidence| PartSeen {
        card: PartCard {
            looks_at: looks_at.clone(),
            of,
            points: Range { low: round6(range.low), high: round6(range.high) },
            value,
            unit,
            why,
            evidence,
        },
        spread,
        covered,
    };
    match look(part, evidence) {
        Looked::Nothing { why, evidence } => {
            let why = format!("not measured ({why}): 0 to {} points", points(of));
            (seen(open, open, false, None, None, why, evidence), None)
        }
        Looked::Zero { why, evidence } => {
            let none = Range::default();
            (seen(none, none, true, None, None, format!("{why}: no points"), evidence), None)
        }
        Looked::Yes { yes, open, of: asked, evidence, words } => {
            let share = of / asked.max(1) as f64;
            let range = Range { low: share * yes as f64, high: share * (yes + open) as f64 };
            let why = format!(
                "{}: {} × {} of {asked} = {}",
                words.join(", "),
                points(of),
                if open == 0 { yes.to_string() } else { format!("{yes} to {}", yes + open) },
                figure::range(range.low, range.high)
            );
            (seen(range, range, open == 0, None, None, why, evidence), None)
        }
        Looked::Value { value, unit, better, spread, evidence: tasks } => {
            let gate = part.gate.as_ref().and_then(|g| gate(criterion, &looks_at, g, value, &unit));
            let at = |value| rules::apply(&part.rule, of, Seen { value, unit: &unit, better });
            let (given, mut why) = match at(value) {
                Ok(given) => given,
                Err(reason) => {
                    let why = format!("no points can be given ({reason}): 0 to {}", points(of));
                    return (seen(open, open, false, Some(value), Some(unit), why, tasks), gate);
                }
            };
            let mut range = Range::exactly(given);
            let mut around = match spread.map(|(a, b)| (at(a), at(b))) {
                Some((Ok((a, _)), Ok((b, _)))) => Range::between(a, b).hull(range),
                _ => range,
            };
            let short = part.needs.as_ref().and_then(|n| unmet(&n.metric, &n.bound, evidence));
            let covered = short.is_none();
            if let Some(short) = short {
                range.low = 0.0;
                around.low = 0.0;
                why = format!("{why} at most: {short}");
            }
            (seen(range, around, covered, Some(value), Some(unit), why, tasks), gate)
        }
    }
}

/// What a part looks at, as a reader names it.
pub(crate) fn looks_at(part: &Part) -> String {
    if let Some(metric) = &part.metric {
        return metric.to_string();
    }
    match part.offer.as_deref() {
        Some(OfferProperty::Granularity) => return "the offer's granularity".to_owned(),
        Some(OfferProperty::Minimum) => return "the offer's minimum".to_owned(),
        None => {}
    }
    part.ask.iter().map(|q| q.as_str()).collect::<Vec<_>>().join(", ")
}

fn look(part: &Part, evidence: &Evidence<'_>) -> Looked {
    let nothing = |why: String| Looked::Nothing { why, evidence: Vec::new() };
    if let Some(path) = &part.metric {
        let metric = match evidence.metric(path) {
            Ok(metric) => metric,
            Err(why) => return nothing(why),
        };
        let Some(value) = query::figure(metric, part.fold) else {
            return nothing(format!("{} has too many samples for this figure", metric.id()));
        };
        return Looked::Value {
            value,
            unit: metric.unit.clone(),
            better: metric.better,
            spread: query::spread(metric),
            evidence: query::evidence(metric),
        };
    }
    if let Some(property) = &part.offer {
        return offer(**property, evidence);
    }
    if matches!(part.rule.value, Rule::Checklist(_)) {
        return checklist(part, evidence);
    }
    let [question] = part.ask.as_slice() else {
        return nothing("it asks for no single thing".to_owned());
    };
    answer(question, &part.rule, evidence)
}

fn offer(property: OfferProperty, evidence: &Evidence<'_>) -> Looked {
    let nothing = |why: &str| Looked::Nothing { why: why.to_owned(), evidence: Vec::new() };
    let Some(offer) = evidence.offer_in_use() else {
        return nothing("no single offer is in use");
    };
    let (value, name) = match property {
        OfferProperty::Granularity => (offer.granularity, "granularity"),
        OfferProperty::Minimum => (offer.minimum, "minimum"),
    };
    let source = vec![format!("offer {} ({}, {})", offer.id, offer.source, offer.seen_on)];
    match value {
        None => Looked::Nothing { why: format!("offer {} states no {name}", offer.id), evidence: source },
        Some(value) => Looked::Value {
            value,
            unit: Unit::SECONDS,
            better: Better::Lower,
            spread: None,
            evidence: source,
        },
    }
}

/// The answer to a question that counts, or why none does.
fn given<'a>(question: &str, evidence: &Evidence<'a>) -> Result<(&'a DeclaredValue, String), String> {
    match evidence.answers.get(question) {
        None => Err(format!("{question} is open")),
        Some(a) if a.expired => {
            Err(format!("{question} expired on {}", a.expires.as_deref().unwrap_or("its date")))
        }
        Some(a) => Ok((&a.value, format!("{question}: {} ({}, {})", a.evidence, a.by, a.seen_on))),
    }
}

fn checklist(part: &Part, evidence: &Evidence<'_>) -> Looked {
    let (mut yes, mut open, mut sources, mut words) = (0, 0, Vec::new(), Vec::new());
    for question in &part.ask {
        match given(question, evidence) {
            Ok((DeclaredValue::Yes(true), source)) => {
                yes += 1;
                words.push(format!("{question} yes"));
                sources.push(source);
            }
            Ok((DeclaredValue::Yes(false), source)) => {
                words.push(format!("{question} no"));
                sources.push(source);
            }
            Ok((_, source)) => {
                open += 1;
                words.push(format!("{question} was not answered by yes or no"));
                sources.push(source);
            }
            Err(why) => {
                open += 1;
                words.push(why);
            }
        }
    }
    if part.ask.is_empty() || open == part.ask.len() {
        return Looked::Nothing { why: words.join(", "), evidence: sources };
    }
    Looked::Yes { yes, open, of: part.ask.len(), evidence: sources, words }
}

fn answer(question: &str, rule: &Rule, evidence: &Evidence<'_>) -> Looked {
    let (value, source) = match given(question, evidence) {
        Ok(found) => found,
        Err(why) => return Looked::Nothing { why, evidence: Vec::new() },
    };
    let sources = vec![source];
    let (value, unit) = match value {
        // "No reply" is an answer: the worst one.
        DeclaredValue::Yes(false) => {
            return Looked::Zero { why: format!("{question}: no"), evidence: sources };
        }
        DeclaredValue::Yes(true) => {
            return Looked::Nothing { why: format!("{question} wants a figure, not yes"), evidence: sources };
        }
        DeclaredValue::Number(n) => (*n, Unit::COUNT),
        DeclaredValue::Text(text) => match quantity(text) {
            Some(found) => found,
            None => {
                return Looked::Nothing {
                    why: format!("{question} is no figure: {text}"),
                    evidence: sources,
                };
            }
        },
    };
    let unit = if unit == Unit::COUNT { first_unit(rule).unwrap_or(unit) } else { unit };
    let better = if Unit::SECONDS.compatible(&unit) { Better::Lower } else { Better::Higher };
    Looked::Value { value, unit, better, spread: None, evidence: sources }
}

/// A duration such as `3h40m`, or a number with a unit.
fn quantity(text: &str) -> Option<(f64, Unit)> {
    if let Ok(duration) = text.trim().parse::<Duration>() {
        return Some((duration.seconds, Unit::SECONDS));
    }
    let level = text.trim().parse::<Level>().ok()?;
    Some((level.value, level.unit.unwrap_or(Unit::COUNT)))
}

/// The unit of a rule's first level: what a bare number in an answer counts, where that cannot be mistaken.
fn first_unit(rule: &Rule) -> Option<Unit> {
    let level = match rule {
        Rule::Step(r) => Some(&r.full_at),
        Rule::Linear(r) => Some(&r.full_at),
        Rule::Bands(bands) => bands.iter().find_map(|b| b.to.as_ref().or(b.from.as_ref())),
        Rule::PerEvent(_) | Rule::Checklist(_) => None,
    }?;
    level.unit.clone().filter(|u| [Unit::RATIO, Unit::TIMES, Unit::COUNT].contains(u))
}

fn gate(criterion: &str, metric: &str, bound: &Bound, value: f64, unit: &Unit) -> Option<GateCard> {
    let (comparison, limit) = bound.limit_in(unit).ok()?;
    if comparison.holds(value, limit) {
        return None;
    }
    let mut shown = figure::with_unit(value, unit);
    if shown == figure::with_unit(limit, unit) {
        // Rounded it would read as if it held.
        shown = figure::join(&figure::digits(value, 12), unit.as_str());
    }
    Some(GateCard {
        criterion: criterion.to_owned(),
        metric: metric.to_owned(),
        value,
        unit: unit.clone(),
        bound: bound.to_string(),
        reason: format!("gate: {metric} is {shown}, it must be {bound}"),
    })
}

/// What is missing of a need; `None` where it is met or where nothing tells.
fn unmet(path: &crate::measure::MetricPath, bound: &Bound, evidence: &Evidence<'_>) -> Option<String> {
    let metric = evidence.metric(path).ok()?;
    let (comparison, limit) = bound.limit_in(&metric.unit).ok()?;
    let value = metric.median;
    (!comparison.holds(value, limit))
        .then(|| format!("{path} is {}, full evidence needs {bound}", figure::with_unit(value, &metric.unit)))
}
