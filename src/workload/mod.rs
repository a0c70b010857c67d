//! The reference training workload: a small GPT that planrun trains on the CPU by itself.
//!
//! Here live the model, its gradients, the optimiser, the data and the ranks that share the work.
//! What a step is worth (throughput, scaling, MFU) is judged elsewhere; this room only trains and
//! says what it did, as JSON lines. Invariant: for one configuration, seed, number of ranks and
//! number of cores per rank, every run on one kind of CPU yields the same bits.
//!
//! The letters of every shape: B sequences in a batch, T tokens in a sequence, C width, H heads,
//! Q = C / H head size, V = 256 vocabulary, L layers, R = B T rows, N parameters.

mod adamw;
mod attention;
mod config;
mod corpus;
mod gemm;
mod kernels;
mod launch;
mod layout;
mod model;
pub mod reference;
mod ring;
#[cfg_attr(not(test), expect(dead_code, reason = "its first caller will be the checkpoint stage"))]
mod state;
mod trainer;

#[cfg(test)]
mod tests;
