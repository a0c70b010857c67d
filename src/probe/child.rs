//! Runs a short helper program of the host, such as `getconf`, without trusting it.
//!
//! Here: the time limit, the end of the whole process group, the cap on output. Not here: which
//! programs are worth asking.
//!
//! Invariant: when [`run`] returns, the program and every process of its group are gone.

use std::io::Read;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::root::Missing;

/// The most that is kept of each output stream, in bytes.
pub(crate) const MAX_OUTPUT: usize = 64 * 1024;
/// How long output may still arrive after the program itself has ended.
const GRACE: Duration = Duration::from_millis(250);

/// What a program said before it ended.
#[derive(Debug, Clone, Default)]
pub(crate) struct Output {
    /// True for exit code 0.
    pub(crate) success: bool,
    /// The first [`MAX_OUTPUT`] bytes of its standard output.
    pub(crate) stdout: Vec<u8>,
    /// The first [`MAX_OUTPUT`] bytes of its standard error.
    pub(crate) stderr: Vec<u8>,
}

/// Runs `argv` for at most `limit`, in a process group of its own, in `/`, with `LC_ALL=C`.
///
/// A program that prints more than [`MAX_OUTPUT`] is ended there, like one that takes too long.
pub(crate) fn run(argv: &[&str], limit: Duration) -> Result<Output, Missing> {
    let (program, arguments) = argv.split_first().ok_or(Missing::NotThere)?;
    let mut child = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(Missing::from)?;
    let group = Pid::from_child(&child);
    let (send, receive) = mpsc::channel();
    let streams: [Option<Box<dyn Read + Send>>; 2] = [
        child.stdout.take().map(|stream| Box::new(stream) as _),
        child.stderr.take().map(|stream| Box::new(stream) as _),
    ];
    let mut expected = 0;
    for (index, stream) in streams.into_iter().enumerate() {
        let Some(stream) = stream else { continue };
        let send = send.clone();
        let reader = std::thread::Builder::new().spawn(move || {
            let mut kept = Vec::new();
            // A read error ends the stream as its end does: what came before it stays.
            let _ = stream.take(MAX_OUTPUT as u64).read_to_end(&mut kept);
            let _ = send.send((index, kept));
        });
        // Without a thread to read it, the program would hang on a full pipe until its limit.
        expected += usize::from(reader.is_ok());
    }

    let deadline = Instant::now() + limit;
    let mut kept = [Vec::new(), Vec::new()];
    let mut received = 0;
    let mut too_late = false;
    while received < expected {
        match receive.recv_timeout(deadline.saturating_duration_since(Instant::now()).min(GRACE)) {
            Ok((index, bytes)) => {
                let full = bytes.len() >= MAX_OUTPUT;
                kept[index] = bytes;
                received += 1;
                if full {
                    break;
                }
            }
            // The program has ended but something it left behind still holds its output open.
            Err(_) if has_ended(group) => break,
            Err(_) if Instant::now() >= deadline => {
                too_late = true;
                break;
            }
            Err(_) => {}
        }
    }
    // Output may be closed long before the end.
    let mut pause = Duration::from_millis(1);
    while !too_late && kept.iter().all(|bytes| bytes.len() < MAX_OUTPUT) && !has_ended(group) {
        if Instant::now() >= deadline {
            too_late = true;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
    // The leader is not reaped yet, so its number still names this group and no other.
    let _ = kill_process_group(group, Signal::KILL);
    let status = child.wait().map_err(Missing::from)?;
    while received < expected {
        let Ok((index, bytes)) = receive.recv_timeout(GRACE) else { break };
        kept[index] = bytes;
        received += 1;
    }
    if too_late {
        return Err(Missing::Unreadable(format!("{program} took longer than {:.1} s", limit.as_secs_f64())));
    }
    let [stdout, stderr] = kept;
    Ok(Output { success: status.success(), stdout, stderr })
}

/// True when the leader has ended; it stays unreaped.
fn has_ended(leader: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    !matches!(waitid(WaitId::Pid(leader), options), Ok(None))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_mins(1);

    /// Waits, bounded, until a process is gone or a zombie.
    fn gone(pid: &str) -> bool {
        for _ in 0..500 {
            match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
                Err(_) => return true,
                Ok(stat) if stat.contains(") Z ") => return true,
                Ok(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        false
    }

    #[test]
    fn output_status_and_locale_come_back() {
        let output = run(&["sh", "-c", "echo $LC_ALL; pwd; echo no >&2; exit 3"], LONG).unwrap();
        assert_eq!(output.stdout, b"C\n/\n");
        assert_eq!(output.stderr, b"no\n");
        assert!(!output.success);
        assert!(run(&["true"], LONG).unwrap().success);
    }

    #[test]
    fn a_program_that_is_not_there_is_not_there() {
        assert_eq!(run(&["planrun-no-such-program"], LONG).unwrap_err(), Missing::NotThere);
    }

    #[test]
    fn a_slow_program_is_ended() {
        let error = run(&["sleep", "600"], Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, Missing::Unreadable(reason) if reason.contains("sleep took longer")));
        let error = run(&["sh", "-c", "exec >&- 2>&-; sleep 600"], Duration::from_millis(50)).unwrap_err();
        assert!(matches!(error, Missing::Unreadable(_)), "closed output is no end");
    }

    #[test]
    fn what_a_program_leaves_behind_is_ended_with_it() {
        let output = run(&["sh", "-c", "sleep 600 & echo $!"], LONG).unwrap();
        let pid = String::from_utf8(output.stdout).unwrap();
        assert!(output.success && gone(pid.trim()), "pid {pid}");
    }

    #[test]
    fn endless_output_is_capped() {
        let output =
            run(&["sh", "-c", "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done"], LONG)
                .unwrap();
        assert_eq!(output.stdout.len(), MAX_OUTPUT);
    }
}
