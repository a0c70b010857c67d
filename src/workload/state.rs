//! The whole state of a training as bytes, and back.
//!
//! Writing files, durability and torn checkpoints are the checkpoint stage's matter. Invariant: a
//! trainer restored from the bytes of another continues with the same bits; bytes that are cut,
//! altered or of another configuration are refused and change nothing.
//!
//! Format, little-endian: `PRSTATE1`, length of the header (u32), header (JSON: configuration and
//! step, which is also the position in the data and all that the generator of the data needs),
//! then parameters, first and second moments (3 N f32), then CRC-32 of all before it (u32).

use super::config::Reference;
use super::trainer::Trainer;
use serde::{Deserialize, Serialize};
use thiserror::Error;

const MAGIC: &[u8; 8] = b"PRSTATE1";

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    config: Reference,
    step: u64,
}

/// Why saved bytes cannot be restored.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum StateError {
    /// The bytes do not begin as a state does, or end too early.
    #[error("read the saved state: it is cut or is something else")]
    Malformed,
    /// The checksum does not fit.
    #[error("read the saved state: its checksum does not fit")]
    Damaged,
    /// The state belongs to another model.
    #[error("restore the saved state: it is of another configuration")]
    OtherConfiguration,
}

impl Trainer {
    /// The state as bytes: 12 N and a few hundred more.
    pub(super) fn save(&self) -> Result<Vec<u8>, serde_json::Error> {
        let header = Header { config: self.config.clone(), step: self.step() };
        let header = serde_json::to_vec(&header)?;
        let mut bytes = Vec::with_capacity(12 * self.parameters.len() + header.len() + 16);
        bytes.extend_from_slice(MAGIC);
        bytes.extend_from_slice(&(header.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&header);
        for values in [&self.parameters, &self.optimiser.first, &self.optimiser.second] {
            bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
        }
        let sum = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        Ok(bytes)
    }

    /// Continues from saved bytes.
    ///
    /// # Errors
    ///
    /// See [`StateError`]; the trainer is then as it was.
    pub(super) fn restore(&mut self, bytes: &[u8]) -> Result<(), StateError> {
        let rest = bytes.strip_prefix(MAGIC).ok_or(StateError::Malformed)?;
        let (covered, sum) = bytes.split_last_chunk::<4>().ok_or(StateError::Malformed)?;
        let (length, rest) = rest.split_first_chunk::<4>().ok_or(StateError::Malformed)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (header, rest) = rest.split_at_checked(length).ok_or(StateError::Malformed)?;
        if crc32fast::hash(covered) != u32::from_le_bytes(*sum) {
            return Err(StateError::Damaged);
        }
        let header: Header = serde_json::from_slice(header).map_err(|_| StateError::Malformed)?;
        if header.config != self.config {
            return Err(StateError::OtherConfiguration);
        }
        let count = self.parameters.len();
        if rest.len() != 12 * count + 4 {
            return Err(StateError::Malformed);
        }
        let targets = [&mut self.parameters, &mut self.optimiser.first, &mut self.optimiser.second];
        for (values, bytes) in targets.into_iter().zip(rest.chunks_exact(4 * count)) {
            for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<4>().0) {
                *value = f32::from_le_bytes(*bytes);
            }
        }
        self.optimiser.step = header.step;
        Ok(())
    }
}
