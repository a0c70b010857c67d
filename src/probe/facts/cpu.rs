//! Processors: how many there are, how many of them we may use, and what is taken away.
//!
//! Here: model, counts, quota, throttling, steal, pressure. Not here: how busy they are (the
//! `telemetry` probe).
//!
//! Invariant: the quota is the tightest on the way up; no quota is "none", not a number.

use std::time::Duration;

use super::FactsSpec;
use super::cgroup::{Cgroups, Controller, keyed};
use crate::probe::lines::Facts;
use crate::probe::root::{Missing, Root};
use crate::probe::text::clean;

pub(super) fn read(root: &Root, _spec: &FactsSpec, facts: &mut Facts) {
    read_model(root, facts);
    facts.put_always("cpu.logical", online(root));
    facts.put_always("cpu.affinity", affinity(root));
    match Cgroups::find(root) {
        Ok(cgroups) => {
            facts.set("cgroup.version", cgroups.version.name());
            facts.put("cgroup.path", cgroups.path().ok_or(Missing::NotThere));
            read_cgroup(root, &cgroups, facts);
        }
        Err(missing) => {
            for name in ["cgroup.version", "cgroup.path", "cpu.quota_cores", "cpu.cpuset"] {
                facts.put(name, Err::<f64, _>(missing.clone()));
            }
        }
    }
    for what in ["cpu", "io", "memory"] {
        facts.put(format!("pressure.{what}_share"), pressure(root, what));
    }
    facts.put_always("cpu.steal_share", Times::read(root).map(Times::steal_share));
}

fn read_model(root: &Root, facts: &mut Facts) {
    let text = match root.text("/proc/cpuinfo") {
        Ok(text) => text,
        Err(missing) => {
            facts.put_always("cpu.model", Err::<String, _>(missing.clone()));
            facts.put_always("cpu.sockets", Err::<u64, _>(missing));
            return;
        }
    };
    let values = |key: &'static str| {
        text.lines().filter_map(move |line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == key).then(|| value.trim().to_owned())
        })
    };
    // x86 has a name; ARM has numbers, which are still an identity.
    let model = values("model name").next().or_else(|| values("Model").next()).or_else(|| {
        let implementer = values("CPU implementer").next()?;
        Some(format!("implementer {implementer} part {}", values("CPU part").next()?))
    });
    facts.put("cpu.model", model.ok_or_else(|| unreadable("/proc/cpuinfo names no model")));
    let mut packages: Vec<String> = values("physical id").collect();
    if packages.is_empty() {
        packages = packages_of_topology(root);
    }
    packages.sort_unstable();
    packages.dedup();
    let sockets = if packages.is_empty() {
        Err(unreadable("the kernel tells no packages"))
    } else {
        Ok(packages.len())
    };
    facts.put("cpu.sockets", sockets);
}

fn packages_of_topology(root: &Root) -> Vec<String> {
    let folder = "/sys/devices/system/cpu";
    root.list(folder)
        .unwrap_or_default()
        .iter()
        .filter_map(|name| root.line(&format!("{folder}/{name}/topology/physical_package_id")).ok())
        .filter(|package| package != "-1")
        .collect()
}

/// Logical processors that are online.
pub(crate) fn online(root: &Root) -> Result<u64, Missing> {
    if let Ok(line) = root.line("/sys/devices/system/cpu/online") {
        return count_list(&line);
    }
    let text = root.text("/proc/cpuinfo")?;
    let count = text.lines().filter(|line| line.starts_with("processor")).count();
    if count == 0 { Err(unreadable("/proc/cpuinfo lists no processor")) } else { Ok(count as u64) }
}

/// Logical processors that this process may run on.
pub(crate) fn affinity(root: &Root) -> Result<u64, Missing> {
    let status = root.text("/proc/self/status")?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    count_list(list.ok_or_else(|| unreadable("/proc/self/status tells no affinity"))?.trim())
}

