//! The watch: the parent of every agent. It does nothing until the agent is gone, however it went, and then ends what
//! the agent had started and removes what it had made.
//!
//! So an agent that is killed leaves nothing, even when nobody can reach its host any more. And what the agent starts
//! need not be wrapped in a process that asks to die with it. Invariant: the watch outlives its agent, or the agent is
//! told to go.

use std::{
    io::{BufReader, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::process::{Pid, Signal, kill_process};
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{files, processes};

/// What stands before the path of something that the agent has made, on its error output.
const MADE: &str = "\u{1e}made ";

/// Tells the watch that this has been made and is to go with the agent.
pub(super) fn made(path: &Path) {
    let _ = writeln!(std::io::stderr(), "{MADE}{}", path.display());
}

/// Starts an agent with these arguments over this process's own streams, and stays until all of it is gone. Returns its
/// last words if it did not end well.
pub(super) fn watch(args: &[&str]) -> Result<(), String> {
    // A session of its own: the terminal's Ctrl-C is the runner's to handle. Already a leader: fine, too.
    let _ = rustix::process::setsid();
    let adopted = |e: rustix::io::Errno| format!("cannot adopt what an agent leaves behind: {e}");
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(adopted)?;
    let mut agent = Command::new("/proc/self/exe")
        .arg("agent")
        .args(args)
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start the agent: {e}"))?;
    pass_on_signals(agent.id());
    let said = agent.stderr.take().map(|said| std::thread::spawn(move || listen(BufReader::new(said))));
    let ended = agent.wait();
    processes::end_descendants();
    let (leavings, words) = said.and_then(|said| said.join().ok()).unwrap_or_default();
    for leaving in &leavings {
        let _ = files::remove_all(leaving);
    }
    if ended.is_ok_and(|status| status.success()) { Ok(()) } else { Err(words.join("\n")) }
}

/// What the agent has made, and what else it said.
fn listen(said: impl std::io::BufRead) -> (Vec<PathBuf>, Vec<String>) {
    let (mut leavings, mut words) = (Vec::new(), Vec::new());
    for line in said.lines().map_while(Result::ok) {
        match line.strip_prefix(MADE) {
            Some(path) => leavings.push(PathBuf::from(path)),
            None => words.push(line),
        }
    }
    (leavings, words)
}

/// Who is told to go tells the agent. A hang-up says nothing: the agent sees for itself whether its runner is gone.
fn pass_on_signals(agent: u32) {
    let Ok(mut signals) = Signals::new([SIGHUP, SIGINT, SIGTERM]) else { return };
    let agent = i32::try_from(agent).ok().and_then(Pid::from_raw);
    std::thread::spawn(move || {
        for _ in signals.forever().filter(|signal| *signal != SIGHUP) {
            if let Some(agent) = agent {
                let _ = kill_process(agent, Signal::TERM);
            }
        }
    });
}
