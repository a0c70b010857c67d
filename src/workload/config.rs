//! The configuration of the reference model and what follows from it by arithmetic.
//!
//! No buffers and no training here. Invariant: a `Reference` that passed `check` can be trained.

use serde::{Deserialize, Serialize};

/// Tokens are bytes, so the vocabulary has 256 entries.
pub(super) const VOCABULARY: usize = 256;

/// The configuration of the reference GPT.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Reference {
    /// Transformer blocks, L.
    pub layers: usize,
    /// Attention heads per block, H.
    pub heads: usize,
    /// Width of the residual stream, C; a multiple of `heads`.
    pub width: usize,
    /// Tokens in a sequence, T.
    pub sequence: usize,
    /// Sequences in a step: of one rank when scaling is weak, of the whole job when it is strong.
    pub batch: usize,
    /// Seed of the initial weights and of the order of the data.
    pub seed: u64,
    /// Learning rate of `AdamW`.
    pub learning_rate: f32,
}

impl Default for Reference {
    fn default() -> Self {
        Self { layers: 4, heads: 4, width: 128, sequence: 128, batch: 8, seed: 1, learning_rate: 1e-3 }
    }
}

impl Reference {
    /// Says what is wrong with the configuration, in words.
    ///
    /// # Errors
    ///
    /// A sentence when a field is zero, `heads` does not divide `width`, or the learning rate is
    /// not a positive number.
    pub fn check(&self) -> Result<(), String> {
        let counts = [
            ("layers", self.layers),
            ("heads", self.heads),
            ("width", self.width),
            ("sequence", self.sequence),
            ("batch", self.batch),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == 0) {
            return Err(format!("{name} must be at least 1"));
        }
        if !self.width.is_multiple_of(self.heads) {
            return Err(format!("width {} is not a multiple of heads {}", self.width, self.heads));
        }
        if !(self.learning_rate.is_finite() && self.learning_rate > 0.0) {
            return Err(format!("learning_rate {} must be a positive number", self.learning_rate));
        }
        Ok(())
    }

    /// Size of one head, Q = C / H.
    pub fn head_size(&self) -> usize {
        self.width / self.heads
    }

    /// Number of all parameters, position embeddings included.
    ///
    /// # Formula
    ///
    /// `V C + T C + L (12 C² + 13 C) + 2 C`; the head shares the token embedding and adds nothing.
    pub fn parameters(&self) -> usize {
        let (c, l) = (self.width, self.layers);
        VOCABULARY * c + self.sequence * c + l * (12 * c * c + 13 * c) + 2 * c
    }

    /// Floating-point operations that training needs per token, forward and backward.
    ///
    /// # Units
    ///
    /// FLOP per token.
    ///
    /// # Formula
    ///
    /// `6 N + 12 L H Q T`, N without the position embeddings (they are looked up, never multiplied;
    /// the tied token embedding stays in N because the head multiplies by it). The attention term
    /// counts the full T × T square although causal masking needs half of it.
    ///
    /// # Source
    ///
    /// Chowdhery et al., "`PaLM`: Scaling Language Modeling with Pathways", appendix B
    /// (arXiv 2204.02311); nanoGPT subtracts the position embeddings in the same way.
    pub fn flops_per_token(&self) -> u64 {
        let multiplied = self.parameters() - self.sequence * self.width;
        let attention = self.layers * self.heads * self.head_size() * self.sequence;
        6 * multiplied as u64 + 12 * attention as u64
    }
}
