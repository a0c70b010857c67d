//! The `AdamW` optimiser over one flat vector of parameters.
//!
//! Neither gradients nor schedules live here. Invariant: `step` counts the updates done, and the
//! moments belong to the same parameters from the first update on.

/// Hyper-parameters; the defaults are those of `torch.optim.AdamW`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Hyper {
    pub(super) rate: f32,
    pub(super) beta1: f32,
    pub(super) beta2: f32,
    pub(super) epsilon: f32,
    pub(super) decay: f32,
}

impl Default for Hyper {
    fn default() -> Self {
        Self { rate: 1e-3, beta1: 0.9, beta2: 0.999, epsilon: 1e-8, decay: 0.01 }
    }
}

/// The state of the optimiser.
#[derive(Clone, Debug)]
pub(super) struct AdamW {
    pub(super) hyper: Hyper,
    pub(super) first: Vec<f32>,  // (N), moving mean of the gradient
    pub(super) second: Vec<f32>, // (N), moving mean of its square
    pub(super) step: u64,
}

impl AdamW {
    /// Starts with zero moments for `parameters` parameters.
    pub(super) fn new(hyper: Hyper, parameters: usize) -> Self {
        Self { hyper, first: vec![0.0; parameters], second: vec![0.0; parameters], step: 0 }
    }

    /// Updates the parameters once; weight decay applies to every tensor, as in `PyTorch` when
    /// all parameters form one group.
    ///
    /// # Formula
    ///
    /// `θ ← θ (1 − rate · decay)`, `m ← β₁ m + (1 − β₁) g`, `v ← β₂ v + (1 − β₂) g²`,
    /// `θ ← θ − rate · m̂ / (√v̂ + ε)`, `m̂ = m / (1 − β₁ᵗ)`, `v̂ = v / (1 − β₂ᵗ)`.
    ///
    /// # Source
    ///
    /// Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (arXiv 1711.05101),
    /// algorithm 2, with `PyTorch`'s order of operations.
    pub(super) fn update(&mut self, parameters: &mut [f32], gradient: &[f32]) {
        self.step += 1;
        let Hyper { rate, beta1, beta2, epsilon, decay } = self.hyper;
        // 1 - 0.999^1 loses bits in f32.
        let correction = |beta: f32| 1.0 - f64::from(beta).powf(self.step as f64);
        let rate1 = (f64::from(rate) / correction(beta1)) as f32;
        let root2 = (1.0 / correction(beta2).sqrt()) as f32;
        let keep = 1.0 - rate * decay;
        let moments = self.first.iter_mut().zip(self.second.iter_mut());
        for ((theta, &g), (m, v)) in parameters.iter_mut().zip(gradient).zip(moments) {
            *m = beta1 * *m + (1.0 - beta1) * g;
            *v = beta2 * *v + (1.0 - beta2) * g * g;
            *theta = *theta * keep - rate1 * *m / (v.sqrt() * root2 + epsilon);
        }
    }
}
