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
pub mod cli;
pub mod commands;
pub mod error;
pub mod findings;
pub mod journal;
pub mod measure;
pub mod outcome;
pub mod plan;
pub mod platform;
pub mod probe;
pub mod progress;
pub mod readers;
pub mod record;
pub mod report;
pub mod runner;
pub mod score;
pub mod stage;
pub mod transport;
pub mod wire;
pub mod workload;
