//! Checks of the processors: how many may be used, and what is taken away.
//!
//! Here: quota, throttling, steal, pressure. Not here: speed (it is measured, not checked).
//!
//! Invariant: a counter that always reads 0 proves nothing.

use super::{Check, Facts, Promises, number, percent};

/// Steal above this share of the time is no accident of a busy moment.
const STEAL_WARN: f64 = 0.01;
/// Steal above this share makes every measurement of the host doubtful.
const STEAL_FAIL: f64 = 0.05;
/// As many stolen ticks must stand behind a short sample to count.
const STEAL_TICKS: f64 = 5.0;
/// A host on which tasks wait for longer than this share is busy before our work begins.
const PRESSURE_WARN: f64 = 0.10;

pub(super) fn quota(facts: &Facts, promises: &Promises) -> Option<Check> {
    let online = facts.number("cpu.logical");
    // What can be used is the least of all that limits.
    let limits = ["cpu.quota_cores", "cpu.cpuset", "cpu.affinity", "cpu.logical"];
    let known = limits.iter().filter_map(|name| Some((*name, facts.number(name)?)));
    let Some((limit, cores)) = known.min_by(|(_, a), (_, b)| a.total_cmp(b)) else {
        return Some(Check::unknown(facts, "cpu.logical"));
    };
    let quota_known = facts.is_nothing("cpu.quota_cores") || facts.number("cpu.quota_cores").is_some();
    let by = match limit {
        "cpu.quota_cores" => "a control group's quota",
        "cpu.cpuset" => "a control group's set of processors",
        "cpu.affinity" => "the affinity of the login",
        _ => "the machine",
    };
    let action = "size thread pools and loader workers by this number, not by nproc";
    let check = match promises.vcpus {
        Some(vcpus) if cores < f64::from(vcpus) => {
            Check::fail(format!("{} of {vcpus} promised processors are allowed by {by}", number(cores)))
                .action("ask the provider for the promised processors, or lift the limit")
        }
        _ if !quota_known => {
            let reason = facts.why_unknown("cpu.quota_cores");
            Check::not_observable(format!(
                "a quota may allow less than the {} seen ({reason})",
                number(cores)
            ))
        }
        Some(vcpus) => {
            Check::pass(format!("{} processors are allowed, {vcpus} were promised", number(cores)))
        }
        None if online.is_some_and(|online| cores < online) => {
            let online = number(online.unwrap_or_default());
            Check::warn(format!("{online} processors are shown, {} are allowed by {by}", number(cores)))
                .action(action)
        }
        None => Check::pass("all processors that are shown may be used"),
    };
    Some(check.value(number(cores)).promised(promises.vcpus.map(|vcpus| vcpus.to_string())))
}

pub(super) fn throttled(facts: &Facts, _: &Promises) -> Option<Check> {
    if facts.is_nothing("cpu.quota_cores") {
        return Some(Check::pass("there is no quota that could throttle"));
    }
    if facts.number("cpu.quota_cores").is_none() {
        return Some(Check::unknown(facts, "cpu.quota_cores"));
    }
    let Some(periods) = facts.number("cpu.periods") else {
        return Some(Check::unknown(facts, "cpu.periods"));
    };
    let Some(throttled) = facts.number("cpu.throttled_periods") else {
        return Some(Check::unknown(facts, "cpu.throttled_periods"));
    };
    if periods <= 0.0 {
        return Some(Check::not_observable("the quota has not been counted for a single period yet"));
    }
    let share = throttled / periods;
    let check = if throttled > 0.0 {
        Check::warn(format!("the quota held the group up in {} of its periods so far", percent(share)))
            .action("use fewer threads and loader workers, or ask for a higher quota")
    } else {
        Check::pass("the quota has held nothing up so far; the telemetry tells about the run itself")
    };
    Some(check.value(percent(share)))
}

pub(super) fn steal(facts: &Facts, _: &Promises) -> Option<Check> {
    let Some(since_boot) = facts.number("cpu.steal_share") else {
        return Some(Check::unknown(facts, "cpu.steal_share"));
    };
    let sample = facts.number("cpu.steal_share_sample").zip(facts.number("cpu.steal_sample_ticks"));
    // A single tick of a short sample is a few per cent: noise.
    let now = sample.filter(|(share, ticks)| share * ticks >= STEAL_TICKS).map_or(0.0, |(share, _)| share);
    let check = if since_boot >= STEAL_FAIL {
        Check::fail("the hypervisor gives much of the processors to others: the machine is oversold")
            .action("move to another host, or to an instance type with its own processors")
    } else if since_boot >= STEAL_WARN || now >= STEAL_WARN {
        Check::warn("the hypervisor gives some of the processors to others")
            .action("repeat at another time of day")
    } else if facts.is_nothing("machine.hypervisor") && since_boot <= 0.0 {
        Check::pass("no sign of a hypervisor, so there is nobody to steal")
    } else if since_boot <= 0.0 {
        Check::not_observable("the counter has read 0 since boot: several clouds never fill it")
    } else if sample.is_none() {
        Check::unknown(facts, "cpu.steal_share_sample")
    } else {
        Check::pass("the counter works and stays below 1 %")
    };
    let now = if now > 0.0 { format!(", {} in a short sample", percent(now)) } else { String::new() };
    Some(check.value(format!("{} since boot{now}", percent(since_boot))))
}

pub(super) fn pressure(facts: &Facts, _: &Promises) -> Option<Check> {
    let kinds = [
        ("processors", "pressure.cpu_share"),
        ("memory", "pressure.memory_share"),
        ("disks", "pressure.io_share"),
    ];
    let known = kinds.iter().filter_map(|(what, name)| Some((*what, facts.number(name)?)));
    let Some((what, worst)) = known.max_by(|(_, a), (_, b)| a.total_cmp(b)) else {
        return Some(if facts.is_nothing("pressure.cpu_share") {
            Check::not_observable(
                "this kernel does not tell about pressure (it is too old, or built without)",
            )
        } else {
            Check::unknown(facts, "pressure.cpu_share")
        });
    };
    let check = if worst >= PRESSURE_WARN {
        Check::warn(format!("tasks already wait for {what} before the work begins"))
            .action("look for other loads on the host, or measure later")
    } else if let Some((_, name)) = kinds.iter().find(|(_, name)| facts.number(name).is_none()) {
        Check::unknown(facts, name)
    } else {
        Check::pass("nothing waits noticeably before the work begins")
    };
    Some(check.value(format!("{} ({what})", percent(worst))))
}
