//! The gradients, against finite differences and against `PyTorch`.

use super::super::corpus::SplitMix;
use super::super::trainer::Trainer;
use super::{golden_trainer, tiny};
use serde::Deserialize;

/// The loss after moving the tensor's elements by `amount` times `direction`.
fn loss_moved(trainer: &mut Trainer, start: usize, direction: &[f32], amount: f32) -> f64 {
    let range = start..start + direction.len();
    let kept = trainer.parameters[range.clone()].to_vec();
    for (value, step) in trainer.parameters[range.clone()].iter_mut().zip(direction) {
        *value += amount * step;
    }
    let loss = trainer.differentiate();
    trainer.parameters[range].copy_from_slice(&kept);
    loss
}

/// For every tensor: the slope of the loss along four random directions of unit length and along
/// the gradient itself equals the gradient's component.
///
/// Tolerance: the loss is near 6; computed in f32 and summed in f64 it is good to about 1e-7, which
/// the difference of fourth order divides by h = 0.01 into some 1e-5; its truncation, h⁴ = 1e-8
/// times a fifth derivative, is below that. 3e-5 covers both (the largest seen is 8e-6), while a
/// wrong sign or a lost term is an error of the component's own size, 0.03 to 0.5 along the gradient.
#[test]
fn gradient_equals_finite_differences_in_every_tensor() {
    const H: f32 = 0.01;
    let mut trainer = golden_trainer(1);
    trainer.differentiate();
    let gradient = trainer.gradient.clone();
    let mut random = SplitMix(7);
    for tensor in trainer.layout.tensors.clone() {
        let own = &gradient[tensor.range.clone()];
        let norm = own.iter().map(|g| g * g).sum::<f32>().sqrt();
        let mut directions: Vec<Vec<f32>> =
            (0..4).map(|_| own.iter().map(|_| random.normal()).collect()).collect();
        directions.push(own.to_vec());
        for (index, mut direction) in directions.into_iter().enumerate() {
            let length = direction.iter().map(|d| d * d).sum::<f32>().sqrt();
            for d in &mut direction {
                *d /= length;
            }
            let mut difference = |h: f32| {
                loss_moved(&mut trainer, tensor.range.start, &direction, h)
                    - loss_moved(&mut trainer, tensor.range.start, &direction, -h)
            };
            let slope = (8.0 * difference(H) - difference(2.0 * H)) / f64::from(12.0 * H);
            let component = f64::from(own.iter().zip(&direction).map(|(g, d)| g * d).sum::<f32>());
            assert!(
                (slope - component).abs() < 3e-5,
                "{} direction {index}: slope {slope}, gradient {component}, norm {norm}",
                tensor.name,
            );
        }
    }
}

#[derive(Deserialize)]
struct Golden {
    config: super::super::config::Reference,
    parameters: usize,
    steps: usize,
    losses: Vec<f64>,
    tensors: Vec<GoldenTensor>,
}

#[derive(Deserialize)]
struct GoldenTensor {
    name: String,
    shape: Vec<usize>,
    gradient: Summary,
    after: Summary,
}

#[derive(Debug, Deserialize)]
struct Summary {
    norm: f64,
    dot: f64,
    first: Vec<f64>,
    last: Vec<f64>,
}

impl Summary {
    fn of(values: &[f32]) -> Self {
        let values: Vec<f64> = values.iter().map(|value| f64::from(*value)).collect();
        let cos = |k: usize| (0.61 * k as f64 + 0.3).cos();
        Self {
            norm: values.iter().map(|value| value * value).sum::<f64>().sqrt(),
            dot: values.iter().enumerate().map(|(k, value)| value * cos(k)).sum(),
            first: values[..4].to_vec(),
            last: values[values.len() - 4..].to_vec(),
        }
    }

    fn numbers(&self) -> Vec<f64> {
        [vec![self.norm, self.dot], self.first.clone(), self.last.clone()].concat()
    }

    /// Every number of both agrees to `relative` of the tensor's norm, plus `absolute`.
    fn assert_close(&self, golden: &Self, relative: f64, absolute: f64, what: &str) {
        for (ours, theirs) in self.numbers().iter().zip(golden.numbers()) {
            let tolerance = absolute + relative * golden.norm;
            assert!((ours - theirs).abs() <= tolerance, "{what}: {self:?} is not {golden:?} to {tolerance}");
        }
    }
}

fn golden() -> Golden {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/workload/golden_gpt.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Loss, gradients and three `AdamW` steps equal what `PyTorch` computes in float64.
///
/// Tolerance: f32 rounding (6e-8) over sums of some hundred terms; 2e-6 of the norm. An update
/// divides by the gradient's own size, so an element whose gradient is near 0 moves by rounding:
/// 1e-5 absolute, a thousandth of one step.
#[test]
fn loss_gradients_and_updates_equal_pytorch() {
    let golden = golden();
    let mut trainer = golden_trainer(1);
    assert_eq!(golden.config, tiny());
    assert_eq!(golden.parameters, trainer.parameters.len());
    let named: Vec<_> = trainer.layout.tensors.iter().map(|t| (t.name.clone(), t.shape.clone())).collect();
    let theirs: Vec<_> = golden.tensors.iter().map(|t| (t.name.clone(), t.shape.clone())).collect();
    assert_eq!(named, theirs);
    for step in 0..golden.steps {
        let loss = trainer.differentiate();
        assert!((loss - golden.losses[step]).abs() < 2e-6, "step {step}: {loss}");
        if step == 0 {
            for (tensor, theirs) in trainer.layout.tensors.iter().zip(&golden.tensors) {
                let ours = Summary::of(&trainer.gradient[tensor.range.clone()]);
                ours.assert_close(&theirs.gradient, 2e-6, 0.0, &tensor.name);
            }
        }
        trainer.update();
    }
    for (tensor, theirs) in trainer.layout.tensors.iter().zip(&golden.tensors) {
        let mut values = trainer.parameters[tensor.range.clone()].to_vec();
        if tensor.name.ends_with("c_attn.bias") {
            // The gradient of the keys' bias is 0 but for rounding, which the fixture leaves out.
            let third = values.len() / 3;
            values.drain(third..2 * third);
        }
        Summary::of(&values).assert_close(&theirs.after, 2e-6, 1e-5, &tensor.name);
    }
}

/// Sharing the batch among threads changes the gradient by rounding only.
#[test]
fn threads_share_a_batch_without_changing_it() {
    let mut one = golden_trainer(1);
    let mut two = golden_trainer(2);
    let mut many = golden_trainer(16);
    let loss = one.differentiate();
    for other in [&mut two, &mut many] {
        assert!((loss - other.differentiate()).abs() < 1e-6);
        for (a, b) in one.gradient.iter().zip(&other.gradient) {
            assert!((a - b).abs() < 1e-7 + 1e-4 * a.abs(), "{a} is not {b}");
        }
    }
}
