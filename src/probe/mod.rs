//! Programs that run on the host under test: each is one short-lived child process.
//!
//! Here: the list of probes, how one is started, and what can go wrong. Not here: who starts them
//! (the agent), what their lines mean for a stage, and any judgement beyond hardware truth
//! ([`checks`]).
//!
//! Invariant: a probe says what it saw, in JSON lines, or that it could not see it; it never
//! turns "could not look" into a value.

use std::io::{self, BufRead, Read as _, Write};

use serde_json::Value;

mod child;
mod text;

pub mod checks;
mod clock;
pub mod facts;
pub mod lines;
pub mod root;
pub mod storage;
pub mod telemetry;

/// Exit code of a probe that read other data than it wrote.
pub const EXIT_WRONG_DATA: i32 = 65;
/// Exit code of a probe that lacks something on the host.
pub const EXIT_NOT_THERE: i32 = 69;
/// Exit code of a probe that may not or cannot use the disk.
pub const EXIT_DISK: i32 = 73;
/// Exit code of a probe that failed otherwise.
pub const EXIT_FAILED: i32 = 70;

/// The longest spec that is read from stdin, in bytes.
const MAX_SPEC: u64 = 1 << 20;

/// One kind of probe: its name, what it is for, and its entry point.
#[derive(Debug, Clone, Copy)]
pub struct Probe {
    /// The name by which the agent and people start it.
    pub kind: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    run: fn(Value, &mut dyn Write) -> Result<(), ProbeError>,
}

/// Every probe that this binary can run; a new one is a file and a line here.
pub const PROBES: &[Probe] = &[
    Probe { kind: "facts", about: "host facts that need no accelerator", run: facts::run },
    Probe { kind: "clock", about: "the wall clock beside the monotonic one, each second", run: clock::run },
    Probe { kind: "storage", about: "bandwidth, rates and latencies of a folder", run: storage::run },
    Probe { kind: "telemetry", about: "load of the host, until stdin closes", run: telemetry::run },
];

/// Runs the probe `kind` with its JSON `spec` and writes its JSON lines to `out`.
///
/// The spec is the first line of stdin (see [`read_spec`]); a probe that runs until told to stop
/// takes the end of stdin as that sign.
///
/// # Errors
/// An unknown kind (the message lists the kinds), a spec that does not fit, a closed `out`, or
/// what the probe itself ran into.
pub fn main(kind: &str, spec: Value, out: &mut dyn Write) -> Result<(), ProbeError> {
    let probe = PROBES.iter().find(|probe| probe.kind == kind).ok_or_else(|| ProbeError::UnknownKind {
        kind: text::clean(kind.as_bytes()),
        kinds: PROBES.iter().map(|probe| probe.kind).collect::<Vec<_>>().join(", "),
    })?;
    (probe.run)(spec, out)
}

/// Reads a probe's spec: the first line of `input`, which stays open behind it.
///
/// An empty line or an empty input is the empty spec.
///
/// # Errors
/// A line that is no JSON, or is longer than 1 MiB.
pub fn read_spec(input: &mut dyn BufRead) -> Result<Value, ProbeError> {
    let mut line = Vec::new();
    input
        .take(MAX_SPEC)
        .read_until(b'\n', &mut line)
        .map_err(|source| ProbeError::Io { what: "read the spec from stdin".into(), source })?;
    if line.iter().all(u8::is_ascii_whitespace) {
        return Ok(Value::Null);
    }
    serde_json::from_slice(&line).map_err(|source| ProbeError::Spec { source })
}

/// Turns a spec into a probe's own type; no spec at all means every default.
fn parse_spec<T: serde::de::DeserializeOwned + Default>(spec: Value) -> Result<T, ProbeError> {
    if spec.is_null() {
        return Ok(T::default());
    }
    serde_json::from_value(spec).map_err(|source| ProbeError::Spec { source })
}

