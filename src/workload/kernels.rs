//! The elementwise and row-wise parts of the model, forward and backward: layer norm, GELU,
//! softmax, cross-entropy and the linear layer.
//!
//! Pure functions over slices, no state. Invariant: a backward function adds to the gradients of
//! parameters and, unless it says otherwise, replaces the gradients of activations. Sums run in
//! eight fixed lanes, so that they vectorise and still have one order.

use super::gemm::{Into, Matrix, MatrixMut, multiply};

const LANES: usize = 8;
/// Added to the variance, as in `torch.nn.LayerNorm`.
const NORM_EPSILON: f32 = 1e-5;
/// √(2/π), of GELU's tanh approximation.
const GELU_SCALE: f32 = 0.797_884_6;
const GELU_CUBIC: f32 = 0.044_715;

/// Sums `xs` in a fixed order.
pub(super) fn sum(xs: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let (chunks, rest) = xs.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += x;
        }
    }
    lanes.iter().sum::<f32>() + rest.iter().sum::<f32>()
}

/// Sums the products of `xs` and `ys` in a fixed order.
pub(super) fn dot(xs: &[f32], ys: &[f32]) -> f32 {
    let mut lanes = [0.0; LANES];
    let ((xs, x_rest), (ys, y_rest)) = (xs.as_chunks::<LANES>(), ys.as_chunks::<LANES>());
    for (x8, y8) in xs.iter().zip(ys) {
        for ((lane, x), y) in lanes.iter_mut().zip(x8).zip(y8) {
            *lane += x * y;
        }
    }
    lanes.iter().sum::<f32>() + x_rest.iter().zip(y_rest).map(|(x, y)| x * y).sum::<f32>()
}

/// The largest of `xs`.
fn maximum(xs: &[f32]) -> f32 {
    let larger = |a: f32, b: f32| if a > b { a } else { b };
    let mut lanes = [f32::NEG_INFINITY; LANES];
    let (chunks, rest) = xs.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = larger(*lane, *x);
        }
    }
    lanes.iter().chain(rest).fold(f32::NEG_INFINITY, |a, b| larger(a, *b))
}

