//! The training data and the random numbers of the workload.
//!
//! The text is embedded and written for this purpose; tokens are its bytes. Invariant: a batch
//! depends on the seed, the step and the index of the sequence in the whole job, and on nothing
//! that came before, so that the position in the data is the step number.

use super::config::Reference;

/// The embedded text; sequences run over its end into its beginning.
pub(super) const TEXT: &[u8] = include_bytes!("corpus.txt");

/// The `SplitMix64` generator.
///
/// # Source
///
/// Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014);
/// constants of Vigna's public-domain `splitmix64.c`.
#[derive(Clone, Debug)]
pub(super) struct SplitMix(pub(super) u64);

impl SplitMix {
    /// The next 64 random bits.
    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = self.0;
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A nearly normal number with mean 0 and deviation 1: twelve uniform ones, less six.
    ///
    /// Additions alone give the same bits on every machine, which ln and cos do not promise.
    pub(super) fn normal(&mut self) -> f32 {
        let uniform = |bits: u64| (bits >> 40) as f32 / (1u64 << 24) as f32;
        (0..12).map(|_| uniform(self.bits())).sum::<f32>() - 6.0
    }
}

/// Fills `inputs` and `targets` with the sequences from `first` on of one step of the job.
pub(super) fn fill(
    config: &Reference,
    step: u64,
    first: usize,
    inputs: &mut [u8],  // (B, T)
    targets: &mut [u8], // (B, T)
) {
    let t = config.sequence;
    for (index, (inputs, targets)) in inputs.chunks_exact_mut(t).zip(targets.chunks_exact_mut(t)).enumerate()
    {
        // Hash in turn, so that no sum of seed, step and index meets another one's.
        let mut random = SplitMix(config.seed);
        for part in [step, (first + index) as u64] {
            random = SplitMix(random.bits() ^ part);
        }
        let start = (random.bits() % TEXT.len() as u64) as usize;
        for (offset, (input, target)) in inputs.iter_mut().zip(targets).enumerate() {
            *input = TEXT[(start + offset) % TEXT.len()];
            *target = TEXT[(start + offset + 1) % TEXT.len()];
        }
    }
}
