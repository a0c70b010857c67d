//! Ways to a host: each gives a pipe to an agent there. What goes through the pipe is none of their business.

pub mod local;
pub mod ssh;

use std::{future::Future, pin::Pin};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::outcome::Outcome;

/// A pipe to an agent.
pub struct Pipe {
    /// To the agent.
    pub down: Box<dyn AsyncWrite + Send + Unpin>,
    /// From the agent.
    pub up: Box<dyn AsyncRead + Send + Unpin>,
    /// What the agent, or what lies between, says beside.
    pub aside: Box<dyn AsyncRead + Send + Unpin>,
    /// Resolves once the far end is gone; dropped, it lets go of everything that the pipe needs.
    pub gone: BoxFuture<()>,
    /// What a reader should know of the way, such as that nobody checked who is at its end.
    pub notes: Vec<String>,
    /// Lines that came before the agent had its say, such as those of a login shell.
    pub noise: Vec<String>,
}

/// A future behind a pointer.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Why there is no pipe, and whether it can help to ask again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoPipe {
    /// How a task ends that needs one.
    pub outcome: Outcome,
    /// Whether the same may go better in a moment.
    pub again: bool,
}

/// A way to a host.
pub trait Transport: Send + Sync {
    /// Starts an agent there. `name` marks what belongs to this run and place.
    ///
    /// # Errors
    /// When it cannot be started.
    fn connect(&self, name: &str) -> BoxFuture<Result<Pipe, NoPipe>>;

    /// Whether an agent there outlives its pipe.
    fn lasting(&self) -> bool {
        false
    }

    /// A new pipe to an agent that was started before and has lost its own; `None` where there is no such thing.
    /// `boot_id` is that of the host when the agent was started.
    ///
    /// # Errors
    /// When the host cannot be reached, or no such agent is there any more.
    fn attach(&self, _folder: &str, _boot_id: &str) -> Option<BoxFuture<Result<Pipe, NoPipe>>> {
        None
    }
}
