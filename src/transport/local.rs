//! The machine that planrun runs on: the agent is a child process, the pipe its standard streams.

use std::process::Stdio;

use tokio::process::Command;

use super::{BoxFuture, NoPipe, Pipe, Transport};
use crate::outcome::{Cause, Outcome, OutcomeKind};

/// The sub-command under which planrun's own binary is an agent.
pub const AGENT: &str = "agent";

/// The way to this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct Local;

impl Transport for Local {
    fn connect(&self, _name: &str) -> BoxFuture<Result<Pipe, NoPipe>> {
        Box::pin(async {
            let failed = |e: std::io::Error| {
                let reason = format!("cannot start an agent on this machine: {e}");
                NoPipe { outcome: Outcome::new(OutcomeKind::Lost, Cause::Unreachable, reason), again: false }
            };
            // A group of its own: Ctrl-C reaches planrun alone, which then ends things in order. When planrun is
            // killed, the closed pipe tells the agent to clean up; it must therefore not be killed on drop.
            let mut child = Command::new("/proc/self/exe")
                .arg(AGENT)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .process_group(0)
                .spawn()
                .map_err(failed)?;
            let streams = (child.stdin.take(), child.stdout.take(), child.stderr.take());
            let (Some(down), Some(up), Some(aside)) = streams else {
                return Err(failed(std::io::Error::other("no pipes to it")));
            };
            let gone = Box::pin(async move {
                let _ = child.wait().await;
            });
            let (notes, noise) = (Vec::new(), Vec::new());
            Ok(Pipe { down: Box::new(down), up: Box::new(up), aside: Box::new(aside), gone, notes, noise })
        })
    }
}
