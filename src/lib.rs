//! planrun runs test plans for GPU platforms and fills a scorecard.
//!
//! ```text
//! Plan ──check──▶ Schedule ──run──▶ Records ═▶ journal ══fold══▶ Observations ──rubric, cost──▶ Scorecard ──▶ Report
//!                                      └─▶ progress (stderr)             Scorecard × Scorecard ──▶ Diff ──▶ Report
//! ```
//!
//! Data flows one way, and everything right of the journal is a pure function of it. Who may know whom is a table in
//! `docs/ARCHITECTURE.md`, held by a test.

pub mod agent;
pub mod child;
#[cfg(feature = "controller")]
pub mod cli;
#[cfg(feature = "controller")]
pub mod commands;
#[cfg(feature = "controller")]
pub mod error;
#[cfg(feature = "controller")]
pub mod findings;
#[cfg(feature = "controller")]
pub mod journal;
#[cfg(feature = "controller")]
pub mod measure;
pub mod outcome;
#[cfg(feature = "controller")]
pub mod plan;
#[cfg(feature = "controller")]
pub mod platform;
pub mod probe;
#[cfg(feature = "controller")]
pub mod progress;
#[cfg(feature = "controller")]
pub mod readers;
#[cfg(feature = "controller")]
pub mod record;
#[cfg(feature = "controller")]
pub mod report;
#[cfg(feature = "controller")]
pub mod runner;
#[cfg(feature = "controller")]
pub mod score;
#[cfg(feature = "controller")]
pub mod stage;
#[cfg(feature = "controller")]
pub mod transport;
pub mod wire;
pub mod workload;
