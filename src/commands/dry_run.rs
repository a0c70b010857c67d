//! What `run --dry-run` prints: the schedule, the commands, and an estimate of time and cost.

use std::fmt::Write as _;

use crate::{
    measure::{
        Money,
        quantity::{Duration, RatePer},
    },
    plan::model::Plan,
    platform::Platform,
    runner::{Schedule, Task, least_seconds},
};

/// The schedule as text. The same plan gives the same text.
pub fn text(plan: &Plan, schedule: &Schedule) -> String {
    let mut out =
        format!("{} {}: {} tasks, nothing is contacted\n", plan.name, plan.period, schedule.planned.len());
    let least = least_seconds(schedule);
    for (lane, tasks) in &schedule.lanes {
        let seconds = least.get(lane.as_str()).copied().unwrap_or(0.0);
        let _ = writeln!(
            out,
            "\nlane {lane}: {} tasks, at least {}",
            tasks.len(),
            Duration::from_seconds(seconds)
        );
        for task in tasks {
            one(&mut out, task);
        }
    }
    if !schedule.settled.is_empty() {
        let _ = writeln!(out, "\nnot run:");
        for (task, outcome) in &schedule.settled {
            let _ = writeln!(out, "  {task}: {}: {}", outcome.kind, outcome.reason);
        }
    }
    let longest = least.values().copied().fold(0.0, f64::max);
    let _ = writeln!(
        out,
        "\nestimate: at least {} (lanes run side by side); stages that only count steps or bytes come on top",
        Duration::from_seconds(longest)
    );
    cost(&mut out, plan, schedule);
    out
}

fn one(out: &mut String, task: &Task) {
    let _ = write!(out, "  {} on {}, timeout {}", task.planned.id, task.place.name, task.timeout);
    let at_least = task.spec.at_least_seconds();
    if at_least > 0.0 {
        let _ = write!(out, ", at least {}", Duration::from_seconds(at_least));
    }
    if task.retries > 0 {
        let _ = write!(out, ", up to {} retries", task.retries);
    }
    if !task.needs.is_empty() {
        let _ = write!(out, ", needs {}", task.needs.join(", "));
    }
    out.push('\n');
    let Some((name, workload)) = &task.workload else { return };
    if let Some(r) = &workload.reference {
        let _ = writeln!(
            out,
            "    {name}: reference GPT, {} layers, width {}, sequence {}, batch {}",
            r.layers, r.width, r.sequence, r.batch
        );
    }
    let image = workload.image.as_ref().map_or_else(String::new, |image| format!(" (in {image})"));
    for (role, command) in
        [("setup", &workload.setup), ("serve", &workload.serve), ("command", &workload.command)]
    {
        if let Some(command) = command {
            let command = command.to_string().trim_end().replace('\n', "\n      ");
            let _ = writeln!(out, "    {name} {role}{image}: {command}");
        }
    }
}

/// What the machines cost for the least time, by platform.
fn cost(out: &mut String, plan: &Plan, schedule: &Schedule) {
    let tasks = || schedule.lanes.values().flatten();
    for (id, platform) in &plan.platforms {
        let seconds: f64 =
            tasks().filter(|t| t.planned.platform == id.value).map(|t| t.spec.at_least_seconds()).sum();
        let endpoint = platform.endpoints.values().next().map(|e| &e.value);
        match endpoint.and_then(|e| hourly(platform, e)) {
            Some((offer, rate)) => {
                let hours = seconds / 3600.0;
                let money = rate.times(hours).map_or_else(|| "?".to_owned(), |m| m.rounded());
                let _ = writeln!(
                    out,
                    "  {id}: {hours:.2} h x {rate}/h ({offer}) = {money} {}, before minimum and granularity",
                    rate.currency
                );
            }
            None => {
                let _ = writeln!(out, "  {id}: no price for its first endpoint: cost unknown");
            }
        }
    }
}

/// The offer of an endpoint and what an hour of the whole instance costs by it.
fn hourly(platform: &Platform, endpoint: &crate::platform::Endpoint) -> Option<(String, Money)> {
    let (name, offer) = match &endpoint.offer {
        Some(name) => platform.offers.get_key_value(name.value.as_str())?,
        None if platform.offers.len() == 1 => platform.offers.first()?,
        None => return None,
    };
    let rate = &offer.rate.value;
    let money = match rate.per {
        RatePer::InstanceHour => rate.money.clone(),
        RatePer::GpuHour => rate.money.times(f64::from(endpoint.gpus?))?,
    };
    Some((name.value.clone(), money))
}
