//! The schedule: every task that a plan asks for, in order, by lane. Pure, and the same for the same plan.
//!
//! Stages run in the order of the plan, moved back only behind what they need; within a stage platforms take turns
//! repetition by repetition, so that slow drifts of a shared machine hit all candidates alike.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
    sync::Arc,
};

use indexmap::IndexMap;

use crate::{
    measure::{
        Labels, MetricPath,
        quantity::{Bound, Duration},
    },
    plan::model::{Entry, Plan},
    platform::{Endpoint, Platform, SshAddress},
    record::{Cause, Outcome, OutcomeKind, PlannedTask, TaskId},
    stage::{Spec, drive::Site, program::Workload},
    transport::ssh::Target,
};

/// How long a task may take when the plan does not say: this much more than twice what its options ask for.
const DEFAULT_TIMEOUT: f64 = 3600.0;

/// The lane of the machine that planrun runs on.
const LOCAL_LANE: &str = "local";

/// Where a task runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Its name for people: `platform` or `platform/endpoint`.
    pub name: String,
    /// The lane that it shares or has alone.
    pub lane: String,
    /// How it is reached over SSH; `None`: it is the machine that planrun runs on, or cannot be reached yet.
    pub ssh: Option<Target>,
    /// Whether it is the machine that planrun runs on.
    pub local: bool,
    /// CPU cores that tasks may use; `None`: all.
    pub cpus: Option<u32>,
    /// Where the run's folder is made.
    pub workdir: Option<String>,
}

/// A task with all that is needed to run it.
#[derive(Debug, Clone)]
pub struct Task {
    /// Its identity.
    pub planned: PlannedTask,
    /// What is done.
    pub spec: Spec,
    /// The workload that the stage names.
    pub workload: Option<(String, Workload)>,
    /// The machine, as the plan describes it.
    pub site: Arc<Site>,
    /// Where it runs.
    pub place: Arc<Place>,
    /// Labels that its series carry beside those of the stage.
    pub labels: Labels,
    /// How long it may take.
    pub timeout: Duration,
    /// How often it is tried again after an error where that can help.
    pub retries: u32,
    /// Stages that must have ended well on the same platform.
    pub needs: Vec<String>,
    /// What the plan expects of its metrics, with the text of the path.
    pub expect: Vec<(MetricPath, Bound)>,
}

/// All tasks of a plan.
#[derive(Debug, Clone, Default)]
pub struct Schedule {
    /// Every task, in order, those that will not run included.
    pub planned: Vec<PlannedTask>,
    /// Tasks to run, in order, by lane.
    pub lanes: IndexMap<String, Vec<Task>>,
    /// Tasks that are settled without running, with their outcome.
    pub settled: Vec<(TaskId, Outcome)>,
}

/// What the user chose on the command line.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// Run only these: `PLATFORM`, `PLATFORM/STAGE` or `*/STAGE`; empty: all.
    pub only: Vec<String>,
    /// Leave these out.
    pub skip: Vec<String>,
    /// A rehearsal.
    pub quick: bool,
}

impl Choice {
    /// Whether a task is to run.
    fn takes(&self, platform: &str, stage: &str) -> bool {
        let matches = |pattern: &String| covers(pattern, platform, stage);
        (self.only.is_empty() || self.only.iter().any(matches)) && !self.skip.iter().any(matches)
    }

    /// Patterns that name nothing in the plan, each with the one that was meant where that is plain: a stage's name alone
    /// reads like a platform's.
    pub fn unknown(&self, plan: &Plan) -> Vec<(String, Option<String>)> {
        let stages: Vec<&str> = plan.stages.iter().filter_map(|e| e.stage_id()).collect();
        let known =
            |pattern: &&String| plan.platforms.keys().any(|p| stages.iter().any(|s| covers(pattern, p, s)));
        let meant = |pattern: &String| stages.contains(&pattern.as_str()).then(|| format!("*/{pattern}"));
        let unknown = self.only.iter().chain(&self.skip).filter(|p| !known(p));
        unknown.map(|p| (p.clone(), meant(p))).collect()
    }
}