/// eˣ to about one unit in the last place, without a call, so that loops over it vectorise.
///
/// # Formula
///
/// `x = n ln 2 + r`, `eˣ = 2ⁿ eʳ`, eʳ by a polynomial of degree 6 on |r| ≤ ln 2 / 2; x is clamped
/// to ±87, beyond which f32 has no normal numbers.
///
/// # Source
///
/// Cephes, `expf.c` (Stephen L. Moshier), reduction and coefficients.
#[inline]
pub(super) fn exp(x: f32) -> f32 {
    // Adding 1.5 · 2²³ rounds to the nearest integer and leaves it in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const HIGH: f32 = 0.693_359_4; // ln 2 = HIGH + LOW; HIGH n is exact
    const LOW: f32 = -2.121_944_4e-4;
    let x = if x > 87.0 { 87.0 } else { x };
    let x = if x < -87.0 { -87.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let r = x - whole * HIGH - whole * LOW;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 5e-1;
    let power_of_two = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    (p * r * r + r + 1.0) * power_of_two
}

/// GELU of each element; leaves GELU's derivative where the element was.
///
/// The derivative needs the same exponential, so the backward pass is one product.
///
/// # Formula
///
/// `x/2 (1 + tanh u)` with `u = √(2/π) (x + 0.044715 x³)`, computed as `x s` with
/// `s = 1 / (1 + e^(−2u))`; its derivative is `s + 2 x s (1 − s) u'`,
/// `u' = √(2/π) (1 + 3 · 0.044715 x²)`.
///
/// # Source
///
/// Hendrycks and Gimpel, "Gaussian Error Linear Units" (arXiv 1606.08415), section 2.
pub(super) fn gelu(out: &mut [f32], x_then_slope: &mut [f32]) {
    for (out, place) in out.iter_mut().zip(x_then_slope) {
        let x = *place;
        let square = x * x;
        let u = GELU_SCALE * x * (1.0 + GELU_CUBIC * square);
        let s = 1.0 / (1.0 + exp(-2.0 * u));
        *out = x * s;
        *place = s + 2.0 * x * s * (1.0 - s) * (GELU_SCALE * (1.0 + 3.0 * GELU_CUBIC * square));
    }
}

/// Backward of [`gelu`]: multiplies the gradient by the derivative that it left.
pub(super) fn gelu_backward(gradient: &mut [f32], slope: &[f32]) {
    for (gradient, slope) in gradient.iter_mut().zip(slope) {
        *gradient *= slope;
    }
}

/// Normalises each row to mean 0 and variance 1, then scales and shifts it.
///
/// # Formula
///
/// `out = (x − mean) / √(variance + 1e−5) · weight + bias`, with the biased variance.
///
/// # Source
///
/// Ba, Kiros and Hinton, "Layer Normalization" (arXiv 1607.06450).
pub(super) fn norm(
    out: &mut [f32],          // (R, C)
    stats: &mut [(f32, f32)], // (R) mean and reciprocal deviation
    x: &[f32],                // (R, C)
    weight_and_bias: &[f32],  // (C) then (C)
) {
    let c = weight_and_bias.len() / 2;
    let (weight, bias) = weight_and_bias.split_at(c);
    for ((out, x), stats) in out.chunks_exact_mut(c).zip(x.chunks_exact(c)).zip(stats) {
        let mean = sum(x) / c as f32;
        // Centre first: E(x²) − mean² would cancel.
        for (out, x) in out.iter_mut().zip(x) {
            *out = x - mean;
        }
        let variance = dot(out, out) / c as f32;
        let scale = 1.0 / (variance + NORM_EPSILON).sqrt();
        for ((out, weight), bias) in out.iter_mut().zip(weight).zip(bias) {
            *out = *out * scale * weight + bias;
        }
        *stats = (mean, scale);
    }
}

/// Backward of [`norm`]; adds to the gradient of `x`, because a residual path meets it there.
///
/// # Formula
///
/// With `n = (x − mean) scale` and `g = weight · dout`:
/// `dx += scale (g − mean(g) − n mean(g n))`, `dweight += Σ dout n`, `dbias += Σ dout`.
pub(super) fn norm_backward(
    d_x: &mut [f32],               // (R, C), added to
    d_weight_and_bias: &mut [f32], // (C) then (C), added to
    d_out: &[f32],                 // (R, C)
    x: &[f32],                     // (R, C)
    stats: &[(f32, f32)],          // (R)
    weight_and_bias: &[f32],       // (C) then (C)
    scratch: &mut [f32],           // at least 2C
) {
    let c = weight_and_bias.len() / 2;
    let weight = &weight_and_bias[..c];
    let (d_weight, d_bias) = d_weight_and_bias.split_at_mut(c);
    let (n, g) = scratch[..2 * c].split_at_mut(c);
    let rows = d_x.chunks_exact_mut(c).zip(d_out.chunks_exact(c)).zip(x.chunks_exact(c)).zip(stats);
    for (((d_x, d_out), x), &(mean, scale)) in rows {
        for j in 0..c {
            n[j] = (x[j] - mean) * scale;
            g[j] = weight[j] * d_out[j];
            d_weight[j] += d_out[j] * n[j];
            d_bias[j] += d_out[j];
        }
        let mean_g = sum(g) / c as f32;
        let mean_gn = dot(g, n) / c as f32;
        for ((d_x, n), g) in d_x.iter_mut().zip(n.iter()).zip(g.iter()) {
            *d_x += scale * (g - mean_g - n * mean_gn);
        }
    }
}

/// Replaces `row` by its softmax and returns ln Σ eˣ of what it was.
pub(super) fn softmax(row: &mut [f32]) -> f32 {
    let largest = maximum(row);
    for x in row.iter_mut() {
        *x = exp(*x - largest);
    }
    let total = sum(row);
    let scale = 1.0 / total;
    for x in row.iter_mut() {
        *x *= scale;
    }
    largest + total.ln()
}

/// Cross-entropy of `logits` against `targets`, summed; leaves its gradient in `logits`.
///
/// # Formula
///
/// Per row `ln Σ eˣ − x[target]`; the gradient is `(softmax(x) − onehot) weight`.
pub(super) fn cross_entropy(
    logits: &mut [f32], // (R, V)
    targets: &[u8],     // (R)
    weight: f32,
) -> f64 {
    let columns = logits.len() / targets.len();
    let mut loss = 0.0;
    for (row, &target) in logits.chunks_exact_mut(columns).zip(targets) {
        let target = usize::from(target);
        let chosen = row[target];
        loss += f64::from(softmax(row) - chosen);
        row[target] -= 1.0;
        for x in row.iter_mut() {
            *x *= weight;
        }
    }
    loss
}

/// A linear layer: `out = x Wᵀ + bias`, added to what `out` holds if `how` says so.
pub(super) fn linear(
    out: &mut [f32], // (R, O)
    how: Into,
    x: &[f32],               // (R, I)
    weight_and_bias: &[f32], // (O, I) then (O)
    inputs: usize,
) {
    let outputs = weight_and_bias.len() / (inputs + 1);
    let rows = x.len() / inputs;
    let (weight, bias) = weight_and_bias.split_at(outputs * inputs);
    for row in out.chunks_exact_mut(outputs) {
        match how {
            Into::Replace => row.copy_from_slice(bias),
            Into::Add => row.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias),
        }
    }
    let weight = Matrix::new(weight, outputs, inputs).transposed();
    multiply(1.0, Matrix::new(x, rows, inputs), weight, Into::Add, MatrixMut::new(out, rows, outputs));
}

/// Backward of [`linear`].
///
/// # Formula
///
/// `dx = dout W`, `dW += doutᵀ x`, `dbias += Σ dout` over rows.
pub(super) fn linear_backward(
    d_x: &mut [f32],               // (R, I), replaced
    d_weight_and_bias: &mut [f32], // (O, I) then (O), added to
    d_out: &[f32],                 // (R, O)
    x: &[f32],                     // (R, I)
    weight_and_bias: &[f32],       // (O, I) then (O)
    inputs: usize,
) {
    let outputs = weight_and_bias.len() / (inputs + 1);
    let rows = x.len() / inputs;
    let weight = Matrix::new(weight_and_bias, outputs, inputs);
    let (d_weight, d_bias) = d_weight_and_bias.split_at_mut(outputs * inputs);
    let d_out_matrix = Matrix::new(d_out, rows, outputs);
    multiply(1.0, d_out_matrix, weight, Into::Replace, MatrixMut::new(d_x, rows, inputs));
    let d_weight = MatrixMut::new(d_weight, outputs, inputs);
    multiply(1.0, d_out_matrix.transposed(), Matrix::new(x, rows, inputs), Into::Add, d_weight);
    for row in d_out.chunks_exact(outputs) {
        for (d_bias, d_out) in d_bias.iter_mut().zip(row) {
            *d_bias += d_out;
        }
    }
}
