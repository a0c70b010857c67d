//! planrun runs test plans for GPU platforms and fills a scorecard.
pub mod findings;
pub mod measure;
pub mod platform;
pub mod probe;
pub mod record;
pub mod report;
pub mod score;
pub mod stage;
pub mod workload;
