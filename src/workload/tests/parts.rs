//! The parts one by one: arithmetic of the configuration, kernels, data, state, cores.

use super::super::config::Reference;
use super::super::corpus::{self, TEXT};
use super::super::gemm::{Into, Matrix, MatrixMut, multiply};
use super::super::kernels::exp;
use super::super::launch::{Failure, deal};
use super::super::reference::{Mode, Spec};
use super::super::state::StateError;
use super::super::trainer::Trainer;
use super::tiny;

#[test]
fn parameters_and_flops_are_counted_as_by_hand() {
    let config = Reference { layers: 2, heads: 2, width: 8, sequence: 6, ..Reference::default() };
    // 256·8 + 6·8 + 2 (12·64 + 13·8) + 2·8
    assert_eq!(config.parameters(), 3856);
    // 6 (3856 − 48) + 12 · 2 · 2 · 4 · 6
    assert_eq!(config.flops_per_token(), 22848 + 1152);
    let trainer = Trainer::new(&config, 1, 1);
    assert_eq!(trainer.parameters.len(), 3856);
    let mut end = 0;
    for tensor in &trainer.layout.tensors {
        assert_eq!(tensor.range.start, end, "{}", tensor.name);
        end = tensor.range.end;
    }
    assert_eq!(end, 3856);
}