fn covers(pattern: &str, platform: &str, stage: &str) -> bool {
    let (p, s) = pattern.split_once('/').map_or((pattern, "*"), |(p, s)| (p, s));
    (p == "*" || p == platform) && (s == "*" || s == stage)
}

/// Makes the schedule of a checked plan.
pub fn schedule(plan: &Plan, choice: &Choice, plan_dir: &Path) -> Schedule {
    let mut schedule = Schedule::default();
    for entry in in_order(plan) {
        let (Some(id), Some(spec)) = (entry.stage_id(), entry.spec()) else { continue };
        let repeats = if choice.quick { 1 } else { entry.repeats() };
        for repeat in 1..=repeats {
            for (platform_id, platform) in &plan.platforms {
                let endpoints = endpoints_of(entry, &spec, platform);
                let asked = (entry, id, &spec, repeat);
                if endpoints.is_empty() {
                    let planned = planned(&platform_id.value, asked, None, &Labels::none(), false);
                    let reason = "the platform has no endpoint for this stage";
                    let outcome = Outcome::new(OutcomeKind::Unsupported, Cause::NotOffered, reason);
                    schedule.settled.push((planned.id.clone(), outcome));
                    schedule.planned.push(planned);
                    continue;
                }
                let several = endpoints.len() > 1;
                for (endpoint_id, endpoint) in endpoints {
                    let site = Arc::new(site(&platform_id.value, platform, endpoint_id, endpoint, plan_dir));
                    let place =
                        Arc::new(place(&platform_id.value, platform, endpoint_id, endpoint, plan_dir));
                    for variant in spec.variants() {
                        let planned =
                            planned(&platform_id.value, asked, Some(endpoint_id), &variant, several);
                        let labels = if several { variant.with("endpoint", endpoint_id) } else { variant };
                        schedule.add(plan, choice, asked, planned, labels, &site, &place);
                    }
                }
            }
        }
    }
    schedule
}

impl Schedule {
    #[expect(clippy::too_many_arguments, reason = "one call, where all of it is at hand")]
    fn add(
        &mut self,
        plan: &Plan,
        choice: &Choice,
        (entry, id, spec, _): (&Entry, &str, &Spec, u32),
        planned: PlannedTask,
        labels: Labels,
        site: &Arc<Site>,
        place: &Arc<Place>,
    ) {
        self.planned.push(planned.clone());
        if !choice.takes(&planned.platform, id) {
            let outcome =
                Outcome::new(OutcomeKind::Skipped, Cause::NotSelected, "left out by --only or --skip");
            self.settled.push((planned.id, outcome));
            return;
        }
        let name = spec.workload().map(|w| w.value.clone());
        let workload = name.and_then(|n| plan.workloads.get(n.as_str()).map(|w| (n, w.value.clone())));
        let timeout = entry.timeout.as_ref().map_or_else(
            || Duration::from_seconds(spec.at_least_seconds() * 2.0 + DEFAULT_TIMEOUT),
            |t| t.value,
        );
        let expect = entry
            .expect
            .iter()
            .filter_map(|(path, bound)| Some((path.value.parse().ok()?, bound.value.clone())))
            .collect();
        self.lanes.entry(place.lane.clone()).or_default().push(Task {
            planned,
            spec: spec.clone(),
            workload,
            site: site.clone(),
            place: place.clone(),
            labels,
            timeout,
            retries: entry.retries.errors,
            needs: entry.needs.iter().map(|n| n.value.clone()).collect(),
            expect,
        });
    }
}

/// Stages in the order of the plan, each behind what it needs.
fn in_order(plan: &Plan) -> Vec<&Entry> {
    let ids: BTreeSet<&str> = plan.stages.iter().filter_map(|e| e.stage_id()).collect();
    let mut left: Vec<&Entry> = plan.stages.iter().map(|e| &e.value).collect();
    let (mut done, mut order) = (BTreeSet::new(), Vec::new());
    while !left.is_empty() {
        let ready = |e: &&Entry| {
            e.needs.iter().all(|n| done.contains(n.value.as_str()) || !ids.contains(n.value.as_str()))
        };
        // A circle cannot come this far in a checked plan; taking the first keeps the loop finite all the same.
        let next = left.iter().position(ready).unwrap_or(0);
        let entry = left.remove(next);
        done.extend(entry.stage_id());
        order.push(entry);
    }
    order
}

