//! How work ends: outcomes of tasks and of checks, and the documented list of what led to them.
//!
//! A leaf, since hosts, stages, journal and score all speak of it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a task ended. Every planned task ends in exactly one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeKind {
    /// It measured what it should.
    Ok,
    /// It ran and failed.
    Failed,
    /// It hit its time limit.
    TimedOut,
    /// Contact was lost and did not come back.
    Lost,
    /// This host or platform cannot do it.
    Unsupported,
    /// It was not run, on purpose or because what it needs failed.
    Skipped,
    /// It gave numbers that cannot be true.
    Implausible,
    /// The run was stopped.
    Interrupted,
}

/// What led to an outcome; the documented list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Nothing went wrong.
    None,
    /// A command ended with a code other than 0.
    CommandFailed,
    /// A command or its interpreter does not exist.
    CommandNotFound,
    /// A command was ended by a signal that we did not send.
    KilledBySignal,
    /// The kernel ended it for want of memory.
    OomKilled,
    /// The time limit of the task.
    TimeLimit,
    /// No output and no end until the limit.
    Hung,
    /// Data came back other than they were written.
    WrongData,
    /// The program reported no step or no metric.
    NoStepRecorded,
    /// Steps never settled: no throughput can be given.
    NoSteadyState,
    /// Fewer steps or seconds than the plan asks.
    TooShort,
    /// A number outside what physics or arithmetic allow.
    Impossible,
    /// The program said another number of ranks than planned.
    WorldSize,
    /// Output that the reader cannot read.
    Unreadable,
    /// The disk is full or may not be written.
    Disk,
    /// A file, tool, runtime or device is not there.
    NotThere,
    /// The platform has no endpoint for the stage.
    NotOffered,
    /// More accelerators or cores than the host has.
    NotEnoughDevices,
    /// The user left it out by `--only` or `--skip`.
    NotSelected,
    /// A stage that it needs did not end well.
    NeedFailed,
    /// The machine could not be reached.
    Unreachable,
    /// The SSH server does not let us in.
    LoginRefused,
    /// The machine's SSH host key is not the known one, or not known.
    HostKey,
    /// ssh refuses its own settings.
    SshSettings,
    /// The login works, but no command can be run.
    NoCommands,
    /// No agent at hand runs on the machine's processor and C library.
    DoesNotFit,
    /// Contact broke while it ran.
    ContactLost,
    /// The machine was taken away by its owner.
    Preempted,
    /// The machine was restarted.
    Rebooted,
    /// A limit of the plan, such as `stop_after`.
    PlanLimit,
    /// A signal to planrun.
    Stopped,
    /// planrun itself died while it ran.
    Crashed,
    /// A fault of planrun.
    Internal,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        serde_json::to_value(self).ok().and_then(|v| v.as_str().map(|s| f.write_str(s))).unwrap_or(Ok(()))
    }
}

impl fmt::Display for OutcomeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::Lost => "lost",
            Self::Unsupported => "unsupported",
            Self::Skipped => "skipped",
            Self::Implausible => "implausible",
            Self::Interrupted => "interrupted",
        })
    }
}

/// How a task ended, why, and in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// The outcome.
    pub kind: OutcomeKind,
    /// What led to it.
    pub cause: Cause,
    /// One sentence for a reader; empty for a plain `ok`.
    pub reason: String,
}

impl Outcome {
    /// Measured as planned.
    pub fn ok() -> Self {
        Self { kind: OutcomeKind::Ok, cause: Cause::None, reason: String::new() }
    }

    /// Any other end.
    pub fn new(kind: OutcomeKind, cause: Cause, reason: impl Into<String>) -> Self {
        Self { kind, cause, reason: reason.into() }
    }
}

/// Longest text of others that is passed on, in bytes.
const LONGEST: usize = 396;

/// Text from afar as a part of a reason: one line without anything that a terminal obeys.
pub fn printable(text: &str) -> String {
    // Also what changes the direction of text or takes no place.
    let unseen =
        |c: char| matches!(u32::from(c), 0x200b..=0x200f | 0x2028..=0x202e | 0x2060..=0x2069 | 0xfeff);
    let mut out = String::new();
    for c in text.trim().chars() {
        let shown = if c.is_control() || c.is_whitespace() || unseen(c) { ' ' } else { c };
        if !(shown == ' ' && out.ends_with(' ')) {
            out.push(shown);
        }
        if out.len() >= LONGEST {
            out.push('…');
            break;
        }
    }
    out.trim().to_owned()
}

/// The result of a check of the hardware or the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckResult {
    /// Which check.
    pub id: String,
    /// `pass`, `warn`, `fail` or `not_observable`.
    pub outcome: CheckOutcome,
    /// What was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What was promised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promised: Option<String>,
    /// Why it came out so.
    pub reason: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
}

/// The four outcomes of a check. What cannot be observed never counts as a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CheckOutcome {
    /// As it should be.
    Pass,
    /// Somebody should look.
    Warn,
    /// Not as it should be.
    Fail,
    /// Cannot be told from here.
    NotObservable,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_say_moves_no_cursor_and_is_bounded() {
        assert_eq!(printable("a\x1b[2Jb\r\n c\u{202e}d"), "a [2Jb c d");
        assert!(printable(&"x".repeat(9999)).len() <= 400);
    }
}
