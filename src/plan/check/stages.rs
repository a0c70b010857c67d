//! Stages: kinds, names, what they need, what they run on, their options, what is expected of them, and whether all
//! of it fits into the time that the limits leave.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{Check, names};
use crate::{
    findings::{At, Place},
    measure::{
        MetricPath, Unit,
        quantity::{Bound, Duration},
    },
    plan::{
        model::Entry,
        suggest,
        tree::{Node, Value},
    },
    platform::Name,
    stage::{KINDS, Kind, Spec, program::Reader},
};

/// How often a stage may be done: each time is a task in the journal.
const MOST_REPEATS: u32 = 1000;

impl Check<'_> {
    pub(super) fn stages(&self) {
        let stages = &self.plan.stages;
        if self.names.stages.is_empty() {
            self.context.error(self.key_place(&["stages"]), "no stage: nothing is measured");
        }
        let mut first: HashMap<&str, Place> = HashMap::new();
        for entry in stages {
            self.entry(entry);
            let Some((id, place)) = id_of(entry) else { continue };
            if let Some(before) = first.get(id) {
                let help = Some("give one of them an `id` of its own".to_owned());
                let message =
                    format!("stage id `{id}` is used twice, first on line {}", names::line(*before));
                self.context.error_with(place, message, help);
            } else {
                first.insert(id, place);
            }
        }
        self.cycles();
        self.unused_workloads();
    }

    fn entry(&self, entry: &At<Entry>) {
        if let Some(id) = &entry.id {
            let sound = self.identifier("stage", id);
            if sound && id.value.contains('.') && !self.context.is_unresolved(id.place) {
                let message = format!("the stage name `{}` holds a `.`", id.value);
                let help = Some("in metrics `.` separates the stage from the quantity".to_owned());
                self.context.error_with(id.place, message, help);
            }
            if let Some(kind) = Kind::named(&id.value)
                && entry.kind().is_some_and(|own| own != kind.name)
            {
                let message = format!("the stage name `{}` is that of another kind", id.value);
                self.context.error(id.place, message);
            }
        }
        match entry.kinds().as_slice() {
            [] if self.context.lost(entry.place) => {}
            [] => {
                let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
                let help = Some(format!("give one of {}", kinds.join(", ")));
                self.context.error_with(entry.place, "a stage without a kind", help);
            }
            [_] => {}
            [(first, _), (second, place), ..] => {
                let help = Some("split the entry: one stage kind each".to_owned());
                self.context.error_with(*place, format!("`{second}` beside `{first}`"), help);
            }
        }
        self.endpoints(entry);
        for need in &entry.needs {
            if id_of(entry).is_some_and(|(id, _)| id == need.value) {
                self.context.error(need.place, format!("`{}` needs itself", need.value));
            } else {
                self.known_stage(need);
            }
        }
        if let Some(repeat) = &entry.repeat
            && repeat.value == 0
        {
            self.context.error(repeat.place, "repeated 0 times: drop the stage instead");
        }
        if let Some(repeat) = &entry.repeat
            && repeat.value > MOST_REPEATS
        {
            let message = format!("repeated {} times: at most {MOST_REPEATS}", repeat.value);
            self.context.error(repeat.place, message);
        }
        if let Some(spec) = entry.spec() {
            self.options(entry, &spec);
            self.expectations(entry, &spec);
        }
    }

    fn endpoints(&self, entry: &At<Entry>) {
        let mut seen: HashSet<&str> = HashSet::new();
        for name in entry.at.iter().flatten() {
            self.known("endpoint", name, &self.names.endpoints);
            if !seen.insert(&name.value) {
                self.context.error(name.place, format!("endpoint `{}` stands twice", name.value));
            }
        }
    }

    /// Stages that wait for each other. Each circle is said once, at its first stage.
    fn cycles(&self) {
        let needs: HashMap<&str, &[Name]> = self
            .plan
            .stages
            .iter()
            .filter_map(|entry| Some((id_of(entry)?.0, entry.needs.as_slice())))
            .collect();
        // Depth first. A stage is settled when all that it needs is, or when it stands on a circle that was said.
        let mut settled: HashSet<&str> = HashSet::with_capacity(needs.len());
        let mut depth: HashMap<&str, usize> = HashMap::new();
        for entry in &self.plan.stages {
            let Some((start, _)) = id_of(entry) else { continue };
            // How this stage is come to, and what it needs that was not looked at yet.
            let mut way: Vec<(Option<&Name>, &str, std::slice::Iter<'_, Name>)> = Vec::new();
            if !settled.contains(start) {
                depth.insert(start, 0);
                way.push((None, start, entry.needs.iter()));
            }
            while let Some((_, id, wanted)) = way.last_mut() {
                let is_open = |need: &&Name| need.value != *id && !settled.contains(need.value.as_str());
                let next =
                    wanted.filter(is_open).find_map(|need| Some((need, needs.get(need.value.as_str())?)));
                let Some((need, further)) = next else {
                    settled.insert(id);
                    way.pop();
                    continue;
                };
                let Some(begin) = depth.get(need.value.as_str()).copied() else {
                    depth.insert(&need.value, way.len());
                    way.push((Some(need), &need.value, further.iter()));
                    continue;
                };
                let needed = way[begin + 1..].iter().filter_map(|(need, ..)| *need).chain([need]);
                let circle: Vec<&Name> = needed.collect();
                let ids: Vec<&str> = circle.iter().map(|name| name.value.as_str()).collect();
                let message = format!("stages wait for each other: {} → {}", ids.join(" → "), ids[0]);
                self.context.error(circle[0].place, message);
                settled.extend(ids);
                way.truncate(begin);
            }
        }
    }

    fn unused_workloads(&self) {
        if self.plan.stages.iter().filter(|entry| entry.kind().is_some()).count() != self.names.stages.len() {
            return;
        }
        let specs: Vec<Spec> = self.plan.stages.iter().filter_map(|entry| entry.spec()).collect();
        let used: HashSet<&str> =
            specs.iter().filter_map(Spec::workload).map(|workload| workload.value.as_str()).collect();
        for name in self.plan.workloads.keys().filter(|name| !used.contains(name.value.as_str())) {
            self.context.warning(name.place, format!("no stage runs workload `{}`", name.value));
        }
    }

    /// Options that contradict themselves.
    fn options(&self, entry: &At<Entry>, spec: &Spec) {
        if let Some(workload) = spec.workload() {
            self.known("workload", workload, &self.names.workloads);
        }
        let place = entry.kinds().first().map_or(entry.place, |(_, place)| *place);
        if self.context.unsure(place) {
            return;
        }
        let of = |key: &str| self.option_place(place, key).unwrap_or(place);
        let nothing = |key: &str, what: &str| self.context.error(of(key), format!("`{key}` is 0: {what}"));
        match spec {
            Spec::Throughput(spec) => {
                if spec.steps == 0 {
                    nothing("steps", "there is nothing to time");
                }
                if spec.gpus == 0 {
                    nothing("gpus", "leave it out where there is none; CPU cores take their place");
                }
            }
            Spec::Scaling(spec) => {
                if spec.steps == 0 {
                    nothing("steps", "there is nothing to time");
                }
                match spec.gpus.as_slice() {
                    [] => self
                        .context
                        .error(of("gpus"), "no number of accelerators: give the baseline and more"),
                    [_] => self
                        .context
                        .error(of("gpus"), "one number of accelerators shows no scaling: give two or more"),
                    _ => {}
                }
                let rising = spec.gpus.windows(2).all(|pair| pair[0] < pair[1]);
                if spec.gpus.contains(&0) || !rising {
                    self.context.error(of("gpus"), "numbers of accelerators rise from 1 or more, each once");
                }
            }
            Spec::Storage(spec) => {
                if spec.size.bytes <= 0.0 {
                    nothing("size", "there is nothing to write");
                }
                if spec.upload.is_some_and(|size| size.bytes <= 0.0) {
                    nothing("upload", "drop it");
                }
            }
            Spec::Soak(spec) => {
                if spec.duration.seconds <= 0.0 {
                    nothing("duration", "there is nothing to watch");
                }
                if spec.gpus == 0 {
                    nothing("gpus", "leave it out where there is none; CPU cores take their place");
                }
                if spec.window.is_some_and(|w| w.seconds <= 0.0 || w.seconds * 2.0 > spec.duration.seconds) {
                    self.context.error(of("window"), "at least two windows must fit into the duration");
                }
            }
            Spec::Command(spec) => {
                if spec.gpus == 0 {
                    nothing("gpus", "leave it out where there is none");
                }
            }
            Spec::Inventory(_) => {}
        }
        let least = Duration::from_seconds(spec.at_least_seconds());
        if least.seconds > super::LONGEST.seconds {
            let message = format!("the stage takes at least {least}, more than {}", super::LONGEST);
            self.context.error(place, message);
        }
        if let Some(timeout) = &entry.timeout {
            self.span("timeout", timeout.place, timeout.value);
        }
        if let Some(timeout) = &entry.timeout
            && !self.context.is_unresolved(timeout.place)
            && timeout.seconds < least.seconds
        {
            self.context
                .error(timeout.place, format!("the stage takes at least {least}: it can never end in time"));
        }
    }

    /// Where the value of an option stands; `place` is that of the options.
    fn option_place(&self, place: Place, key: &str) -> Option<Place> {
        if self.context.is_full() {
            return None;
        }
        let stages = self.node(&["stages"])?;
        let Value::Seq(items) = &stages.value else { return None };
        let options =
            items.iter().flat_map(Node::entries).map(|(_, node)| node).find(|n| n.place == place)?;
        self.child(options, key).map(|node| node.place)
    }

    fn expectations(&self, entry: &At<Entry>, spec: &Spec) {
        for (name, bound) in &entry.expect {
            let path: MetricPath = match name.value.parse() {
                Ok(path) => path,
                Err(message) => {
                    self.context.error(name.place, message);
                    continue;
                }
            };
            if let Some(stage) = &path.stage
                && Some(stage.as_str()) != entry.stage_id()
                && stage != spec.kind()
            {
                let help = Some(format!("write `{}{}` for this stage's own", path.name, path.labels));
                self.context.error_with(name.place, format!("`{path}` is of another stage"), help);
                continue;
            }
            if let Some((key, value)) = Self::unmeasured_label(&path, spec) {
                self.context.error(name.place, format!("`{key}={value}` is never measured by this stage"));
            }
            let metric = spec.metrics().iter().find(|metric| metric.name == path.name);
            let unit = match metric {
                Some(metric) => Some(metric.unit.clone()),
                None if spec.open() => self.unit_by_reader(spec, &path.name),
                None => {
                    let names = spec.metrics().iter().map(|metric| metric.name);
                    let help = suggest::help(&path.name, names);
                    let message = format!("`{}` measures no `{}`", spec.kind(), path.name);
                    self.context.error_with(name.place, message, help);
                    continue;
                }
            };
            self.bound(bound, unit.as_ref());
        }
    }

    /// A bound against the unit of what it bounds; an unknown unit must be said by the bound.
    pub(super) fn bound(&self, bound: &At<Bound>, unit: Option<&Unit>) {
        if let Some(unit) = unit
            && let Err(message) = bound.limit_in(unit)
        {
            self.context.misfit(bound.place, message);
        }
    }

    /// The unit that the workload's reader declares for a metric.
    pub(super) fn unit_by_reader(&self, spec: &Spec, metric: &str) -> Option<Unit> {
        let workload = self.plan.workloads.get(spec.workload()?.value.as_str())?;
        let Reader::Pattern(patterns) = &workload.reader.as_ref()?.value else { return None };
        let index = patterns.iter().position(|pattern| pattern.metric == metric)?;
        let path = ["workloads", &spec.workload()?.value, "reader", "pattern", &index.to_string(), "unit"];
        if self.node(&path).is_some_and(|node| self.context.is_unresolved(node.place)) {
            return None;
        }
        let pattern = &patterns[index];
        let Ok(unit) = pattern.unit.parse::<Unit>();
        Some(unit)
    }

    /// A label of the path that no variant of the stage has.
    pub(super) fn unmeasured_label<'p>(path: &'p MetricPath, spec: &Spec) -> Option<(&'p str, &'p str)> {
        if path.labels.is_empty() {
            return None;
        }
        let variants = spec.variants();
        path.labels.0.iter().map(|(key, value)| (key.as_str(), value.as_str())).find(|(key, value)| {
            // Labels that tell no variants apart are the program's own.
            let mut values = variants.iter().filter_map(|labels| labels.0.get(*key)).peekable();
            values.peek().is_some() && !values.any(|known| known == value)
        })
    }

    /// Whether what the stages take at least fits into `stop_after`, one lane at a time.
    pub(super) fn time(&self) {
        let Some(limits) = &self.plan.limits else { return };
        let Some(stop) = &limits.stop_after else { return };
        if self.context.is_unresolved(stop.place) {
            return;
        }
        // Seconds by endpoint name; without a name a stage runs on each platform's first.
        let mut seconds: HashMap<Option<&str>, f64> = HashMap::new();
        for entry in &self.plan.stages {
            if let Some(timeout) = &entry.timeout
                && timeout.seconds > stop.seconds
                && !self.context.is_unresolved(timeout.place)
            {
                let stop = self.context.shown(stop);
                self.context.error(timeout.place, format!("a timeout beyond `stop_after`, which is {stop}"));
            }
            let Some(spec) = entry.spec() else { continue };
            if entry.kinds().iter().any(|(_, place)| self.context.unsure(*place)) {
                continue;
            }
            let each = spec.at_least_seconds() * spec.variants().len() as f64 * f64::from(entry.repeats());
            match &entry.at {
                Some(at) => at.iter().for_each(|name| *seconds.entry(Some(&name.value)).or_default() += each),
                None => *seconds.entry(None).or_default() += each,
            }
        }
        let mut least: BTreeMap<String, f64> = BTreeMap::new();
        for (id, platform) in &self.plan.platforms {
            for (i, (name, endpoint)) in platform.endpoints.iter().enumerate() {
                let of = |name: Option<&str>| seconds.get(&name).copied().unwrap_or(0.0);
                let here = of(Some(&name.value)) + if i == 0 { of(None) } else { 0.0 };
                let lane = match &endpoint.lane {
                    Some(lane) => format!("lane `{}`", lane.value),
                    None if endpoint.local.is_some() => "this machine".to_owned(),
                    None => format!("`{}/{}`", id.value, name.value),
                };
                *least.entry(lane).or_default() += here;
            }
        }
        let longest = least.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((lane, seconds)) = longest
            && seconds > stop.seconds
        {
            let least = Duration::from_seconds(seconds.ceil());
            let help = Some(
                "raise it, or shorten stages: the sum counts `at_least`, `duration`, variants and `repeat`"
                    .to_owned(),
            );
            self.context.error_with(
                stop.place,
                format!(
                    "the stages on {lane} take at least {least}, all ends after {}",
                    self.context.shown(stop)
                ),
                help,
            );
        }
    }
}

/// An entry's id, and where it stands: that of its kind where it has none.
fn id_of(entry: &Entry) -> Option<(&str, Place)> {
    match &entry.id {
        Some(id) => Some((&id.value, id.place)),
        None => match entry.kinds().as_slice() {
            [(kind, place)] => Some((kind, *place)),
            _ => None,
        },
    }
}