/// The endpoints that a stage runs on: those named that the platform has, else its first, for `inventory` all.
fn endpoints_of<'a>(entry: &Entry, spec: &Spec, platform: &'a Platform) -> Vec<(&'a str, &'a Endpoint)> {
    let all = platform.endpoints.iter().map(|(id, e)| (id.value.as_str(), &e.value));
    match &entry.at {
        Some(names) => all.filter(|(id, _)| names.iter().any(|n| n.value == *id)).collect(),
        None if matches!(spec, Spec::Inventory(_)) => all.collect(),
        None => all.take(1).collect(),
    }
}

fn planned(
    platform: &str,
    (entry, id, spec, repeat): (&Entry, &str, &Spec, u32),
    endpoint: Option<&str>,
    variant: &Labels,
    several: bool,
) -> PlannedTask {
    let mut name = format!("{platform}/{id}");
    if let Some(endpoint) = endpoint.filter(|_| several) {
        let _ = write!(name, "@{endpoint}");
    }
    name.push_str(&variant.to_string());
    if entry.repeats() > 1 {
        let _ = write!(name, "#{repeat}");
    }
    PlannedTask {
        id: TaskId(name),
        platform: platform.to_owned(),
        stage: id.to_owned(),
        kind: spec.kind().to_owned(),
        endpoint: endpoint.map(str::to_owned),
        labels: variant.clone(),
        repeat,
    }
}

fn site(platform_id: &str, platform: &Platform, id: &str, endpoint: &Endpoint, plan_dir: &Path) -> Site {
    Site {
        platform: platform_id.to_owned(),
        endpoint: id.to_owned(),
        promises: platform.promises.overridden_by(&endpoint.promises),
        gpus: endpoint.gpus.unwrap_or(0),
        peaks: platform.peaks.iter().map(|(name, peak)| (name.value.clone(), peak.clone())).collect(),
        plan_dir: plan_dir.to_owned(),
    }
}

fn place(platform_id: &str, platform: &Platform, id: &str, endpoint: &Endpoint, plan_dir: &Path) -> Place {
    let local = endpoint.local.as_ref().is_some_and(|l| l.value);
    let lane = match &endpoint.lane {
        _ if local => LOCAL_LANE.to_owned(),
        Some(lane) => lane.value.clone(),
        None => format!("{platform_id}/{id}"),
    };
    let name =
        if platform.endpoints.len() > 1 { format!("{platform_id}/{id}") } else { platform_id.to_owned() };
    let cpus = endpoint.cpus.as_ref().map(|c| c.value);
    let ssh = target(endpoint, plan_dir);
    Place { name, lane, ssh, local, cpus, workdir: endpoint.workdir.clone() }
}

/// How an endpoint is reached over SSH, if it is.
pub fn target(endpoint: &Endpoint, plan_dir: &Path) -> Option<Target> {
    let address: SshAddress = endpoint.ssh.as_ref()?.value.parse().ok()?;
    // ssh knows `~`; any other relative path is the plan's.
    let identity = |file: &String| if file.starts_with('~') { file.into() } else { plan_dir.join(file) };
    Some(Target {
        host: address.host,
        user: endpoint.user.clone().or(address.user),
        port: endpoint.port.or(address.port),
        identity: endpoint.identity.as_ref().map(identity),
        workdir: endpoint.workdir.clone(),
    })
}

/// Seconds that each lane takes at least, as the stages' options ask; what they leave open is not counted.
pub fn least_seconds(schedule: &Schedule) -> BTreeMap<&str, f64> {
    let sum = |tasks: &Vec<Task>| tasks.iter().map(|t| t.spec.at_least_seconds()).sum();
    schedule.lanes.iter().map(|(lane, tasks)| (lane.as_str(), sum(tasks))).collect()
}