/// Why a probe gave no result, or an incomplete one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// No probe has this name.
    #[error("start probe `{kind}`: no such kind; there are: {kinds}")]
    UnknownKind {
        /// The name that was asked for.
        kind: String,
        /// The names that exist, separated by commas.
        kinds: String,
    },
    /// The spec is no JSON or does not fit the probe.
    #[error("read the probe's spec")]
    Spec {
        /// What does not fit.
        source: serde_json::Error,
    },
    /// The spec is well formed but asks for something impossible.
    #[error("use the probe's spec: {reason}")]
    BadSpec {
        /// What is wrong with it.
        reason: String,
    },
    /// Nobody reads the output any more, or it cannot be written.
    #[error("write to stdout")]
    Output {
        /// What the system said.
        source: io::Error,
    },
    /// The probe refused to start because it would harm the host.
    #[error("{reason}")]
    Refused {
        /// What was missing, with numbers.
        reason: String,
    },
    /// Data read back differs from the data written.
    #[error("read back what was written: {reason}")]
    WrongData {
        /// Where, and how it differs.
        reason: String,
    },
    /// A system call failed.
    #[error("{what}")]
    Io {
        /// What was being done, with the path.
        what: String,
        /// What the system said.
        source: io::Error,
    },
}

impl ProbeError {
    /// A word for the cause, from a fixed list, for the task's outcome.
    pub fn cause(&self) -> &'static str {
        match self {
            Self::UnknownKind { .. } => "unknown_kind",
            Self::Spec { .. } | Self::BadSpec { .. } => "bad_spec",
            Self::Output { .. } => "output_closed",
            Self::Refused { .. } => "refused",
            Self::WrongData { .. } => "wrong_data",
            Self::Io { source, .. } => match source.kind() {
                io::ErrorKind::StorageFull => "disk_full",
                io::ErrorKind::QuotaExceeded => "quota_exceeded",
                io::ErrorKind::ReadOnlyFilesystem => "read_only",
                io::ErrorKind::PermissionDenied => "no_permission",
                io::ErrorKind::NotFound => "not_found",
                _ => "io_error",
            },
        }
    }

    /// The exit code of the process that runs the probe.
    pub fn exit_code(&self) -> i32 {
        match self.cause() {
            "wrong_data" => EXIT_WRONG_DATA,
            "refused" | "disk_full" | "quota_exceeded" | "read_only" | "no_permission" => EXIT_DISK,
            "not_found" => EXIT_NOT_THERE,
            _ => EXIT_FAILED,
        }
    }

    /// What a person can do about it, where that is known.
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self.cause() {
            "disk_full" => "the file system ran full: choose another path or a smaller size",
            "quota_exceeded" => "the user's disk quota is used up: choose another path or a smaller size",
            "read_only" => "the file system is mounted read-only: choose a writable path",
            "no_permission" => "the login user may not write there: choose a path that it owns",
            "not_found" => "the path does not exist on this host: create it or name another",
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kind_lists_the_kinds_and_keeps_escapes_out() {
        let error = main("fac\x1b[2Jts", Value::Null, &mut Vec::new()).unwrap_err();
        assert_eq!(error.cause(), "unknown_kind");
        let message = error.to_string();
        assert!(message.contains("facts"), "{message}");
        assert!(!message.contains('\x1b'), "{message:?}");
    }

    #[test]
    fn spec_is_the_first_line_and_the_rest_stays() {
        let mut input = io::Cursor::new(b"{\"a\": 1}\nrest".to_vec());
        assert_eq!(read_spec(&mut input).unwrap(), serde_json::json!({"a": 1}));
        let mut rest = String::new();
        io::Read::read_to_string(&mut input, &mut rest).unwrap();
        assert_eq!(rest, "rest");
        assert_eq!(read_spec(&mut io::Cursor::new(b"")).unwrap(), Value::Null);
        assert_eq!(read_spec(&mut io::Cursor::new(b"{oops\n")).unwrap_err().cause(), "bad_spec");
    }

    #[test]
    fn causes_name_what_the_disk_said() {
        let of =
            |code| ProbeError::Io { what: String::new(), source: io::Error::from_raw_os_error(code) }.cause();
        assert_eq!(of(28), "disk_full");
        assert_eq!(of(122), "quota_exceeded");
        assert_eq!(of(30), "read_only");
        assert_eq!(of(13), "no_permission");
        assert_eq!(of(5), "io_error");
    }
}
