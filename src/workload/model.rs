//! The GPT itself: forward and backward over one share of a batch.
//!
//! Pre-norm blocks as in GPT-2, biases everywhere, learned positions, the head tied to the token
//! embedding, no dropout. Parameters, optimiser and threads live elsewhere. Invariant:
//! `backward` follows `forward` on the same tokens and parameters, and gradients are added to.
//!
//! Source: Radford et al., "Language Models are Unsupervised Multitask Learners" (GPT-2);
//! buffers and their order follow llm.c's `train_gpt2.c`.

use super::attention::{self, Sizes};
use super::config::{Reference, VOCABULARY};
use super::gemm::{Into, Matrix, MatrixMut, multiply};
use super::kernels::{cross_entropy, gelu, gelu_backward, linear, linear_backward, norm, norm_backward};
use super::layout::Layout;

/// What one block keeps for its backward pass.
#[derive(Debug)]
struct BlockActivations {
    normed1: Vec<f32>,       // (R, C)
    stats1: Vec<(f32, f32)>, // (R)
    qkv: Vec<f32>,           // (R, 3C)
    probabilities: Vec<f32>, // (B, H, T, T)
    attended: Vec<f32>,      // (R, C)
    middle: Vec<f32>,        // (R, C), the residual stream after attention
    normed2: Vec<f32>,       // (R, C)
    stats2: Vec<(f32, f32)>, // (R)
    hidden: Vec<f32>,        // (R, 4C), before GELU, then GELU's slope there
    activated: Vec<f32>,     // (R, 4C)
}

/// The buffers of one share of a batch, allocated once.
#[derive(Debug)]
pub(super) struct Activations {
    sizes: Sizes,
    // stream[l] enters block l, stream[L] leaves the last: each (R, C)
    stream: Vec<Vec<f32>>,
    blocks: Vec<BlockActivations>,
    normed: Vec<f32>,       // (R, C)
    stats: Vec<(f32, f32)>, // (R)
    logits: Vec<f32>,       // (R, V), their gradient after the loss
    d_stream: Vec<f32>,     // (R, C)
    d_width: Vec<f32>,      // (R, C)
    d_qkv: Vec<f32>,        // (R, 3C)
    d_hidden: Vec<f32>,     // (R, 4C)
    scratch: Vec<f32>,      // max(2C, 64 T)
}

impl Activations {
    /// Buffers for `sequences` sequences.
    pub(super) fn new(config: &Reference, sequences: usize) -> Self {
        let (t, c) = (config.sequence, config.width);
        let r = sequences * t;
        let wide = |columns: usize| vec![0.0; r * columns];
        let stats = || vec![(0.0, 0.0); r];
        let block = || BlockActivations {
            normed1: wide(c),
            stats1: stats(),
            qkv: wide(3 * c),
            probabilities: vec![0.0; sequences * config.heads * t * t],
            attended: wide(c),
            middle: wide(c),
            normed2: wide(c),
            stats2: stats(),
            hidden: wide(4 * c),
            activated: wide(4 * c),
        };
        Self {
            sizes: Sizes { sequences, tokens: t, heads: config.heads, width: c },
            stream: (0..=config.layers).map(|_| wide(c)).collect(),
            blocks: (0..config.layers).map(|_| block()).collect(),
            normed: wide(c),
            stats: stats(),
            logits: wide(VOCABULARY),
            d_stream: wide(c),
            d_width: wide(c),
            d_qkv: wide(3 * c),
            d_hidden: wide(4 * c),
            scratch: vec![0.0; (2 * c).max(64 * t)],
        }
    }

    /// Runs the model and returns the cross-entropy summed over all rows, in nats.
    ///
    /// `weight` multiplies the gradient that is left for [`Self::backward`]: 1 / (tokens of the
    /// batch) makes it the gradient of the mean.
    pub(super) fn forward(
        &mut self,
        layout: &Layout,
        parameters: &[f32], // (N)
        inputs: &[u8],      // (B, T)
        targets: &[u8],     // (B, T), each the token after its input
        weight: f32,
    ) -> f64 {
        let (t, c) = (self.sizes.tokens, self.sizes.width);
        let tokens = &parameters[layout.tokens.clone()];
        let positions = &parameters[layout.positions.clone()];
        for (row, (out, &token)) in self.stream[0].chunks_exact_mut(c).zip(inputs).enumerate() {
            let token = &tokens[usize::from(token) * c..][..c];
            let position = &positions[row % t * c..][..c];
            for ((out, token), position) in out.iter_mut().zip(token).zip(position) {
                *out = token + position;
            }
        }
        for (layer, (block, place)) in self.blocks.iter_mut().zip(&layout.blocks).enumerate() {
            let (before, after) = self.stream.split_at_mut(layer + 1);
            let (x, out) = (&before[layer], &mut after[0]);
            let at = |range: &std::ops::Range<usize>| &parameters[range.clone()];
            norm(&mut block.normed1, &mut block.stats1, x, at(&place.norm1));
            linear(&mut block.qkv, Into::Replace, &block.normed1, at(&place.qkv), c);
            attention::forward(&mut block.attended, &mut block.probabilities, &block.qkv, self.sizes);
            block.middle.copy_from_slice(x);
            linear(&mut block.middle, Into::Add, &block.attended, at(&place.mix), c);
            norm(&mut block.normed2, &mut block.stats2, &block.middle, at(&place.norm2));
            linear(&mut block.hidden, Into::Replace, &block.normed2, at(&place.up), c);
            gelu(&mut block.activated, &mut block.hidden);
            out.copy_from_slice(&block.middle);
            linear(out, Into::Add, &block.activated, at(&place.down), 4 * c);
        }
        let rows = inputs.len();
        let last = &self.stream[self.blocks.len()];
        norm(&mut self.normed, &mut self.stats, last, &parameters[layout.norm.clone()]);
        let head = Matrix::new(tokens, VOCABULARY, c).transposed();
        let logits = MatrixMut::new(&mut self.logits, rows, VOCABULARY);
        multiply(1.0, Matrix::new(&self.normed, rows, c), head, Into::Replace, logits);
        cross_entropy(&mut self.logits, targets, weight)
    }

