//! Whether a rubric adds up, and whether the plan measures what it looks at.
//!
//! Weights sum to 100 and rules tile their range, or the rubric is refused: nothing is normalised in silence.

use super::{Check, Origin, metrics::Problem};
use crate::{
    findings::{At, Place},
    measure::{MetricPath, Unit},
    plan::{read::Context, suggest},
    platform::Name,
    score::rubric::{Band, Criterion, Level, Part, Rubric, Rule},
};

/// How far a sum of weights may be off for rounding.
const TOLERANCE: f64 = 1e-9;

/// A rubric under check; its text may be another one than the plan's.
pub(crate) struct RubricCheck<'a> {
    pub(crate) rubric: &'a Rubric,
    /// Takes findings about the rubric's own text.
    pub(crate) context: &'a Context<'a>,
    /// Where the rubric's name stands in its text, for what concerns all of it.
    pub(crate) start: Place,
}

impl RubricCheck<'_> {
    /// Whether it adds up, whatever the plan.
    pub(crate) fn sums(&self) {
        let rubric = self.rubric;
        if rubric.criteria.is_empty() {
            self.context.error(self.start, "a rubric without criteria");
        }
        let unsure = rubric
            .criteria
            .values()
            .any(|c| self.context.unsure(c.place) || self.context.is_unresolved(c.place));
        let weights = rubric.criteria.values().map(|criterion| criterion.weight);
        if !unsure && !rubric.criteria.is_empty() {
            self.sum("the weights of the criteria", self.start, weights, 100.0);
        }
        for (name, criterion) in &rubric.criteria {
            self.criterion(name, criterion);
        }
        for (preset, weights) in &rubric.presets {
            for (name, weight) in &weights.value {
                if !rubric.criteria.contains_key(name.value.as_str()) {
                    let help = suggest::help(&name.value, rubric.criteria.keys().map(|n| n.value.as_str()));
                    self.context.error_with(name.place, format!("no criterion `{}`", name.value), help);
                } else if *weight < 0.0 {
                    self.context.error(name.place, "a weight below 0");
                }
            }
            if !self.context.unsure(weights.place) {
                self.sum(
                    &format!("the weights of preset `{}`", preset.value),
                    preset.place,
                    weights.values().copied(),
                    100.0,
                );
            }
        }
    }

    fn sum(&self, what: &str, place: Place, numbers: impl Iterator<Item = f64>, wanted: f64) {
        let sum: f64 = numbers.sum();
        if (sum - wanted).abs() > TOLERANCE {
            // Not more digits than were written.
            let sum = (sum * 1e6).round() / 1e6;
            self.context.error(place, format!("{what} sum to {sum}, not to {wanted}"));
        }
    }

    fn criterion(&self, name: &Name, criterion: &At<Criterion>) {
        if criterion.weight < 0.0 {
            self.context.error(name.place, "a weight below 0");
        }
        let unsure = self.context.unsure(criterion.place)
            || criterion.parts.iter().any(|p| self.context.unsure(p.place));
        if criterion.parts.is_empty() && !unsure {
            self.context.error(name.place, format!("criterion `{}` has no parts", name.value));
        } else if !unsure {
            let what = format!("the points of the parts of `{}`", name.value);
            self.sum(&what, name.place, criterion.parts.iter().map(|part| part.points), criterion.weight);
        }
        for part in &criterion.parts {
            self.part(part);
        }
    }

    fn part(&self, part: &At<Part>) {
        let sources = [part.metric.is_some(), !part.ask.is_empty(), part.offer.is_some()];
        let count = sources.into_iter().filter(|there| *there).count();
        let help = Some("a part looks at exactly one of `metric`, `ask` and `offer`".to_owned());
        match count {
            0 if !self.context.lost(part.place) => {
                self.context.error_with(part.place, "a part that looks at nothing", help);
            }
            2.. => self.context.error_with(part.place, "a part that looks at several things", help),
            _ => {}
        }
        if part.points < 0.0 {
            self.context.error(part.place, "points below 0");
        }
        match (&part.rule.value, part.ask.len()) {
            (Rule::Checklist(_), 0) if count == 1 => {
                self.context
                    .error(part.rule.place, "a checklist counts answers: name its questions under `ask`");
            }
            (Rule::Checklist(_), _) | (_, 0 | 1) => {}
            (_, more) => {
                self.context.error(
                    part.rule.place,
                    format!("{more} questions, and the rule takes one: a `checklist` takes all"),
                );
            }
        }
        if matches!(part.rule.value, Rule::PerEvent(_)) && part.metric.is_none() && count == 1 {
            self.context.error(part.rule.place, "`per_event` counts a metric: name it under `metric`");
        }
    }

    /// Whether rules fit what they look at; `unit` is that of the metric, where it is known.
    fn rule(&self, part: &At<Part>, unit: Option<&Unit>) {
        let place = part.rule.place;
        if self.context.unsure(place) || self.context.unsure(part.place) {
            return;
        }
        match &part.rule.value {
            Rule::Step(step) => {
                let levels = self.levels(place, &[&step.full_at, &step.per], unit);
                // With another sign the steps would lead upwards; with none they would never end.
                if levels.is_some_and(|levels| levels[1] <= 0.0) {
                    self.context.error(place, "`per` is the distance of one step: write it above 0");
                }
                if step.deduct <= 0.0 {
                    self.context.error(place, "`deduct` takes nothing away: write it above 0");
                }
            }
            Rule::Linear(linear) => {
                let levels = self.levels(place, &[&linear.zero_at, &linear.full_at], unit);
                if levels
                    .is_some_and(|levels| (levels[0] - levels[1]).abs() <= f64::EPSILON * levels[0].abs())
                {
                    self.context.error(place, "`zero_at` and `full_at` are the same: nothing lies between");
                }
            }
            Rule::Bands(bands) => self.bands(part, bands, unit),
            Rule::PerEvent(rule) => {
                if rule.deduct <= 0.0 {
                    self.context.error(place, "`deduct` takes nothing away: write it above 0");
                }
            }
            Rule::Checklist(_) => {}
        }
    }

    /// The levels in one unit; said and `None` where they have none in common.
    fn levels(&self, place: Place, levels: &[&Level], unit: Option<&Unit>) -> Option<Vec<f64>> {
        // Of an unknown metric only the levels tell the unit; a bare number goes with a share as `1` does.
        let first = levels.iter().find_map(|level| level.unit.clone());
        let first = first.map(|unit| if unit.compatible(&Unit::RATIO) { Unit::RATIO } else { unit });
        let Some(unit) = unit.or(first.as_ref()) else {
            return Some(levels.iter().map(|level| level.value).collect());
        };
        let read: Result<Vec<f64>, String> = levels.iter().map(|level| level.value_in(unit)).collect();
        read.map_err(|message| self.context.misfit(place, message)).ok()
    }

    fn bands(&self, part: &At<Part>, bands: &[At<Band>], unit: Option<&Unit>) {
        let (Some(first), Some(last)) = (bands.first(), bands.last()) else {
            self.context.error(part.rule.place, "no band at all");
            return;
        };
        if bands.iter().any(|band| self.context.unsure(band.place)) {
            return;
        }
        if first.from.is_some() {
            self.context.error(first.place, "the first band begins at the bottom: drop its `from`");
        }
        if last.to.is_some() {
            self.context.error(last.place, "the last band ends at the top: drop its `to`");
        }
        for pair in bands.windows(2) {
            let (Some(end), Some(begin)) = (&pair[0].to, &pair[1].from) else {
                let message = "between two bands the one ends and the next begins: give `to` and `from`";
                self.context.error(pair[1].place, message);
                continue;
            };
            let Some(levels) = self.levels(pair[1].place, &[end, begin], unit) else { return };
            if levels[0] < levels[1] {
                self.context.error(pair[1].place, format!("a gap: nothing is said from {end} to {begin}"));
            } else if levels[0] > levels[1] {
                self.context.error(pair[1].place, format!("an overlap: {begin} to {end} are in two bands"));
            }
        }
        for band in bands {
            if let (Some(from), Some(to)) = (&band.from, &band.to)
                && self.levels(band.place, &[from, to], unit).is_some_and(|levels| levels[0] >= levels[1])
            {
                self.context.error(band.place, "the band ends before it begins");
            }
            if band.points_to.is_some() && (band.from.is_none() || band.to.is_none()) {
                self.context.error(band.place, "a slope needs both ends: give `from` and `to`");
            }
            for points in [Some(band.points), band.points_to].into_iter().flatten() {
                if points < 0.0 || points > part.points + TOLERANCE {
                    self.context.error(band.place, format!("{points} points in a part of {}", part.points));
                }
            }
        }
    }
}

