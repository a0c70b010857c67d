//! The leaf: units, metrics, samples, summaries, money.

pub mod bootstrap;
pub mod compare;
pub mod progress;
pub mod steady;
pub mod summary;
pub mod window;