    /// Adds the gradient of the weighted loss to `gradient`.
    pub(super) fn backward(
        &mut self,
        gradient: &mut [f32], // (N)
        layout: &Layout,
        parameters: &[f32], // (N)
        inputs: &[u8],      // (B, T)
    ) {
        let (t, c, rows) = (self.sizes.tokens, self.sizes.width, inputs.len());
        let tokens = Matrix::new(&parameters[layout.tokens.clone()], VOCABULARY, c);
        let d_logits = Matrix::new(&self.logits, rows, VOCABULARY);
        multiply(1.0, d_logits, tokens, Into::Replace, MatrixMut::new(&mut self.d_width, rows, c));
        let d_tokens = MatrixMut::new(&mut gradient[layout.tokens.clone()], VOCABULARY, c);
        multiply(1.0, d_logits.transposed(), Matrix::new(&self.normed, rows, c), Into::Add, d_tokens);
        self.d_stream.fill(0.0);
        norm_backward(
            &mut self.d_stream,
            &mut gradient[layout.norm.clone()],
            &self.d_width,
            &self.stream[self.blocks.len()],
            &self.stats,
            &parameters[layout.norm.clone()],
            &mut self.scratch,
        );
        for layer in (0..self.blocks.len()).rev() {
            self.block_backward(layer, gradient, layout, parameters);
        }
        for (row, (d_x, &token)) in self.d_stream.chunks_exact(c).zip(inputs).enumerate() {
            let starts = [layout.tokens.start + usize::from(token) * c, layout.positions.start + row % t * c];
            for start in starts {
                gradient[start..start + c].iter_mut().zip(d_x).for_each(|(sum, d_x)| *sum += d_x);
            }
        }
    }

    /// Takes `d_stream` from the output of a block to its input.
    fn block_backward(&mut self, layer: usize, gradient: &mut [f32], layout: &Layout, parameters: &[f32]) {
        let c = self.sizes.width;
        let (block, place) = (&self.blocks[layer], &layout.blocks[layer]);
        let (d_stream, d_width) = (&mut self.d_stream, &mut self.d_width);
        let (d_qkv, d_hidden, scratch) = (&mut self.d_qkv, &mut self.d_hidden, &mut self.scratch);
        // The MLP, from its output back to the stream after attention.
        let (down, up) = (place.down.clone(), place.up.clone());
        let weights = &parameters[down.clone()];
        linear_backward(d_hidden, &mut gradient[down], d_stream, &block.activated, weights, 4 * c);
        gelu_backward(d_hidden, &block.hidden);
        let weights = &parameters[up.clone()];
        linear_backward(d_width, &mut gradient[up], d_hidden, &block.normed2, weights, c);
        let norm2 = place.norm2.clone();
        let weights = &parameters[norm2.clone()];
        let d_norm = &mut gradient[norm2];
        norm_backward(d_stream, d_norm, d_width, &block.middle, &block.stats2, weights, scratch);
        // Attention, from its output back to the stream before it.
        let (mix, qkv) = (place.mix.clone(), place.qkv.clone());
        let weights = &parameters[mix.clone()];
        linear_backward(d_width, &mut gradient[mix], d_stream, &block.attended, weights, c);
        attention::backward(d_qkv, d_width, &block.probabilities, &block.qkv, scratch, self.sizes);
        let weights = &parameters[qkv.clone()];
        linear_backward(d_width, &mut gradient[qkv], d_qkv, &block.normed1, weights, c);
        let norm1 = place.norm1.clone();
        let weights = &parameters[norm1.clone()];
        let d_norm = &mut gradient[norm1];
        norm_backward(d_stream, d_norm, d_width, &self.stream[layer], &block.stats1, weights, scratch);
    }
}
