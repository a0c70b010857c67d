//! Checks of memory: how much may be used, shared memory, locked memory, kills.
//!
//! Here: what makes loaders and collectives die. Not here: bandwidth.
//!
//! Invariant: the machine's memory is never taken for what a container may use.

use super::{Check, Facts, KEPT, Promises, gib, is_gpu_host, number};

const GIB: f64 = 1024.0 * 1024.0 * 1024.0;
/// What container runtimes give when nobody asks: 64 MiB.
const SHM_DEFAULT: f64 = 67_108_864.0;

pub(super) fn limit(facts: &Facts, promises: &Promises) -> Option<Check> {
    let asked = promises.memory_bytes;
    let Some(bytes) = facts.number("memory.effective_bytes") else {
        // The machine's whole memory is an upper bound: it can break a promise, not keep one.
        let total =
            facts.number("memory.total_bytes").zip(asked).filter(|(total, bytes)| *total < bytes * KEPT);
        let check = match total {
            Some((total, _)) => Check::fail("the whole machine has less than was promised").value(gib(total)),
            None => Check::unknown(facts, "memory.effective_bytes"),
        };
        return Some(check.promised(asked.map(gib)));
    };
    let limited = facts.number("memory.limit_bytes").is_some_and(|limit| limit <= bytes);
    let by = if limited { "a control group's limit" } else { "the machine" };
    let check = match asked {
        Some(promise) if bytes < promise * KEPT => {
            Check::fail(format!("{by} gives {} of the promised memory", super::percent(bytes / promise)))
                .action("ask the provider for the promised memory, or lift the limit")
        }
        Some(promise) if bytes < promise => {
            Check::pass("as promised, less what firmware and kernel keep (up to 5 % is accepted)")
        }
        Some(_) => Check::pass("as promised"),
        None if limited => {
            let total = facts.number("memory.total_bytes").map_or("more".into(), gib);
            Check::warn(format!("programs see {total}, but are killed beyond a control group's limit"))
                .action("size caches and loaders by the limit, not by /proc/meminfo")
        }
        None => Check::pass("no limit below the machine's memory"),
    };
    Some(check.value(gib(bytes)).promised(asked.map(gib)))
}

pub(super) fn oom_kills(facts: &Facts, _: &Promises) -> Option<Check> {
    let Some(kills) = facts.number("memory.oom_kills") else {
        return Some(Check::unknown(facts, "memory.oom_kills"));
    };
    let check = if kills > 0.0 {
        Check::warn("processes were killed for lack of memory before the work began")
            .action("look at the kernel log for which ones, and raise the limit")
    } else {
        Check::pass("nothing was killed for lack of memory so far")
    };
    Some(check.value(number(kills)))
}

/// Loader workers hand batches over through `/dev/shm`, and NCCL its segments: with the default of
/// container runtimes they die of bus errors or of `No space left on device`.
pub(super) fn shm(facts: &Facts, promises: &Promises) -> Option<Check> {
    let action = match facts.text("container.kind") {
        Some("kubernetes") => "mount an emptyDir with `medium: Memory` at /dev/shm",
        Some(_) => "start the container with `--shm-size=16g`, or with `--ipc=host`",
        None => "enlarge it: `mount -o remount,size=50% /dev/shm`",
    };
    let gpu_host = is_gpu_host(facts, promises);
    if facts.is_nothing("shm.bytes") {
        let reason = "there is no /dev/shm: loader workers and NCCL cannot share memory";
        return Some(if gpu_host { Check::fail(reason) } else { Check::warn(reason) }.action(action));
    }
    let Some(bytes) = facts.number("shm.bytes") else { return Some(Check::unknown(facts, "shm.bytes")) };
    let free = facts.number("shm.free_bytes");
    let workers =
        f64::from(promises.gpus.unwrap_or(0)).max(facts.number("gpu.pci_count").unwrap_or(0.0)).max(1.0);
    let memory = facts.number("memory.effective_bytes").map_or(f64::INFINITY, |bytes| bytes / 2.0);
    // Half of the memory is what an ordinary system gives itself.
    let enough = (GIB * workers).min(memory * KEPT);
    let check = if bytes <= SHM_DEFAULT {
        let reason = "/dev/shm has the default size of container runtimes: loader workers and NCCL die of bus errors \
                      or `No space left on device`";
        if gpu_host { Check::fail(reason) } else { Check::warn(reason) }.action(action)
    } else if bytes < enough {
        Check::warn(format!("/dev/shm is smaller than 1 GiB for each of {} worker groups", number(workers)))
            .action(action)
    } else if let Some(free) = free
        && free < enough / 2.0
    {
        Check::warn(format!("only {} of /dev/shm are free", gib(free)))
            .action("remove what was left in /dev/shm")
    } else {
        Check::pass("large enough for loader workers and NCCL")
    };
    let free = free.map_or(String::new(), |free| format!(", {} free", gib(free)));
    Some(check.value(format!("{}{free}", gib(bytes))))
}

/// RDMA registers memory by locking it; with a limit, NCCL cannot use the network cards.
pub(super) fn memlock(facts: &Facts, _: &Promises) -> Option<Check> {
    const NAME: &str = "limit.memlock_bytes";
    if facts.is_nothing(NAME) {
        return Some(Check::pass("unlimited").value("unlimited"));
    }
    let Some(bytes) = facts.number(NAME) else { return Some(Check::unknown(facts, NAME)) };
    let action = "set `ulimit -l unlimited` (containers: `--ulimit memlock=-1`)";
    let check = match facts.number("rdma.count") {
        Some(0.0) => Check::pass("limited, but there is no RDMA device that needs more"),
        Some(_) => Check::fail("RDMA needs unlimited locked memory: NCCL cannot use the network cards")
            .action(action),
        None => Check::warn(format!(
            "limited; RDMA would need it unlimited ({})",
            facts.why_unknown("rdma.count")
        ))
        .action(action),
    };
    Some(check.value(gib(bytes)))
}
