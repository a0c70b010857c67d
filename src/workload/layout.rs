//! Where each parameter tensor lies in the one flat vector of parameters.
//!
//! Gradients and moments use the same layout. No arithmetic here. Invariant: the ranges tile
//! `0..N` without gaps, in the order of the names, and each bias follows its weight directly.

use super::config::{Reference, VOCABULARY};
use std::ops::Range;

/// One named tensor, as `PyTorch` would name and shape it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tensor {
    pub(super) name: String,
    pub(super) shape: Vec<usize>,
    pub(super) range: Range<usize>,
}

/// The places of one block; each range covers a weight and the bias behind it.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) norm1: Range<usize>, // weight (C), bias (C)
    pub(super) qkv: Range<usize>,   // weight (3C, C), bias (3C)
    pub(super) mix: Range<usize>,   // weight (C, C), bias (C)
    pub(super) norm2: Range<usize>, // weight (C), bias (C)
    pub(super) up: Range<usize>,    // weight (4C, C), bias (4C)
    pub(super) down: Range<usize>,  // weight (C, 4C), bias (C)
}

/// The places of all parameters.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) tokens: Range<usize>,    // (V, C), also the head
    pub(super) positions: Range<usize>, // (T, C)
    pub(super) blocks: Vec<Block>,
    pub(super) norm: Range<usize>, // weight (C), bias (C)
    pub(super) tensors: Vec<Tensor>,
}

impl Layout {
    /// Lays out the parameters of `config`.
    pub(super) fn new(config: &Reference) -> Self {
        let c = config.width;
        let mut tensors = Vec::new();
        let tokens = push(&mut tensors, "wte.weight".into(), vec![VOCABULARY, c]);
        let positions = push(&mut tensors, "wpe.weight".into(), vec![config.sequence, c]);
        let mut pair = |name: String, shape: Vec<usize>| {
            let outputs = shape[0];
            let weight = push(&mut tensors, format!("{name}.weight"), shape);
            let bias = push(&mut tensors, format!("{name}.bias"), vec![outputs]);
            weight.start..bias.end
        };
        let blocks = (0..config.layers)
            .map(|layer| Block {
                norm1: pair(format!("h.{layer}.ln_1"), vec![c]),
                qkv: pair(format!("h.{layer}.attn.c_attn"), vec![3 * c, c]),
                mix: pair(format!("h.{layer}.attn.c_proj"), vec![c, c]),
                norm2: pair(format!("h.{layer}.ln_2"), vec![c]),
                up: pair(format!("h.{layer}.mlp.c_fc"), vec![4 * c, c]),
                down: pair(format!("h.{layer}.mlp.c_proj"), vec![c, 4 * c]),
            })
            .collect();
        let norm = pair("ln_f".into(), vec![c]);
        Self { tokens, positions, blocks, norm, tensors }
    }
}

fn push(tensors: &mut Vec<Tensor>, name: String, shape: Vec<usize>) -> Range<usize> {
    let start = tensors.last().map_or(0, |tensor| tensor.range.end);
    let range = start..start + shape.iter().product::<usize>();
    tensors.push(Tensor { name, shape, range: range.clone() });
    range
}
