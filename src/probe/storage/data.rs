//! The bytes that are written: incompressible, different everywhere, and known when read again.
//!
//! Here: the pattern, its stamps, aligned buffers. Not here: files.
//!
//! Invariant: every 4 KiB sector says where it belongs and in which pass it was written, so that
//! wrong, moved and stale data are all told from right data.

/// The unit of stamps and of alignment, in bytes.
pub(super) const SECTOR: usize = 4096;
/// The length of a stamp at the head of each sector, in bytes.
const STAMP: usize = 32;
/// The least length after which the bytes behind the stamps repeat.
const PERIOD: usize = 4 << 20;

/// The pass of random writes; sequential passes count from 1.
pub(super) const RANDOM_PASS: u64 = u64::MAX;

/// A buffer that starts at a multiple of [`SECTOR`], as direct I/O asks for.
#[derive(Debug)]
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    pub(super) fn new(len: usize) -> Self {
        let bytes = vec![0; len + SECTOR];
        let start = bytes.as_ptr().align_offset(SECTOR);
        Self { bytes, start, len }
    }

    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub(super) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

/// A fast generator of numbers without visible pattern (splitmix64).
#[derive(Debug, Clone)]
pub(super) struct Numbers(u64);

impl Numbers {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `limit`, which is not 0.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What the file holds, from a seed.
#[derive(Debug)]
pub(super) struct Pattern {
    seed: u64,
    pool: Buffer,
}

impl Pattern {
    /// The pattern for blocks of this length, a multiple of [`SECTOR`].
    pub(super) fn new(seed: u64, block: usize) -> Self {
        let mut pool = Buffer::new(PERIOD.div_ceil(block) * block);
        let mut numbers = Numbers::new(seed);
        for word in pool.get_mut().chunks_exact_mut(8) {
            word.copy_from_slice(&numbers.next().to_le_bytes());
        }
        Self { seed, pool }
    }

    /// A buffer of the pattern's bytes, to be stamped and written from, without copying.
    pub(super) fn writer(&self) -> Buffer {
        let mut buffer = Buffer::new(self.pool.len);
        buffer.get_mut().copy_from_slice(self.pool.get());
        buffer
    }

    /// The stamped bytes for `len` bytes at `offset` (multiples of [`SECTOR`], within one block).
    pub(super) fn stamped<'a>(&self, writer: &'a mut Buffer, offset: u64, len: usize, pass: u64) -> &'a [u8] {
        let at = self.place(offset);
        let bytes = &mut writer.get_mut()[at..at + len];
        let first = offset / SECTOR as u64;
        for (sector, bytes) in (first..).zip(bytes.chunks_exact_mut(SECTOR)) {
            bytes[..STAMP].copy_from_slice(&self.stamp(sector, pass));
        }
        bytes
    }

    /// Compares what was read at `offset` with what was written there in this pass.
    ///
    /// # Errors
    /// Where the first wrong sector lies and in which way it is wrong.
    pub(super) fn verify(&self, read: &[u8], offset: u64, pass: u64) -> Result<(), String> {
        let at = self.place(offset);
        let first = offset / SECTOR as u64;
        let expected = self.pool.get()[at..at + read.len()].chunks_exact(SECTOR);
        for ((sector, read), body) in (first..).zip(read.chunks_exact(SECTOR)).zip(expected) {
            let stamp = self.stamp(sector, pass);
            if read[..STAMP] != stamp || read[STAMP..] != body[STAMP..] {
                return Err(self.describe(read, sector, pass));
            }
        }
        Ok(())
    }

    fn place(&self, offset: u64) -> usize {
        (offset % self.pool.len as u64) as usize
    }

    fn stamp(&self, sector: u64, pass: u64) -> [u8; STAMP] {
        let check = mix(self.seed ^ mix(sector ^ mix(pass)));
        let mut stamp = [0; STAMP];
        for (part, word) in stamp.chunks_exact_mut(8).zip([self.seed, sector, pass, check]) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        stamp
    }

    fn describe(&self, read: &[u8], sector: u64, pass: u64) -> String {
        let at = sector * SECTOR as u64;
        let word = |index: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&read[index * 8..index * 8 + 8]);
            u64::from_le_bytes(bytes)
        };
        let whole = read[..STAMP] == self.stamp(word(1), word(2));
        if read.iter().all(|byte| *byte == 0) {
            format!("the sector at byte {at} holds only zeros")
        } else if whole && word(1) != sector {
            format!(
                "the sector at byte {at} holds the data of byte {}",
                word(1).saturating_mul(SECTOR as u64)
            )
        } else if whole && word(2) != pass {
            format!("the sector at byte {at} holds older data than was written last")
        } else {
            format!("the sector at byte {at} is damaged")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: usize = 4 * SECTOR;

    fn block(pattern: &Pattern, offset: u64, pass: u64) -> Vec<u8> {
        pattern.stamped(&mut pattern.writer(), offset, BLOCK, pass).to_vec()
    }

    #[test]
    fn buffers_are_aligned() {
        for len in [SECTOR, 3 * SECTOR] {
            let buffer = Buffer::new(len);
            assert_eq!((buffer.get().as_ptr() as usize % SECTOR, buffer.get().len()), (0, len));
        }
    }

    #[test]
    fn right_data_passes_and_wrong_data_is_described() {
        let pattern = Pattern::new(7, BLOCK);
        let offset = 5 * BLOCK as u64;
        let good = block(&pattern, offset, 2);
        assert_eq!(pattern.verify(&good, offset, 2), Ok(()));

        let mut flipped = good.clone();
        flipped[SECTOR + 100] ^= 1;
        let reason = pattern.verify(&flipped, offset, 2).unwrap_err();
        assert_eq!(reason, format!("the sector at byte {} is damaged", offset + SECTOR as u64));

        let mut torn = good.clone();
        torn[2 * SECTOR..3 * SECTOR].fill(0);
        assert!(pattern.verify(&torn, offset, 2).unwrap_err().contains("only zeros"));

        let stale = block(&pattern, offset, 1);
        assert!(pattern.verify(&stale, offset, 2).unwrap_err().contains("older data"));

        let moved = block(&pattern, 0, 2);
        assert!(pattern.verify(&moved, offset, 2).unwrap_err().contains("data of byte 0"));

        let other_seed = Pattern::new(8, BLOCK);
        assert!(pattern.verify(&block(&other_seed, offset, 2), offset, 2).unwrap_err().contains("damaged"));
    }

    #[test]
    fn no_two_sectors_are_alike_even_past_the_period() {
        let pattern = Pattern::new(1, BLOCK);
        let period = pattern.pool.len as u64;
        assert_ne!(block(&pattern, 0, 1), block(&pattern, period, 1));
        let ones: u32 = pattern.pool.get().iter().map(|byte| byte.count_ones()).sum();
        let half = pattern.pool.len as f64 * 4.0;
        assert!((f64::from(ones) / half - 1.0).abs() < 0.01, "as many ones as zeros");
    }
}
