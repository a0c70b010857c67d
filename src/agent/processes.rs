//! Other processes of the host, as `/proc` shows them: descendants, and what an earlier agent left behind.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitOptions, kill_process};

/// How long the end of killed processes is waited for; one in uninterruptible sleep may take for ever.
const PATIENCE: Duration = Duration::from_secs(5);

/// The CPUs that this process may run on, by number.
pub(super) fn allowed_cpus() -> Vec<usize> {
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect(),
        Err(_) => Vec::new(),
    }
}

/// Every process's parent.
fn parents() -> BTreeMap<u32, u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return BTreeMap::new() };
    entries
        .filter_map(|entry| {
            let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
            // The name may hold anything, also brackets: what counts stands after the last one.
            let rest = &stat[stat.iter().rposition(|b| *b == b')')? + 1..];
            let mut fields = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
            let state = fields.next()?;
            let parent = fields.next()?.parse().ok()?;
            (state != "Z").then_some((pid, parent))
        })
        .collect()
}

/// All living descendants of this process.
fn descendants() -> Vec<u32> {
    children_of(std::process::id()).map_or_else(descendants_by_table, |children| {
        let (mut found, mut next) = (Vec::new(), children);
        while let Some(pid) = next.pop() {
            next.extend(children_of(pid).unwrap_or_default());
            if !is_zombie(pid) {
                found.push(pid);
            }
        }
        found
    })
}

/// The children of a process as the kernel lists them; `None` where it does not. Far cheaper than all of `/proc`.
fn children_of(pid: u32) -> Option<Vec<u32>> {
    let mut children = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).ok()?.filter_map(Result::ok) {
        let list = std::fs::read_to_string(task.path().join("children"));
        match list {
            Ok(list) => children.extend(list.split_ascii_whitespace().filter_map(|p| p.parse::<u32>().ok())),
            // A thread that has just ended has none; a kernel without these files says so of ourselves.
            Err(_)
                if pid == std::process::id()
                    && !task.path().join("children").exists()
                    && task.path().exists() =>
            {
                return None;
            }
            Err(_) => {}
        }
    }
    Some(children)
}

fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.iter().rposition(|b| *b == b')').and_then(|at| stat.get(at + 2));
    matches!(state, None | Some(b'Z' | b'X'))
}

fn descendants_by_table() -> Vec<u32> {
    let parents = parents();
    let own = std::process::id();
    let below = |mut pid: u32| {
        // A chain of parents is never longer than the table.
        for _ in 0..parents.len() {
            match parents.get(&pid) {
                Some(parent) if *parent == own => return true,
                Some(parent) => pid = *parent,
                None => return false,
            }
        }
        false
    };
    parents.keys().copied().filter(|pid| below(*pid)).collect()
}

fn kill(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Kills all descendants, those in sessions of their own included, until there are none. Returns how many there
/// were, and which would not go.
pub(super) fn end_descendants() -> (u32, Vec<u32>) {
    let begun = Instant::now();
    let mut seen = std::collections::BTreeSet::new();
    loop {
        let left = descendants();
        if left.is_empty() {
            break;
        }
        for pid in &left {
            seen.insert(*pid);
            kill(*pid);
        }
        reap_adopted();
        if begun.elapsed() > PATIENCE {
            return (seen.len() as u32, left);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    reap_adopted();
    (seen.len() as u32, Vec::new())
}

/// Reaps every child that has ended, known or adopted.
fn reap_adopted() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}

/// Ends processes that carry these entries in their environment but are no descendants of this agent: what an agent
/// that was killed could not end itself. Looks again until there are none, since they may start others meanwhile.
pub(super) fn reap_leftovers(marks: &[String]) -> u32 {
    let own = std::process::id();
    let begun = Instant::now();
    let marked = |pid: u32| {
        std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
            let entries: Vec<&[u8]> = environ.split(|b| *b == 0).collect();
            marks.iter().all(|mark| entries.contains(&mark.as_bytes()))
        })
    };
    let mut seen = std::collections::BTreeSet::new();
    loop {
        let left: Vec<u32> = parents().into_keys().filter(|pid| *pid != own && marked(*pid)).collect();
        if left.is_empty() || begun.elapsed() > PATIENCE {
            return seen.len() as u32;
        }
        for pid in left {
            seen.insert(pid);
            kill(pid);
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}