fn read_cgroup(root: &Root, cgroups: &Cgroups, facts: &mut Facts) {
    let cpu = cgroups.controller(root, "cpu");
    let mut stat_of = cpu.clone();
    match quota(root, &cpu) {
        Ok(Some((cores, folder))) => {
            facts.set("cpu.quota_cores", cores);
            facts.set("cpu.quota_from", folder.as_str());
            stat_of.folders = vec![folder];
        }
        Ok(None) => facts.set_nothing("cpu.quota_cores"),
        Err(missing) => facts.put("cpu.quota_cores", Err::<f64, _>(missing)),
    }
    match stat_of.first(root, "cpu.stat") {
        Ok((_, stat)) => {
            let throttled = Throttling::parse(&stat, stat_of.unified);
            let missing = || Missing::NotThere;
            facts.put("cpu.periods", throttled.periods.ok_or_else(missing));
            facts.put("cpu.throttled_periods", throttled.throttled_periods.ok_or_else(missing));
            facts.put("cpu.throttled_seconds", throttled.seconds.ok_or_else(missing));
        }
        Err(missing) => {
            for name in ["cpu.periods", "cpu.throttled_periods", "cpu.throttled_seconds"] {
                facts.put(name, Err::<f64, _>(missing.clone()));
            }
        }
    }
    let cpuset = cgroups.controller(root, "cpuset");
    let files = if cpuset.unified {
        ["cpuset.cpus.effective", "cpuset.cpus"]
    } else {
        ["cpuset.effective_cpus", "cpuset.cpus"]
    };
    let found = files.iter().find_map(|file| match cpuset.first(root, file) {
        Err(Missing::NotThere) => None,
        other => Some(other),
    });
    let set = found.unwrap_or(Err(Missing::NotThere)).and_then(|(_, list)| count_list(list.trim()));
    facts.put("cpu.cpuset", set);
}

/// The tightest quota in cores, with the folder that sets it.
pub(crate) fn quota(root: &Root, cpu: &Controller) -> Result<Option<(f64, String)>, Missing> {
    cpu.tightest(
        root,
        |root, folder| if cpu.unified { quota_v2(root, folder) } else { quota_v1(root, folder) },
    )
}

fn quota_v2(root: &Root, folder: &str) -> Result<Option<f64>, Missing> {
    let line = root.line(&format!("{folder}/cpu.max"))?;
    let odd = || unreadable(format!("`{line}` is no quota"));
    let (quota, period) = line.split_once(' ').ok_or_else(odd)?;
    if quota == "max" {
        return Ok(None);
    }
    let quota: u64 = quota.parse().map_err(|_| odd())?;
    match period.parse::<u64>() {
        Ok(period) if period > 0 => Ok(Some(quota as f64 / period as f64)),
        _ => Err(odd()),
    }
}

fn quota_v1(root: &Root, folder: &str) -> Result<Option<f64>, Missing> {
    let quota: i64 = root.number(&format!("{folder}/cpu.cfs_quota_us"))?;
    if quota < 0 {
        return Ok(None);
    }
    let period: u64 = root.number(&format!("{folder}/cpu.cfs_period_us"))?;
    if period == 0 {
        Err(unreadable("the quota's period is 0"))
    } else {
        Ok(Some(quota as f64 / period as f64))
    }
}

/// What `cpu.stat` says about throttling.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Throttling {
    pub(crate) periods: Option<f64>,
    pub(crate) throttled_periods: Option<f64>,
    pub(crate) seconds: Option<f64>,
}

impl Throttling {
    /// Reads `cpu.stat`: v2 counts microseconds, v1 nanoseconds.
    pub(crate) fn parse(stat: &str, unified: bool) -> Self {
        let seconds = if unified {
            keyed(stat, "throttled_usec").map(|time| time / 1e6)
        } else {
            keyed(stat, "throttled_time").map(|time| time / 1e9)
        };
        Self { periods: keyed(stat, "nr_periods"), throttled_periods: keyed(stat, "nr_throttled"), seconds }
    }
}