/// What a built-in rubric looks at and will not find.
#[derive(Default)]
struct Unmeasured {
    not_planned: Vec<String>,
    unknown: Vec<String>,
}

impl Check<'_> {
    /// Whether the plan measures what the rubric looks at; `reference` is where the plan names it.
    pub(crate) fn rubric(&self, of: &RubricCheck<'_>, origin: Origin, reference: Place) {
        let mut unmeasured = Unmeasured::default();
        for part in of.rubric.criteria.values().flat_map(|criterion| &criterion.parts) {
            let unit = match (&part.metric, &part.offer) {
                (Some(metric), _) => self.rubric_metric(of, origin, reference, metric, &mut unmeasured),
                (None, Some(_)) => Some(Unit::SECONDS),
                (None, None) => None,
            };
            of.rule(part, unit.as_ref());
            if let Some(needs) = &part.needs
                && let Some(unit) = self.rubric_metric(of, origin, reference, &needs.metric, &mut unmeasured)
                && let Err(message) = needs.bound.limit_in(&unit)
            {
                of.context.misfit(needs.bound.place, message);
            }
            if let (Some(gate), Some(unit)) = (&part.gate, unit)
                && let Err(message) = gate.limit_in(&unit)
            {
                of.context.misfit(gate.place, message);
            }
        }
        let name = if self.plan.rubric.is_some() { "rubric" } else { "the default rubric" };
        let name = format!("{name} `{}`", of.rubric.name);
        if !unmeasured.not_planned.is_empty() {
            let list = unmeasured.not_planned.join(", ");
            self.context
                .warning(reference, format!("{name} asks for what this plan will not measure: {list}"));
        }
        if !unmeasured.unknown.is_empty() {
            let list = unmeasured.unknown.join(", ");
            self.context.note(reference, format!("{name} asks for what this version cannot measure: {list}"));
        }
    }

    fn rubric_metric(
        &self,
        of: &RubricCheck<'_>,
        origin: Origin,
        reference: Place,
        metric: &At<MetricPath>,
        unmeasured: &mut Unmeasured,
    ) -> Option<Unit> {
        if origin == Origin::Author {
            return self.author_metric(of.context, metric.place, metric);
        }
        let path = metric.value.to_string();
        match self.resolve(metric) {
            Ok(unit) => return unit,
            Err(Problem::Unknown { .. }) => unmeasured.unknown.push(path),
            Err(Problem::NotPlanned { .. }) => unmeasured.not_planned.push(path),
            Err(Problem::Ambiguous { message, help }) => {
                let message = format!("rubric `{}` asks for `{path}`: {message}", of.rubric.name);
                self.context.error_with(reference, message, Some(help));
            }
        }
        None
    }
}
