//! How planrun ends: exit codes, and how an error is shown to a person.

use std::fmt::Write as _;

use crate::findings::visible;

/// The exit codes of planrun. Where several apply the worst wins: 5, 4, 3, 1.
pub struct Exit;

impl Exit {
    /// All that was planned ran, every `expect` met.
    pub const OK: u8 = 0;
    /// An `expect` failed, or what `--fail-on` names.
    pub const EXPECT: u8 = 1;
    /// The plan or the command line is wrong.
    pub const USAGE: u8 = 2;
    /// Something planned could not be measured, or nothing ran.
    pub const NOT_MEASURED: u8 = 3;
    /// The journal is locked, damaged or of another plan.
    pub const JOURNAL: u8 = 4;
    /// Something may still be billing.
    pub const BILLING: u8 = 5;
    /// A bug.
    pub const BUG: u8 = 70;
    /// What is added to a signal's number when the run was interrupted by it.
    pub const SIGNAL: u8 = 128;
}

/// The exit codes as `--help` shows them.
pub const EXIT_CODES: &str = "\
Exit codes:
  0    all that was planned ran, every `expect` met
  1    an `expect` failed, or what `--fail-on` names
  2    the plan or the command line is wrong
  3    something planned could not be measured (machine, network, tool), or nothing ran
  4    the journal is locked, damaged or of another plan
  5    something may still be billing
  70   a bug
  129, 130, 143   interrupted (HUP, INT, TERM); `planrun resume DIR` goes on
The worst wins: 5, 4, 3, 1. A candidate that fails a gate loses, the run does not; a stage that a platform
does not offer lowers coverage, not the exit code.";

/// An error that ends a command.
#[derive(Debug)]
pub struct Error {
    /// The exit code.
    pub code: u8,
    message: String,
    causes: Vec<String>,
    hint: Option<String>,
}

impl Error {
    /// An error in words: a fragment that fits "failed to …", or a sentence.
    pub fn new(code: u8, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), causes: Vec::new(), hint: None }
    }

    /// An error with the chain of what caused it.
    pub fn caused(code: u8, message: impl Into<String>, cause: &dyn std::error::Error) -> Self {
        let chain = std::iter::successors(Some(cause), |e| e.source());
        Self { causes: chain.map(ToString::to_string).collect(), ..Self::new(code, message) }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The lines that a person sees.
    pub fn render(&self) -> String {
        let mut text = format!("error: {}\n", shown(&self.message));
        for cause in &self.causes {
            let _ = writeln!(text, "  caused by: {}", shown(cause));
        }
        if let Some(hint) = &self.hint {
            let _ = writeln!(text, "  hint: {}", shown(hint));
        }
        text
    }
}

/// One line of a length that can be read, whatever a name or a value in it holds.
pub fn shown(text: &str) -> String {
    const MOST: usize = 2000;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", visible(&text[..end])),
        None => visible(text).into_owned(),
    }
}