/// The first line of `/proc/stat`, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Times {
    /// Everything.
    pub(crate) total: f64,
    /// Idle and waiting for I/O.
    pub(crate) idle: f64,
    /// Taken by the hypervisor.
    pub(crate) steal: f64,
}

impl Times {
    pub(crate) fn read(root: &Root) -> Result<Self, Missing> {
        let text = root.text("/proc/stat")?;
        let line = text.lines().find_map(|line| line.strip_prefix("cpu ")).unwrap_or_default();
        let fields: Vec<f64> = line
            .split_ascii_whitespace()
            .map_while(|field| field.parse::<u64>().ok())
            .map(|n| n as f64)
            .collect();
        // user nice system idle iowait irq softirq steal; guest time is part of user already.
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = fields[..] else {
            return Err(unreadable("/proc/stat has no steal column"));
        };
        Ok(Self {
            total: user + nice + system + idle + iowait + irq + softirq + steal,
            idle: idle + iowait,
            steal,
        })
    }

    fn steal_share(self) -> f64 {
        if self.total > 0.0 { self.steal / self.total } else { 0.0 }
    }
}

pub(super) fn read_steal_sample(root: &Root, spec: &FactsSpec, facts: &mut Facts) {
    let before = Times::read(root);
    root.system().wait(Duration::from_secs_f64(spec.sample_seconds));
    let sample = before.and_then(|before| {
        let after = Times::read(root)?;
        let (total, steal) = (after.total - before.total, after.steal - before.steal);
        // Counters of a paused or migrated guest can step back.
        if total > 0.0 && (0.0..=total).contains(&steal) {
            Ok((steal / total, total))
        } else {
            Err(unreadable("the processor's counters did not advance"))
        }
    });
    facts.put_always("cpu.steal_share_sample", sample.clone().map(|(share, _)| share));
    facts.put_always("cpu.steal_sample_ticks", sample.map(|(_, ticks)| ticks));
}

/// The share of the last 10 s in which some task was held up.
fn pressure(root: &Root, what: &str) -> Result<f64, Missing> {
    let text = root.text(&format!("/proc/pressure/{what}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix("some "))
        .and_then(|line| line.split(' ').find_map(|field| field.strip_prefix("avg10=")))
        .and_then(|percent| percent.parse::<f64>().ok())
        .filter(|percent| (0.0..=100.0).contains(percent))
        .map(|percent| percent / 100.0)
        .ok_or_else(|| unreadable("has an unexpected form"))
}

/// How many numbers a list such as `0-3,8` holds.
pub(super) fn count_list(list: &str) -> Result<u64, Missing> {
    let odd = || unreadable(format!("`{}` is no list of processors", clean(list.as_bytes())));
    let mut count = 0_u64;
    for part in list.split(',').filter(|part| !part.trim().is_empty()) {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let from: u64 = from.trim().parse().map_err(|_| odd())?;
        let to: u64 = to.trim().parse().map_err(|_| odd())?;
        count += to.checked_sub(from).filter(|span| *span < 1 << 20).ok_or_else(odd)? + 1;
    }
    if count == 0 { Err(odd()) } else { Ok(count) }
}

fn unreadable(reason: impl Into<String>) -> Missing {
    Missing::Unreadable(reason.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_lists_are_counted() {
        assert_eq!(count_list("0-3,8"), Ok(5));
        assert_eq!(count_list("7"), Ok(1));
        for odd in ["", "3-1", "x", "0-18446744073709551615"] {
            assert!(matches!(count_list(odd), Err(Missing::Unreadable(_))), "{odd}");
        }
    }

    #[test]
    fn throttled_time_is_micro_in_v2_and_nano_in_v1() {
        let v2 = Throttling::parse("nr_periods 10\nnr_throttled 4\nthrottled_usec 2500000\n", true);
        let v1 = Throttling::parse("nr_periods 10\nnr_throttled 4\nthrottled_time 2500000000\n", false);
        assert_eq!(v2, v1);
        assert_eq!(v2.seconds, Some(2.5));
    }
}
