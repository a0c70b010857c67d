//! What the results are for: `bind`, jobs, the incumbent, scenarios, headline metrics, and questions to people.

use std::collections::BTreeSet;

use super::Check;
use crate::{
    findings::At,
    measure::{MetricPath, Unit, quantity::Bound},
    plan::suggest,
    platform::Name,
    score::{
        judgement::{Job, Objective, Scenario},
        rubric::Rubric,
    },
    stage::{KINDS, Kind, program::WorkUnit},
};

/// What a scenario may require beside metrics, and whether it is a number.
static PROPERTIES: [(&str, Option<Unit>); 7] = [
    ("gpus", Some(Unit::COUNT)),
    ("memory_per_gpu", Some(Unit::BYTES)),
    ("gpu", None),
    ("interconnect", None),
    ("network", None),
    ("compliance", None),
    ("region", None),
];

/// How many headline metrics are tested and corrected together.
const MOST_HEADLINES: usize = 6;

impl Check<'_> {
    pub(super) fn judgement(&self, rubric: Option<&Rubric>) {
        let plan = self.plan;
        self.bind();
        for (name, job) in &plan.jobs {
            self.identifier("job", name);
            self.job(name, job);
        }
        if let Some(incumbent) = &plan.incumbent {
            self.known("platform", &incumbent.platform, &self.names.platform_ids);
            for (job, _) in &incumbent.jobs_per_month {
                self.known("job", job, &self.names.jobs);
            }
        }
        for (name, scenario) in &plan.scenarios {
            self.identifier("scenario", name);
            self.scenario(scenario, rubric);
        }
        if let (Some(preset), Some(rubric)) = (&plan.preset, rubric) {
            self.preset(preset, rubric);
        }
        self.headline();
        if let Some(rubric) = rubric {
            self.questions(rubric);
        }
    }

    fn bind(&self) {
        let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
        for (kind, id) in &self.plan.bind {
            if !self.one_of("stage kind", kind, &kinds) || !self.known_stage(id) {
                continue;
            }
            let other = self.names.stage(&id.value).and_then(|stage| stage.kind);
            if let Some(other) = other.filter(|other| other.name != kind.value) {
                let message = format!("`{}` is a `{}` stage, no `{}`", id.value, other.name, kind.value);
                self.context.error(id.place, message);
            }
        }
    }

    fn job(&self, name: &Name, job: &At<Job>) {
        let of = |key: &str| self.place(&["jobs", &name.value, key], name.place);
        if job.gpus == 0 {
            self.context
                .error(of("gpus"), "a job on 0 accelerators: leave out the job, or count one CPU host as 1");
        }
        if let Some(labour) = &job.labour {
            self.convertible(labour.rate.place, &labour.rate.money.currency);
            if labour.hours < 0.0 {
                self.context.error(of("labour"), "fewer than no hours");
            }
        }
        if job.headroom.is_some_and(|h| h < 0.0) {
            self.context.error(of("headroom"), "headroom below nothing");
        }
        // Its own workload, where the job names one.
        if let Some(node) = self.node(&["jobs", &name.value, "workload"])
            && let crate::plan::tree::Value::Scalar { text, .. } = &node.value
        {
            let workload = At { value: self.context.fill(text).into_owned(), place: node.place };
            self.known("workload", &workload, &self.names.workloads);
        }
        let per_second = format!("{}_per_second", job.work.unit);
        let path = MetricPath {
            stage: Some(job.from.value.clone()),
            name: per_second,
            labels: crate::measure::Labels::none(),
        };
        let stage = self.names.stage(&job.from.value).map(|stage| stage.kind);
        let kind = stage.or_else(|| Kind::named(&job.from.value).map(Some)).flatten();
        if let Some(kind) = kind
            && !kind.open
            && kind.metric(&path.name).is_none()
        {
            let message = format!("a `{}` stage measures no {} per second", kind.name, job.work.unit);
            self.context.error(job.from.place, message);
            return;
        }
        self.author_metric(self.context, job.from.place, &path);
        self.job_unit(job);
    }

    /// The job counts in what the program of its stage counts.
    fn job_unit(&self, job: &At<Job>) {
        let counted = self
            .entries
            .get(job.from.value.as_str())
            .and_then(|entry| entry.spec())
            .and_then(|spec| self.plan.workloads.get(spec.workload()?.value.as_str()))
            .and_then(|workload| workload.unit.as_ref());
        let Some(unit) = counted.filter(|unit| !self.context.is_unresolved(unit.place)) else { return };
        let word = match unit.value {
            WorkUnit::Samples => "samples",
            WorkUnit::Tokens => "tokens",
        };
        if ["samples", "tokens"].contains(&job.work.unit.as_str()) && job.work.unit != word {
            let message =
                format!("the job counts {}, the program of `{}` {word}", job.work.unit, job.from.value);
            self.context.error(job.from.place, message);
        }
    }

    fn scenario(&self, scenario: &At<Scenario>, rubric: Option<&Rubric>) {
        if let Some(job) = &scenario.job {
            self.known("job", job, &self.names.jobs);
        } else if scenario.objective == Objective::Cost && !self.context.lost(scenario.place) {
            let help = Some("name one of `jobs` under `job`".to_owned());
            self.context.error_with(scenario.place, "least cost of what: no job is named", help);
        }
        if let (Some(preset), Some(rubric)) = (&scenario.preset, rubric) {
            self.preset(preset, rubric);
        }
        for (what, bound) in &scenario.require {
            self.requirement(what, bound);
        }
    }

    fn requirement(&self, what: &Name, bound: &At<Bound>) {
        let property = PROPERTIES.iter().find(|(word, _)| *word == what.value);
        match (property, &bound.value) {
            (Some((_, Some(unit))), _) => self.bound(bound, Some(unit)),
            (Some((word, None)), Bound::Number { .. }) => {
                self.context.misfit(bound.place, format!("`{word}` is a word, `{}` a number", bound.value));
            }
            (Some(_), Bound::Word(_)) => {}
            (None, _) if what.value.contains('.') => match what.value.parse::<MetricPath>() {
                Ok(path) => {
                    let unit = self.author_metric(self.context, what.place, &path);
                    self.bound(bound, unit.as_ref());
                }
                Err(message) => self.context.error(what.place, message),
            },
            (None, _) => {
                let help = suggest::help(&what.value, PROPERTIES.iter().map(|(word, _)| *word));
                let message = format!("`{}` is nothing that can be required", what.value);
                self.context.error_with(
                    what.place,
                    message,
                    help.map(|h| format!("{h}, or a metric `stage.quantity`")),
                );
            }
        }
    }

    fn preset(&self, preset: &Name, rubric: &Rubric) {
        if !rubric.presets.contains_key(preset.value.as_str()) && !self.context.is_full() {
            let presets: BTreeSet<&str> = rubric.presets.keys().map(|name| name.value.as_str()).collect();
            self.known("weight preset", preset, &presets);
        }
    }

    fn headline(&self) {
        let headline = &self.plan.headline;
        if let Some(seventh) = headline.get(MOST_HEADLINES) {
            let message = format!("{} headline metrics: {MOST_HEADLINES} are the most", headline.len());
            let help = Some("more of them tested together find more that is not there".to_owned());
            self.context.error_with(seventh.place, message, help);
        }
        let mut seen = BTreeSet::new();
        for path in headline {
            if !seen.insert(&path.value) {
                self.context.error(path.place, format!("`{}` stands twice", path.value));
                continue;
            }
            match (path.stage.as_deref(), path.name.as_str()) {
                (None, "score") => {}
                (Some("cost"), job) => {
                    let job = At { value: job.to_owned(), place: path.place };
                    self.known("job", &job, &self.names.jobs);
                }
                _ => {
                    self.author_metric(self.context, path.place, &path.value);
                }
            }
        }
    }

    /// Questions that the rubric asks and nobody answered, and answers that nobody asked for.
    fn questions(&self, rubric: &Rubric) {
        let parts = rubric.criteria.values().flat_map(|criterion| &criterion.parts);
        let asked: BTreeSet<&str> =
            parts.flat_map(|part| &part.ask).map(|name| name.value.as_str()).collect();
        for (id, platform) in &self.plan.platforms {
            if self.context.is_full_of_remarks() {
                return;
            }
            for question in platform.declared.keys().filter(|name| !asked.contains(name.value.as_str())) {
                let near = suggest::nearest(&question.value, asked.iter().copied());
                let help = near.map(|near| format!("did you mean `{near}`?"));
                let message = format!("rubric `{}` does not ask `{}`", rubric.name, question.value);
                self.context.warning_with(question.place, message, help);
            }
            let open: Vec<&str> =
                asked.iter().copied().filter(|question| !platform.declared.contains_key(*question)).collect();
            let known = self.node(&["platforms", &id.value, "declared"]);
            if !open.is_empty() && !known.is_some_and(|node| self.context.lost(node.place)) {
                self.context
                    .note(id.place, format!("open questions about `{}`: {}", id.value, open.join(", ")));
            }
        }
    }
}
