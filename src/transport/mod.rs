//! Ways to a host: each gives a pipe to an agent there. What goes through the pipe is none of their business.

pub mod local;

use std::{future::Future, pin::Pin};

use tokio::io::{AsyncRead, AsyncWrite};

/// A pipe to an agent.
pub struct Pipe {
    /// To the agent.
    pub down: Box<dyn AsyncWrite + Send + Unpin>,
    /// From the agent.
    pub up: Box<dyn AsyncRead + Send + Unpin>,
    /// What the agent, or what lies between, says beside.
    pub aside: Box<dyn AsyncRead + Send + Unpin>,
    /// Resolves once the far end is gone.
    pub gone: BoxFuture<()>,
}

/// A future behind a pointer.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Why there is no pipe.
#[derive(Debug, thiserror::Error)]
#[error("start an agent on {place}")]
pub struct TransportError {
    /// The host.
    pub place: String,
    /// Why not.
    pub source: std::io::Error,
}

/// A way to a host.
pub trait Transport: Send + Sync {
    /// Starts an agent there.
    ///
    /// # Errors
    /// When it cannot be started.
    fn connect(&self) -> BoxFuture<Result<Pipe, TransportError>>;
}
