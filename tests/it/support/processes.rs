//! Other processes, as `/proc` shows them.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// Living processes that carry this entry in their environment: number and command line.
pub(crate) fn carrying(entry: &str) -> Vec<(u32, String)> {
    let pids = fs::read_dir("/proc").unwrap().filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid: u32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let carries = environ.split(|b| *b == 0).any(|e| e == entry.as_bytes());
        (carries && alive(pid)).then(|| (pid, command_line(pid)))
    })
    .collect()
}

/// Whether it is there and no zombie.
pub(crate) fn alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

/// The arguments, separated by blanks.
pub(crate) fn command_line(pid: u32) -> String {
    String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default())
        .trim_end_matches('\0')
        .replace('\0', " ")
}

/// The most memory that it has had, in kB; 0 once it is gone.
pub(crate) fn peak_kb(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

/// Sends a signal to one process.
pub(crate) fn signal(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        let _ = kill_process(pid, signal);
    }
}
