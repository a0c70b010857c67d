//! Judgement: pure functions of what a run recorded and of the plan's judgement part.
//!
//! `fold` turns journal lines into observations, `build` observations into a [`Scorecard`], `diff` two scorecards into
//! what changed. No file, no clock, no randomness: the same input gives the same bytes.

mod build;
pub mod builtin;
mod compare_hosts;
pub mod cost;
pub mod diff;
#[cfg(test)]
pub(crate) mod example;
pub mod figure;
pub mod fold;
pub mod judge;
pub mod judgement;
pub mod query;
mod ranking;
pub mod rubric;
mod rules;
pub mod scenario;
pub mod scorecard;
#[cfg(test)]
mod tests;

pub use build::scorecard;
pub use fold::{Fold, FoldError, Observations};
pub use scorecard::{Scorecard, ScorecardError, scorecard_schema};