#[test]
fn wrong_specifications_are_refused_in_words() {
    let model = Reference { batch: 4, ..tiny() };
    let spec = |change: fn(&mut Spec)| {
        let mut spec = Spec { model: model.clone(), ..Spec::default() };
        change(&mut spec);
        spec.check().err().unwrap_or_default()
    };
    assert_eq!(spec(|_| ()), "");
    assert_eq!(spec(|s| s.model.layers = 0), "layers must be at least 1");
    assert_eq!(spec(|s| s.model.heads = 3), "width 8 is not a multiple of heads 3");
    assert_eq!(spec(|s| s.model.learning_rate = f32::NAN), "learning_rate NaN must be a positive number");
    assert_eq!(spec(|s| s.world = 0), "world and cores_per_rank must be at least 1");
    assert_eq!(spec(|s| s.seconds = -1.0), "seconds -1 must be 0 or more");
    assert_eq!(spec(|s| s.steps = 0), "steps or seconds must be above 0");
    let strong = spec(|s| (s.mode, s.world) = (Mode::Strong, 3));
    assert_eq!(strong, "strong scaling divides the batch, but 4 is no multiple of 3 ranks");
    assert!(serde_json::from_str::<Spec>(r#"{"wrold": 2}"#).is_err());
    assert!(serde_json::from_str::<Spec>(r#"{"model": {"depth": 2}}"#).is_err());
}

#[test]
fn weak_scaling_keeps_the_ranks_batch_and_strong_the_jobs() {
    let spec = |mode| Spec { model: Reference { batch: 8, ..tiny() }, world: 4, mode, ..Spec::default() };
    assert_eq!((spec(Mode::Weak).sequences_per_rank(), spec(Mode::Weak).tokens_per_step()), (8, 8 * 4 * 70));
    assert_eq!((spec(Mode::Strong).sequences_per_rank(), spec(Mode::Strong).tokens_per_step()), (2, 8 * 70));
}

#[test]
fn cores_are_dealt_in_order_and_too_few_are_an_error() {
    assert_eq!(deal(&[1, 4, 5, 7, 9], 2, 2).unwrap(), [vec![1, 4], vec![5, 7]]);
    let failure = deal(&[1, 4, 5], 2, 2).unwrap_err();
    assert!(matches!(failure, Failure::Cores { .. }));
    let words = "run 2 ranks on 2 cores each: that takes 4, but this process may use 3";
    assert_eq!((failure.to_string().as_str(), failure.code()), (words, 2));
}

#[test]
fn products_of_strided_and_transposed_views_are_right() {
    // a = [1 2; 3 4; 5 6] with a row stride of 3; b = [1 0 2; 0 1 1].
    let a = [1.0, 2.0, 9.0, 3.0, 4.0, 9.0, 5.0, 6.0];
    let b = [1.0, 0.0, 2.0, 0.0, 1.0, 1.0];
    let mut out = [7.0; 11]; // (3, 3) with a row stride of 4
    let (a, b) = (Matrix::strided(&a, 3, 2, 3), Matrix::new(&b, 2, 3));
    multiply(1.0, a, b, Into::Replace, MatrixMut::strided(&mut out, 3, 3, 4));
    assert_eq!(out, [1.0, 2.0, 4.0, 7.0, 3.0, 4.0, 10.0, 7.0, 5.0, 6.0, 16.0]);
    let mut out = [1.0; 4];
    multiply(2.0, a.transposed(), a, Into::Add, MatrixMut::new(&mut out, 2, 2));
    assert_eq!(out, [71.0, 89.0, 89.0, 113.0]);
}

#[test]
#[should_panic(expected = "a matrix must lie inside its slice")]
fn a_view_past_its_slice_is_refused() {
    let _ = Matrix::strided(&[0.0; 7], 3, 2, 3);
}

#[test]
#[should_panic(expected = "inner dimensions")]
fn factors_that_do_not_fit_are_refused() {
    let (a, mut out) = ([0.0; 6], [0.0; 4]);
    let (a, out) = (Matrix::new(&a, 2, 3), MatrixMut::new(&mut out, 2, 2));
    multiply(1.0, a, Matrix::new(&[0.0; 4], 2, 2), Into::Replace, out);
}

#[test]
#[should_panic(expected = "outer dimensions")]
fn an_output_of_another_shape_is_refused() {
    let (a, mut out) = ([0.0; 4], [0.0; 6]);
    multiply(
        1.0,
        Matrix::new(&a, 2, 2),
        Matrix::new(&a, 2, 2),
        Into::Replace,
        MatrixMut::new(&mut out, 2, 3),
    );
}

#[test]
fn exp_is_right_to_two_units_in_the_last_place() {
    for k in -8700..=8700 {
        let x = k as f32 / 100.0;
        let right = f64::from(x).exp();
        let error = (f64::from(exp(x)) - right).abs() / right;
        assert!(error < 2.4e-7, "exp({x}) is off by {error:e}");
    }
    assert_eq!(exp(f32::NEG_INFINITY).to_bits(), exp(-87.0).to_bits());
    assert!(exp(f32::NAN).is_nan());
}

#[test]
fn a_batch_depends_on_seed_step_and_place_alone() {
    let config = tiny();
    let t = config.sequence;
    let take = |config: &Reference, step, first, count: usize| {
        let (mut inputs, mut targets) = (vec![0; count * t], vec![0; count * t]);
        corpus::fill(config, step, first, &mut inputs, &mut targets);
        (inputs, targets)
    };
    let (inputs, targets) = take(&config, 5, 0, 4);
    assert_eq!((inputs[2 * t..].to_vec(), targets[2 * t..].to_vec()), take(&config, 5, 2, 2));
    assert_eq!(inputs[1..t], targets[..t - 1]);
    assert!(inputs.iter().all(|token| TEXT.contains(token)));
    assert_ne!(inputs, take(&config, 6, 0, 4).0);
    assert_ne!(inputs, take(&Reference { seed: 2, ..config.clone() }, 5, 0, 4).0);
    let long = Reference { sequence: TEXT.len() * 2, ..config };
    let mut buffers = (vec![0; long.sequence], vec![0; long.sequence]);
    corpus::fill(&long, 0, 0, &mut buffers.0, &mut buffers.1);
    assert_eq!(buffers.0[..TEXT.len()], buffers.0[TEXT.len()..]);
}

#[test]
fn the_loss_falls_and_the_same_seed_gives_the_same_bits() {
    let config = Reference { sequence: 32, batch: 4, width: 16, ..tiny() };
    let run = |steps: usize| {
        let mut trainer = Trainer::new(&config, config.batch, 2);
        let mut losses = Vec::new();
        for _ in 0..steps {
            trainer.load(0);
            losses.push(trainer.differentiate());
            trainer.update();
        }
        (losses, trainer.digest())
    };
    let (losses, digest) = run(60);
    // An untrained model guesses among 256 tokens: ln 256 = 5.545.
    assert!((losses[0] - 5.545).abs() < 0.05, "{}", losses[0]);
    let late = losses[50..].iter().sum::<f64>() / 10.0;
    assert!(late < 3.2, "the loss is still {late}");
    assert_eq!((losses, digest), run(60));
}

#[test]
fn a_restored_trainer_goes_on_with_the_same_bits() {
    let config = Reference { sequence: 16, ..tiny() };
    let step = |trainer: &mut Trainer| {
        trainer.load(0);
        let loss = trainer.differentiate();
        trainer.update();
        (loss, trainer.digest())
    };
    let mut trainer = Trainer::new(&config, config.batch, 1);
    (0..3).for_each(|_| _ = step(&mut trainer));
    let saved = trainer.save().unwrap();
    let next = [step(&mut trainer), step(&mut trainer)];
    let mut other = Trainer::new(&config, config.batch, 1);
    other.restore(&saved).unwrap();
    assert_eq!(other.step(), 3);
    assert_eq!([step(&mut other), step(&mut other)], next);
}

#[test]
fn cut_altered_and_foreign_states_are_refused_and_change_nothing() {
    let config = Reference { sequence: 16, ..tiny() };
    let saved = Trainer::new(&config, 1, 1).save().unwrap();
    let mut other = Trainer::new(&Reference { seed: 2, ..config.clone() }, 1, 1);
    assert_eq!(other.restore(&saved), Err(StateError::OtherConfiguration));
    let mut trainer = Trainer::new(&config, 1, 1);
    trainer.load(0);
    trainer.differentiate();
    trainer.update();
    let digest = trainer.digest();
    for length in (0..saved.len()).step_by(97).chain([saved.len() - 1]) {
        assert!(trainer.restore(&saved[..length]).is_err(), "{length} bytes");
    }
    let mut altered = saved.clone();
    altered[saved.len() / 2] ^= 1;
    assert_eq!(trainer.restore(&altered), Err(StateError::Damaged));
    // A checksum that fits does not make a state complete.
    for covered in [&saved[..saved.len() - 8], &[&saved[..saved.len() - 4], &[0; 4]].concat()] {
        let sum = crc32fast::hash(covered).to_le_bytes();
        assert_eq!(trainer.restore(&[covered, &sum].concat()), Err(StateError::Malformed));
    }
    assert_eq!((trainer.digest(), trainer.step()), (digest, 1));
}
