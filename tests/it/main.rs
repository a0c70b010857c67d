//! The integration tests: the real binary, real processes, plans with local endpoints and with real SSH servers on
//! loopback.
//!
//! Nothing here measures how fast anything is: tests wait for states, and every wait is bounded. No other machine, no
//! accelerator and no interpreter but `sh` is needed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::format_push_string, reason = "texts of plans are short")]

mod architecture;
mod cli;
mod exits;
mod local;
mod outcomes;
mod portable;
mod resume;
mod running;
mod schedule;
mod signals;
mod ssh;
mod ssh_faults;
mod ssh_secrets;
mod stages;
mod support;
