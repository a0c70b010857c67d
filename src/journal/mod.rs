//! The journal: the truth about a run, one checksummed JSON object a line, only ever appended to.
//!
//! One process writes it at a time, under an advisory lock. A line counts once its checksum is right and every line
//! before it counts; a torn tail is dropped and reported, damage before the end is refused. What lines mean is none
//! of this module's business.

mod reader;
#[cfg(test)]
mod tests;
mod writer;

pub use reader::{Tail, open_regular, read};
pub use writer::{Journal, Resumed};

use std::path::PathBuf;

/// The name of the journal in a run's folder.
pub const FILE: &str = "journal.jsonl";

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be opened, read or written.
    #[error("{action} {path}", path = path.display())]
    Io {
        /// What was tried, as a fragment.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// Another process has it.
    #[error("{path} is in use by another planrun", path = .0.display())]
    Locked(PathBuf),
    /// The folder holds a journal already.
    #[error("{path} exists already", path = .0.display())]
    Exists(PathBuf),
    /// A line before the end does not count.
    #[error("{path} is damaged in line {line}: {what}", path = path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// It was written by a newer planrun.
    #[error("{path} has schema {found}, this planrun reads up to {known}", path = path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its schema.
        found: u32,
        /// The newest that is known here.
        known: u32,
    },
    /// It holds no run.
    #[error("{path} holds no complete first line", path = .0.display())]
    Empty(PathBuf),
}

/// Puts the checksum into a JSON object: the last key, over all bytes before it.
fn seal(object: &mut String) {
    object.pop(); // the closing brace
    let sum = crc32fast::hash(object.as_bytes());
    object.push_str(&end(sum));
    object.push('\n');
}

/// What stands at the end of every line.
fn end(sum: u32) -> String {
    format!(",\"crc\":\"{sum:08x}\"}}")
}

/// The length of `,"crc":"00000000"}`.
const SEAL: usize = 18;

/// The object without its checksum, if that is right: everything up to the seal, without the closing brace.
fn unseal(line: &[u8]) -> Option<&[u8]> {
    let (object, seal) = line.split_at_checked(line.len().checked_sub(SEAL)?)?;
    // Digit by digit: a number may be written in several ways, a sum only in one.
    (seal == end(crc32fast::hash(object)).as_bytes()).then_some(object)
}
