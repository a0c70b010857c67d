//! planrun runs test plans for GPU platforms and fills a scorecard.

pub mod agent;
pub mod findings;
pub mod journal;
pub mod measure;
pub mod outcome;
pub mod plan;
pub mod platform;
pub mod probe;
pub mod readers;
pub mod record;
pub mod runner;
pub mod score;
pub mod stage;
pub mod transport;
pub mod wire;
pub mod workload;
