//! Tests of the workload; the golden values come from `scripts/golden_gpt.py`.

#![allow(clippy::unwrap_used, clippy::exit, reason = "a test fails by panicking, and its programs exit")]
#![allow(clippy::float_cmp, reason = "equality of bits is what these tests are about")]

mod gradients;
mod jobs;
mod parts;

use super::config::Reference;
use super::trainer::Trainer;

/// The tiny configuration of the golden fixture; its sequence spans two blocks of attention rows.
fn tiny() -> Reference {
    Reference { layers: 2, heads: 2, width: 8, sequence: 70, batch: 3, seed: 1, learning_rate: 0.01 }
}

/// A trainer with the fixture's weights and batch.
fn golden_trainer(threads: usize) -> Trainer {
    let config = tiny();
    let mut trainer = Trainer::new(&config, config.batch, threads);
    for tensor in trainer.layout.tensors.clone() {
        let shift = if tensor.name.contains("ln_") && tensor.name.ends_with("weight") { 1.0 } else { 0.0 };
        for k in tensor.range {
            trainer.parameters[k] = (0.5 * (0.1 * (k * k) as f64 + k as f64).sin() + shift) as f32;
        }
    }
    let token = |j: usize| ((37 * j * j + 11 * j + 5) % 256) as u8;
    let t = config.sequence;
    let take = |offset: usize| -> Vec<u8> {
        (0..config.batch * t).map(|index| token(index / t * (t + 1) + index % t + offset)).collect()
    };
    trainer.load_given(&take(0), &take(1));
    trainer
}
