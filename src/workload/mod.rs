//! The reference training workload.
