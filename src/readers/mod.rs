//! Readers: from what a program prints to what it says. One file a reader.
//!
//! A reader sees one line at a time, without its end, and never fails: what it cannot read is a log line, or an
//! unreadable one when it looks like data. Lines come from afar and are hostile until read.

mod json_lines;
mod pattern;

pub use json_lines::JsonLines;
pub use pattern::{PatternReader, compile};

use crate::measure::{Better, Finite, Labels, Unit};

/// The longest line that is read, in bytes; longer ones are cut.
pub const MAX_LINE: usize = 64 << 10;

/// Something that a program said.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// The whole job made a step.
    Step(Step),
    /// A number.
    Number {
        /// The metric's name.
        name: String,
        /// The value, in `unit`.
        value: Finite,
        /// The unit; `None` where the program gave none.
        unit: Option<Unit>,
        /// Its labels.
        labels: Labels,
        /// Which way it gets better, where the plan says so.
        better: Option<Better>,
    },
    /// A fact about the host; `value` is `None` when it could not be read, with the reason.
    Fact {
        /// The dotted name.
        name: String,
        /// The value.
        value: Option<serde_json::Value>,
        /// Why there is none.
        unreadable: Option<String>,
    },
    /// Something that a reader of the report should know.
    Note(String),
    /// A line that looks like data and cannot be read: which, and why.
    Unreadable(String),
}

/// A step of the whole job.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Which step, as the program counts.
    pub step: u64,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Samples that it trained on, over all ranks.
    pub samples: Option<f64>,
    /// Tokens that it trained on, over all ranks.
    pub tokens: Option<f64>,
    /// How many ranks there were.
    pub world: Option<u32>,
    /// Seconds spent waiting for data.
    pub data_seconds: Option<f64>,
    /// Seconds spent in communication.
    pub comm_seconds: Option<f64>,
}

/// A reader of a program's standard output.
pub trait Reader: Send {
    /// Reads one line; appends what it says.
    fn line(&mut self, line: &str, said: &mut Vec<Said>);
}

/// Cuts bytes into lines for a reader, whatever pieces they come in.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
}

impl Lines {
    /// Takes the next bytes and hands on each whole line: without its end, `\r` included, invalid UTF-8 replaced,
    /// cut at [`MAX_LINE`].
    pub fn take(&mut self, bytes: &[u8], mut each: impl FnMut(&str)) {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let room = MAX_LINE.saturating_sub(self.rest.len());
            self.rest.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end(&mut each);
            }
        }
    }

    /// Hands on what stands behind the last line end, if anything.
    pub fn end(&mut self, mut each: impl FnMut(&str)) {
        let line = std::mem::take(&mut self.rest);
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        if !line.is_empty() {
            each(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_do_not_depend_on_the_pieces() {
        let text = b"one\r\ntwo\n\nthree";
        for cut in 0..text.len() {
            let (mut lines, mut got) = (Lines::default(), Vec::new());
            lines.take(&text[..cut], |l| got.push(l.to_owned()));
            lines.take(&text[cut..], |l| got.push(l.to_owned()));
            lines.end(|l| got.push(l.to_owned()));
            assert_eq!(got, ["one", "two", "", "three"], "cut at {cut}");
        }
    }

    #[test]
    fn a_line_without_end_does_not_grow_memory() {
        let (mut lines, mut longest) = (Lines::default(), 0);
        for _ in 0..100 {
            lines.take(&[b'x'; 10_000], |_| {});
        }
        lines.take(b"\nnext\n", |l| longest = longest.max(l.len()));
        assert_eq!(longest, MAX_LINE);
    }
}
