//! Causal multi-head attention, forward and backward.
//!
//! Works on one fused buffer of queries, keys and values; the projections around it are linear
//! layers and live in `kernels`. Invariant: a probability to the right of the diagonal is 0, and
//! blocks that lie wholly there are never computed nor read.

use super::gemm::{Into, Matrix, MatrixMut, multiply};
use super::kernels::{dot, softmax};
use std::ops::Range;

/// Rows of the score matrix that are computed together.
const BLOCK: usize = 64;

/// The sizes attention needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Sequences, B.
    pub(super) sequences: usize,
    /// Tokens in a sequence, T.
    pub(super) tokens: usize,
    /// Heads, H.
    pub(super) heads: usize,
    /// Width, C.
    pub(super) width: usize,
}

impl Sizes {
    fn head_size(self) -> usize {
        self.width / self.heads
    }

    fn scale(self) -> f32 {
        1.0 / (self.head_size() as f32).sqrt()
    }

    /// Every (sequence, head): where its queries begin in qkv, its output in out, its scores.
    fn heads(self) -> impl Iterator<Item = (usize, usize, usize)> {
        (0..self.sequences * self.heads).map(move |index| {
            let (sequence, head) = (index / self.heads, index % self.heads);
            let row = sequence * self.tokens;
            let offset = head * self.head_size();
            (row * 3 * self.width + offset, row * self.width + offset, index * self.tokens * self.tokens)
        })
    }

    fn blocks(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.tokens).step_by(BLOCK).map(move |start| start..(start + BLOCK).min(self.tokens))
    }
}

/// Computes attention.
///
/// # Formula
///
/// Per head `out = softmax(Q Kᵀ / √(head size) + causal mask) V`.
///
/// # Source
///
/// Vaswani et al., "Attention Is All You Need" (arXiv 1706.03762), section 3.2.
pub(super) fn forward(
    out: &mut [f32],           // (B, T, C)
    probabilities: &mut [f32], // (B, H, T, T)
    qkv: &[f32],               // (B, T, 3C): queries, keys, values
    sizes: Sizes,
) {
    let (c, t, q) = (sizes.width, sizes.tokens, sizes.head_size());
    for (queries, output, scores) in sizes.heads() {
        let part = |which: usize, rows: Range<usize>| {
            Matrix::strided(&qkv[queries + which * c + rows.start * 3 * c..], rows.len(), q, 3 * c)
        };
        for rows in sizes.blocks() {
            let (height, columns) = (rows.len(), rows.end);
            let block = &mut probabilities[scores + rows.start * t..scores + rows.end * t];
            let into = MatrixMut::strided(block, height, columns, t);
            let keys = part(1, 0..columns).transposed();
            multiply(sizes.scale(), part(0, rows.clone()), keys, Into::Replace, into);
            for (row, i) in block.chunks_exact_mut(t).zip(rows.clone()) {
                softmax(&mut row[..=i]);
                row[i + 1..columns].fill(0.0);
            }
            let into = MatrixMut::strided(&mut out[output + rows.start * c..], height, q, c);
            let block = Matrix::strided(block, height, columns, t);
            multiply(1.0, block, part(2, 0..columns), Into::Replace, into);
        }
    }
}

/// Backward of [`forward`].
///
/// # Formula
///
/// With P the probabilities: `dP = dout Vᵀ`, `dS = P (dP − Σ dP P) / √(head size)`,
/// `dQ = dS K`, `dK = dSᵀ Q`, `dV = Pᵀ dout`.
pub(super) fn backward(
    d_qkv: &mut [f32],     // (B, T, 3C), replaced
    d_out: &[f32],         // (B, T, C)
    probabilities: &[f32], // (B, H, T, T)
    qkv: &[f32],           // (B, T, 3C)
    scratch: &mut [f32],   // at least min(T, 64) T
    sizes: Sizes,
) {
    let (c, t, q) = (sizes.width, sizes.tokens, sizes.head_size());
    d_qkv.fill(0.0);
    for (queries, output, scores) in sizes.heads() {
        let place = |which: usize, row: usize| queries + which * c + row * 3 * c;
        let part = |which: usize, rows: Range<usize>| {
            Matrix::strided(&qkv[place(which, rows.start)..], rows.len(), q, 3 * c)
        };
        for rows in sizes.blocks() {
            let (height, columns) = (rows.len(), rows.end);
            let p = &probabilities[scores + rows.start * t..scores + rows.end * t];
            let p_matrix = Matrix::strided(p, height, columns, t);
            let d_o = Matrix::strided(&d_out[output + rows.start * c..], height, q, c);
            let values = part(2, 0..columns).transposed();
            multiply(1.0, d_o, values, Into::Replace, MatrixMut::strided(scratch, height, columns, t));
            for (d_s, p) in scratch.chunks_exact_mut(t).zip(p.chunks_exact(t)) {
                let (d_s, p) = (&mut d_s[..columns], &p[..columns]);
                let mean = dot(d_s, p);
                for (d_s, p) in d_s.iter_mut().zip(p) {
                    *d_s = p * (*d_s - mean) * sizes.scale();
                }
            }
            let d_s = Matrix::strided(scratch, height, columns, t);
            let mut add = |which: usize, rows: Range<usize>, a: Matrix<'_>, b: Matrix<'_>| {
                let into = &mut d_qkv[place(which, rows.start)..];
                multiply(1.0, a, b, Into::Add, MatrixMut::strided(into, rows.len(), q, 3 * c));
            };
            add(0, rows.clone(), d_s, part(1, 0..columns));
            add(1, 0..columns, d_s.transposed(), part(0, rows.clone()));
            add(2, 0..columns, p_matrix.transposed(), d_o);
        }
    }
}
