//! One rank's training step: data, gradients on its cores, update.
//!
//! Ranks and their sums live in `ring` and `launch`. The batch is shared among threads; each runs
//! the whole model on its sequences with gradients of its own, which are then added in the order
//! of the threads. Invariant: the result depends on the number of threads, never on their timing.

use super::adamw::{AdamW, Hyper};
use super::config::Reference;
use super::corpus::{self, SplitMix};
use super::layout::Layout;
use super::model::Activations;
use std::thread;

/// Deviation of the initial weights, as in GPT-2.
const INITIAL_DEVIATION: f32 = 0.02;

/// What one thread works on.
#[derive(Debug)]
struct Share {
    activations: Activations,
    gradient: Vec<f32>, // (N)
    first: usize,       // its first sequence within the rank's batch
    inputs: Vec<u8>,    // (its sequences, T)
    targets: Vec<u8>,   // (its sequences, T)
}

/// The model, the optimiser and the buffers of one rank.
#[derive(Debug)]
pub(super) struct Trainer {
    pub(super) config: Reference,
    pub(super) layout: Layout,
    pub(super) parameters: Vec<f32>, // (N)
    pub(super) optimiser: AdamW,
    // gradient of the rank's mean loss: (N), then the loss and one free number for the ranks
    pub(super) gradient: Vec<f32>,
    shares: Vec<Share>,
    sequences: usize,
}

/// Numbers behind the gradient: the loss, and rank 0's wish to stop.
pub(super) const EXTRA: usize = 2;

impl Trainer {
    /// Initialises from the seed, for `sequences` sequences a step on up to `threads` threads.
    pub(super) fn new(config: &Reference, sequences: usize, threads: usize) -> Self {
        let layout = Layout::new(config);
        let count = config.parameters();
        let parameters = initial(config, &layout);
        let threads = threads.clamp(1, sequences);
        let shares = (0..threads)
            .map(|index| {
                let first = index * sequences / threads;
                let own = (index + 1) * sequences / threads - first;
                Share {
                    activations: Activations::new(config, own),
                    gradient: vec![0.0; if index == 0 { 0 } else { count }],
                    first,
                    inputs: vec![0; own * config.sequence],
                    targets: vec![0; own * config.sequence],
                }
            })
            .collect();
        let hyper = Hyper { rate: config.learning_rate, ..Hyper::default() };
        Self {
            config: config.clone(),
            layout,
            parameters,
            optimiser: AdamW::new(hyper, count),
            gradient: vec![0.0; count + EXTRA],
            shares,
            sequences,
        }
    }

    /// Updates done so far, which is also the position in the data.
    pub(super) fn step(&self) -> u64 {
        self.optimiser.step
    }

    /// Takes the batch of the next step; the rank's sequences begin at `first` of the job's.
    pub(super) fn load(&mut self, first: usize) {
        let step = self.step();
        for share in &mut self.shares {
            corpus::fill(&self.config, step, first + share.first, &mut share.inputs, &mut share.targets);
        }
    }

    /// Takes a given batch instead of the corpus, as tests do.
    #[cfg(test)]
    pub(super) fn load_given(&mut self, inputs: &[u8], targets: &[u8]) {
        for share in &mut self.shares {
            let start = share.first * self.config.sequence;
            let range = start..start + share.inputs.len();
            share.inputs.copy_from_slice(&inputs[range.clone()]);
            share.targets.copy_from_slice(&targets[range]);
        }
    }

    /// Computes the gradient of the rank's mean loss and returns that loss, in nats per token.
    pub(super) fn differentiate(&mut self) -> f64 {
        let tokens = self.sequences * self.config.sequence;
        let weight = 1.0 / tokens as f32;
        let (layout, parameters) = (&self.layout, &self.parameters[..]);
        let (gradient, extra) = self.gradient.split_at_mut(parameters.len());
        let run = |activations: &mut Activations, gradient: &mut [f32], inputs: &[u8], targets: &[u8]| {
            gradient.fill(0.0);
            let loss = activations.forward(layout, parameters, inputs, targets, weight);
            activations.backward(gradient, layout, parameters, inputs);
            loss
        };
        let Some((own, others)) = self.shares.split_first_mut() else { return 0.0 };
        let sum: f64 = thread::scope(|scope| {
            let handles: Vec<_> = others
                .iter_mut()
                .map(|share| {
                    let Share { activations, gradient, inputs, targets, .. } = share;
                    scope.spawn(move || run(activations, gradient, inputs, targets))
                })
                .collect();
            let loss = run(&mut own.activations, gradient, &own.inputs, &own.targets);
            let join = |handle: thread::ScopedJoinHandle<'_, f64>| match handle.join() {
                Ok(loss) => loss,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            handles.into_iter().map(join).fold(loss, |sum, loss| sum + loss)
        });
        for share in others {
            gradient.iter_mut().zip(&share.gradient).for_each(|(sum, own)| *sum += own);
        }
        let loss = sum / tokens as f64;
        extra[0] = loss as f32;
        loss
    }

    /// The mean loss behind the gradient: of this rank, or of the job once the ranks have summed.
    pub(super) fn loss(&self) -> f32 {
        self.gradient[self.parameters.len()]
    }

    /// Rank 0's wish to stop behind the gradient, above 0 if it wishes so.
    pub(super) fn wish(&self) -> f32 {
        self.gradient[self.parameters.len() + 1]
    }

    /// Sets the wish that the sum over ranks carries to all.
    pub(super) fn set_wish(&mut self, wish: f32) {
        let place = self.parameters.len() + 1;
        self.gradient[place] = wish;
    }

    /// A digest of the bits of all parameters (FNV-1a over 32-bit words).
    pub(super) fn digest(&self) -> u64 {
        self.parameters.iter().fold(0xcbf2_9ce4_8422_2325, |digest: u64, value| {
            (digest ^ u64::from(value.to_bits())).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }

    /// Updates the parameters from the gradient.
    pub(super) fn update(&mut self) {
        self.optimiser.update(&mut self.parameters, &self.gradient);
    }
}

/// GPT-2's initial weights: normal with deviation 0.02, the two projections into the residual
/// stream divided by √(2L), biases 0, norms 1.
fn initial(config: &Reference, layout: &Layout) -> Vec<f32> {
    let mut random = SplitMix(config.seed);
    let mut parameters = vec![0.0; config.parameters()];
    let residual = INITIAL_DEVIATION / (2.0 * config.layers as f32).sqrt();
    for tensor in &layout.tensors {
        let values = &mut parameters[tensor.range.clone()];
        if tensor.shape.len() == 2 {
            let into_stream = tensor.name.ends_with("c_proj.weight");
            let deviation = if into_stream { residual } else { INITIAL_DEVIATION };
            values.fill_with(|| deviation * random.normal());
        } else if tensor.name.ends_with("weight") {
            values.fill(1.0);
        }
    }
    parameters
}
