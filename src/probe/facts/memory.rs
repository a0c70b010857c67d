//! Memory: how much there is, how much of it we may use, `/dev/shm` and resource limits.
//!
//! Here: sizes, limits, kills for lack of memory, memory nodes. Not here: what a program needs.
//!
//! Invariant: `memory.effective_bytes` never exceeds either the machine or the control group.

use rustix::process::Resource;

use super::FactsSpec;
use super::cgroup::{Cgroups, keyed, limit_file};
use crate::probe::lines::Facts;
use crate::probe::root::{Missing, Root};
use crate::probe::text::name_part;

pub(super) fn read(root: &Root, _spec: &FactsSpec, facts: &mut Facts) {
    let total = meminfo(root, "MemTotal");
    facts.put_always("memory.total_bytes", total.clone());
    facts.put_always("memory.available_bytes", meminfo(root, "MemAvailable"));
    facts.put_always("memory.swap_bytes", meminfo(root, "SwapTotal"));
    let cgroups = Cgroups::find(root);
    let limit = match &cgroups {
        Ok(cgroups) => memory_limit(root, cgroups).map(|limit| limit.map(|(bytes, _)| bytes)),
        Err(Missing::NotThere) => Ok(None),
        Err(unreadable) => Err(unreadable.clone()),
    };
    facts.put("memory.limit_bytes", limit.clone().and_then(|limit| limit.ok_or(Missing::NotThere)));
    // Without knowing the limit, the machine's memory would be a guess.
    facts.put_always(
        "memory.effective_bytes",
        limit.and_then(|limit| Ok(limit.map_or(total.clone()?, |l| l.min(total.unwrap_or(l))))),
    );
    facts.put_always("memory.oom_kills", oom_kills(root, cgroups.as_ref().ok()));
    facts.put("memory.huge_pages", huge_pages(root));
    match root.volume("/dev/shm") {
        Ok(shm) => {
            facts.set("shm.bytes", shm.bytes);
            facts.set("shm.free_bytes", shm.free_bytes);
        }
        Err(missing) => facts.put("shm.bytes", Err::<u64, _>(missing)),
    }
    read_limits(root, &cgroups, facts);
    read_numa(root, facts);
}

/// A line of `/proc/meminfo`, in bytes.
pub(crate) fn meminfo(root: &Root, key: &str) -> Result<f64, Missing> {
    let text = root.text("/proc/meminfo")?;
    text.lines()
        .find_map(|line| {
            line.strip_prefix(key)?.strip_prefix(':')?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        })
        .map(|kilobytes| kilobytes as f64 * 1024.0)
        .ok_or_else(|| Missing::Unreadable(format!("/proc/meminfo has no {key}")))
}

/// The tightest memory limit, in bytes, with the folder that sets it.
pub(crate) fn memory_limit(root: &Root, cgroups: &Cgroups) -> Result<Option<(f64, String)>, Missing> {
    let memory = cgroups.controller(root, "memory");
    let file = if memory.unified { "memory.max" } else { "memory.limit_in_bytes" };
    memory.tightest(root, |root, folder| limit_file(root, &format!("{folder}/{file}")))
}

fn oom_kills(root: &Root, cgroups: Option<&Cgroups>) -> Result<f64, Missing> {
    if let Some(cgroups) = cgroups {
        let memory = cgroups.controller(root, "memory");
        let file = if memory.unified { "memory.events" } else { "memory.oom_control" };
        match memory.first(root, file) {
            Ok((_, text)) => {
                if let Some(kills) = keyed(&text, "oom_kill") {
                    return Ok(kills);
                }
            }
            Err(Missing::NotThere) => {}
            Err(unreadable) => return Err(unreadable),
        }
    }
    let vmstat = root.text("/proc/vmstat")?;
    keyed(&vmstat, "oom_kill").ok_or_else(|| Missing::Unreadable("this kernel does not count them".into()))
}

/// The mode in brackets: `always [madvise] never`.
fn huge_pages(root: &Root) -> Result<String, Missing> {
    let line = root.line("/sys/kernel/mm/transparent_hugepage/enabled")?;
    let mode =
        line.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(mode, _)| mode.to_owned());
    mode.ok_or(Missing::Unreadable(format!("`{line}` has no mode in brackets")))
}

fn read_limits(root: &Root, cgroups: &Result<Cgroups, Missing>, facts: &mut Facts) {
    let limits = [
        (Resource::Memlock, "limit.memlock_bytes", Some("limit.memlock_hard_bytes")),
        (Resource::Nofile, "limit.nofile", Some("limit.nofile_hard")),
        (Resource::Stack, "limit.stack_bytes", None),
    ];
    for (resource, soft, hard) in limits {
        let limit = root.system().limit(resource);
        facts.put(soft, limit.soft.ok_or(Missing::NotThere));
        if let Some(hard) = hard {
            facts.put(hard, limit.hard.ok_or(Missing::NotThere));
        }
    }
    let pids = cgroups.clone().and_then(|cgroups| {
        let pids = cgroups.controller(root, "pids");
        pids.tightest(root, |root, folder| limit_file(root, &format!("{folder}/pids.max")))
    });
    facts.put("limit.pids", pids.and_then(|limit| limit.map(|(count, _)| count).ok_or(Missing::NotThere)));
}

fn read_numa(root: &Root, facts: &mut Facts) {
    let folder = "/sys/devices/system/node";
    let names = match root.list(folder) {
        Ok(names) => names,
        Err(missing) => return facts.put("numa.nodes", Err::<u64, _>(missing)),
    };
    let nodes: Vec<&String> = names
        .iter()
        .filter(|name| name.strip_prefix("node").is_some_and(|number| number.parse::<u32>().is_ok()))
        .collect();
    facts.set("numa.nodes", nodes.len());
    for node in nodes {
        facts.put(format!("numa.{}.cpus", name_part(node)), root.line(&format!("{folder}/{node}/cpulist")));
    }
}
