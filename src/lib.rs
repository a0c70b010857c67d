//! planrun runs test plans for GPU platforms and fills a scorecard.
pub mod measure;
pub mod probe;
pub mod workload;
