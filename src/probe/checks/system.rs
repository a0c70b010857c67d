//! Checks of the system around a job: files, processes, disk, network, names, clock.
//!
//! Here: limits and surroundings. Not here: anything measured.
//!
//! Invariant: nothing here contacts another host.

use super::{Check, Facts, KEPT, Promises, gb, number, per_device};
use crate::probe::lines::Fact;

/// Loaders with many workers and ranks with many connections run out below this.
const MIN_FILES: f64 = 4096.0;
/// Below this, a few ranks with their loader workers and threads cannot all start.
const MIN_PROCESSES: f64 = 4096.0;
/// A file system with less than this share free is nearly full.
const NEARLY_FULL: f64 = 0.05;

pub(super) fn open_files(facts: &Facts, _: &Promises) -> Option<Check> {
    const NAME: &str = "limit.nofile";
    if facts.is_nothing(NAME) {
        return Some(Check::pass("unlimited").value("unlimited"));
    }
    let Some(soft) = facts.number(NAME) else { return Some(Check::unknown(facts, NAME)) };
    let check = if soft >= MIN_FILES {
        Check::pass("enough for loaders and many ranks")
    } else {
        let hard = facts.number("limit.nofile_hard").map_or("unlimited".into(), number);
        Check::warn(format!("loaders and many ranks may run out of open files; the hard limit is {hard}"))
            .action("set `ulimit -n 65536` before the work starts")
    };
    Some(check.value(number(soft)))
}

pub(super) fn processes(facts: &Facts, _: &Promises) -> Option<Check> {
    const NAME: &str = "limit.pids";
    if facts.is_nothing(NAME) {
        return Some(Check::pass("no limit in the control group").value("unlimited"));
    }
    let Some(limit) = facts.number(NAME) else { return Some(Check::unknown(facts, NAME)) };
    let check = if limit >= MIN_PROCESSES {
        Check::pass("enough for ranks with their loader workers and threads")
    } else {
        Check::warn("ranks with their loader workers and threads may not all start")
            .action("start the container with `--pids-limit=-1`")
    };
    Some(check.value(number(limit)))
}

pub(super) fn disk_space(facts: &Facts, promises: &Promises) -> Option<Check> {
    let value = |fact: &Fact| if let Fact::Value(value) = fact { value.as_f64() } else { None };
    let mounts: Vec<(&str, f64, f64)> = per_device(facts, "mount", "bytes")
        .filter_map(|(path, fact)| {
            let free = facts.number(&format!("mount.{path}.free_bytes"))?;
            Some((path, value(fact)?, free))
        })
        .collect();
    // The same disk shows whole as a device, and as a mount where it is one.
    let devices = per_device(facts, "disk", "bytes").filter_map(|(name, fact)| Some((name, value(fact)?)));
    let largest = mounts
        .iter()
        .map(|(path, bytes, _)| (*path, *bytes))
        .chain(devices)
        .max_by(|(_, a), (_, b)| a.total_cmp(b));
    let full = mounts.iter().find(|(_, bytes, free)| *free < bytes * NEARLY_FULL);
    let asked = promises.disk_bytes;
    let check = match (largest, asked) {
        (None, _) => {
            return Some(
                Check::not_observable("neither disks nor mounts could be read").promised(asked.map(gb)),
            );
        }
        (Some((name, bytes)), Some(promise)) if bytes < promise * KEPT => {
            Check::fail(format!("the largest disk or mount, {name}, is smaller than promised"))
                .value(gb(bytes))
                .action("look for an unmounted disk, or ask the provider")
        }
        (Some((name, bytes)), _) => match full {
            Some((path, _, free)) => Check::warn(format!("{path} is nearly full"))
                .value(format!("{} free", gb(*free)))
                .action("make room before data and checkpoints are written"),
            None => Check::pass(format!("the largest is {name}")).value(gb(bytes)),
        },
    };
    Some(check.promised(asked.map(gb)))
}

pub(super) fn network_speed(facts: &Facts, promises: &Promises) -> Option<Check> {
    let promise = promises.network_bits_per_second?;
    let speeds = per_device(facts, "nic", "speed_bits_per_second").chain(per_device(
        facts,
        "rdma",
        "rate_bits_per_second",
    ));
    let known = speeds.filter_map(|(name, fact)| match fact {
        Fact::Value(value) => Some((name, value.as_f64()?)),
        _ => None,
    });
    let gbit = |bits: f64| number(bits / 1e9) + " Gbit/s";
    let check = match known.max_by(|(_, a), (_, b)| a.total_cmp(b)) {
        None => Check::not_observable("no interface tells its speed (usual for virtual ones): measure it"),
        Some((name, bits)) if bits < promise => {
            Check::fail(format!("the fastest interface, {name}, is slower"))
                .value(gbit(bits))
                .action("ask the provider; a bonded pair of slower links counts as one of them here")
        }
        Some((name, bits)) => {
            Check::pass(format!("{name} has a link of that speed; what it carries is measured"))
                .value(gbit(bits))
        }
    };
    Some(check.promised(Some(gbit(promise))))
}

/// Launchers of distributed jobs look their own name up to find out whether they are the one that
/// listens: a name that leads nowhere makes them wait until a timeout.
pub(super) fn own_name(facts: &Facts, promises: &Promises) -> Option<Check> {
    let several = promises.nodes.is_some_and(|nodes| nodes > 1);
    let name = facts.text("host.name").unwrap_or("?");
    let check = match facts.flag("host.own_name_resolves") {
        None => Check::unknown(facts, "host.own_name_resolves"),
        Some(false) => {
            let reason = "the host's own name leads to no address: torchrun may wait until its timeout";
            if several { Check::fail(reason) } else { Check::warn(reason) }
                .action(format!("add `127.0.1.1 {name}` (or the real address) to /etc/hosts"))
        }
        Some(true) if several && facts.flag("host.own_name_loopback") == Some(true) => {
            Check::warn("the host's own name leads to itself only: other hosts cannot reach what it announces")
                .action("name an address or an interface (MASTER_ADDR, NCCL_SOCKET_IFNAME), or put the real address into /etc/hosts")
        }
        Some(true) => Check::pass("the host's own name leads to an address"),
    };
    Some(check.value(name))
}

pub(super) fn virtualization(facts: &Facts, promises: &Promises) -> Option<Check> {
    if promises.bare_metal != Some(true) {
        return None;
    }
    let check = match facts.text("machine.hypervisor") {
        Some(kind) => Check::fail("there is a hypervisor below")
            .value(kind)
            .action("ask the provider for a whole machine"),
        None if facts.is_nothing("machine.hypervisor") => {
            Check::pass("no sign of a hypervisor; one that hides itself well would not show").value("none")
        }
        None => Check::unknown(facts, "machine.hypervisor"),
    };
    Some(check.promised(Some("bare metal")))
}

/// One host alone cannot tell how far its clock is off.
pub(super) fn clock(facts: &Facts, _: &Promises) -> Option<Check> {
    let source = facts.text("os.clock_source");
    let slow =
        source.is_some_and(|source| matches!(source, "jiffies" | "hpet" | "acpi_pm" | "refined-jiffies"));
    let remark = if slow { "; its clock source is slow to read, which short timings pay for" } else { "" };
    let check =
        Check::not_observable(format!("the offset shows only against the controller's clock{remark}"));
    Some(match source {
        Some(source) => check.value(source),
        None => check,
    })
}
