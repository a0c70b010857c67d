//! The leaf: units, metrics, samples, summaries, money.

pub mod bootstrap;
pub mod steady;
pub mod summary;
