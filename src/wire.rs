//! What the runner and the agent on a host say to each other: one JSON object a line, down and up.
//!
//! Up-lines carry a prefix with a random word chosen by the runner, so that nothing that a login shell, a motd or a
//! library prints can be taken for one. Every process that was started ends in exactly one [`Up::End`]: exit codes
//! are never guessed from those of a shell or of ssh. Plain data; how bytes travel is the transport's matter.
//!
//! Every line has a number: messages count from 1 in either direction, so that after lost contact each side sends again
//! what the other has not seen, and takes nothing twice. Lines about the contact itself have the number 0 and may be
//! lost.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, de::Error as _};

/// The version of this protocol; both sides must have the same.
pub const PROTOCOL: u32 = 2;

/// The longest line that either side accepts, in bytes.
pub const MAX_LINE: usize = 1 << 20;

/// The largest piece of output or of a file in one message, in bytes.
pub const CHUNK: usize = 64 << 10;

/// Runner to agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Down {
    /// The first line.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The word that marks every line up.
        mark: String,
        /// The run's identity; what an earlier agent of this run left behind is ended.
        run: String,
        /// A name for this endpoint's folder.
        place: String,
        /// How long the agent works on without hearing from the runner, in seconds.
        lease: f64,
        /// Seconds between TERM and KILL.
        grace: f64,
        /// How many CPU cores tasks may use; `None`: all.
        cpus: Option<u32>,
        /// The folder under which the run's folder is made; `None`: the host's folder for temporary files.
        workdir: Option<String>,
        /// Whether an earlier agent of this run may have been here: what it left behind is then looked for.
        again: bool,
    },
    /// A task begins: its folder is made.
    Begin {
        /// The task's identity, for the environment of what it starts.
        task: String,
    },
    /// Starts a process.
    Spawn(Box<Spawn>),
    /// Ends a process and its group: TERM, then KILL.
    Kill {
        /// Which.
        id: u32,
    },
    /// A piece of a file for the task's folder.
    Put {
        /// Its name, relative to the task's folder.
        path: String,
        /// The next bytes.
        data: Blob,
        /// Whether it may be executed.
        executable: bool,
        /// Whether this was the last piece.
        last: bool,
    },
    /// Asks for a file, or for all files of a folder.
    Get {
        /// Its name, relative to the folder that the task's command ran in.
        path: String,
        /// That folder; `None`: the task's own.
        dir: Option<String>,
        /// No more bytes than this.
        limit: u64,
    },
    /// The task is over: whatever it started is ended, its folder removed.
    Finish,
    /// The runner is there, and has taken the messages up to this number. About the contact.
    Renew {
        /// The last message that it took.
        seen: u64,
    },
    /// The first line of a new connection to an agent that is already at work. About the contact.
    Attach {
        /// The word of the hello.
        mark: String,
        /// The last message that the runner took.
        seen: u64,
    },
    /// Asks for the clocks. About the contact.
    Ping {
        /// Comes back.
        id: u32,
    },
    /// All is done: clean up and exit.
    Bye,
}

/// A process to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spawn {
    /// Names it in later messages.
    pub id: u32,
    /// What to start.
    pub program: Program,
    /// Environment beside the agent's own.
    pub env: BTreeMap<String, String>,
    /// The folder to run in; `None`: the task's own.
    pub dir: Option<String>,
    /// What it reads; its input is then closed. `None`: nothing to read.
    pub stdin: Option<String>,
    /// A command that undoes what ending the process does not, such as the removal of a container.
    pub undo: Option<Vec<String>>,
    /// Seconds to wait before it is started; it never is if the task ends before.
    pub after: Option<f64>,
}

/// What to start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Program {
    /// One of the probes in the agent's own binary; its options stand on its input.
    Probe(String),
    /// A program and its arguments.
    Argv(Vec<String>),
    /// A line for `sh -c`.
    Shell(String),
}

/// Agent to runner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Up {
    /// The first line.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The version of planrun.
        version: String,
        /// Tells one start of the machine from another; empty where it cannot be read.
        boot_id: String,
        /// The run's folder on the host.
        folder: String,
        /// Logical CPUs that tasks may use.
        cpus: u32,
        /// Processes of an earlier agent of this run that were ended.
        reaped: u32,
    },
    /// The task's folder is there.
    Begun {
        /// Its path on the host.
        folder: String,
    },
    /// A process said something.
    Output {
        /// Which.
        id: u32,
        /// Where.
        stream: Stream,
        /// Seconds since the agent started, by the host's monotonic clock, when it was read.
        at: f64,
        /// The bytes.
        data: Blob,
    },
    /// A process ended; nothing of it follows.
    End {
        /// Which.
        id: u32,
        /// How.
        status: Status,
        /// Seconds that it ran, by the host's monotonic clock.
        seconds: f64,
    },
    /// A file was written.
    Stored {
        /// Its name as given.
        path: String,
    },
    /// A piece of a file that was asked for.
    File {
        /// Its name, relative to the folder that was asked for.
        path: String,
        /// The next bytes.
        data: Blob,
        /// Whether this was the last piece of it.
        last: bool,
    },
    /// All that was asked for was sent.
    Sent {
        /// Files left out because of the limit or because they could not be read.
        left_out: Vec<String>,
    },
    /// The task is cleaned up.
    Finished {
        /// Processes that were still there and were ended.
        ended: u32,
        /// Processes that could not be ended.
        stuck: Vec<u32>,
    },
    /// The agent has taken the messages up to this number. About the contact.
    Seen {
        /// The last message that it took.
        seen: u64,
    },
    /// The answer to `attach`: what the runner has not taken follows. About the contact.
    Attached {
        /// The last message that the agent took.
        seen: u64,
    },
    /// The answer to `ping`. About the contact.
    Pong {
        /// As asked.
        id: u32,
        /// The host's wall clock, in seconds since 1970.
        wall: f64,
    },
    /// The agent could not do what it was told.
    Trouble {
        /// The process it is about, if any.
        id: Option<u32>,
        /// Whether it is about the disk.
        disk: bool,
        /// In words.
        text: String,
    },
}

/// Where output comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// By itself, with a code.
    Exited(i32),
    /// By a signal; `oom` when the kernel's record of the control group says that it ended one for want of memory.
    Signalled {
        /// The signal's number.
        signal: i32,
        /// Whether memory ran out.
        oom: bool,
    },
    /// It never started.
    NotStarted {
        /// Why, in words.
        reason: String,
        /// Whether the program is not there.
        missing: bool,
    },
}

/// Bytes in JSON: as text where they are UTF-8, else one character below U+0100 for each byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob(pub Vec<u8>);

impl Serialize for Blob {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => s.serialize_str(text),
            Err(_) => s.serialize_newtype_variant(
                "Blob",
                0,
                "bytes",
                &self.0.iter().map(|b| char::from(*b)).collect::<String>(),
            ),
        }
    }
}

impl<'de> Deserialize<'de> for Blob {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct BlobVisitor;
        impl<'de> serde::de::Visitor<'de> for BlobVisitor {
            type Value = Blob;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("text, or bytes as characters")
            }
            fn visit_str<E>(self, s: &str) -> Result<Blob, E> {
                Ok(Blob(s.as_bytes().to_vec()))
            }
            fn visit_string<E>(self, s: String) -> Result<Blob, E> {
                Ok(Blob(s.into_bytes()))
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Blob, A::Error> {
                let Some((key, text)) = map.next_entry::<String, String>()? else {
                    return Err(A::Error::custom("an empty blob"));
                };
                let bytes: Option<Vec<u8>> = text.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
                match bytes {
                    Some(bytes) if key == "bytes" => Ok(Blob(bytes)),
                    _ => Err(A::Error::custom("bytes above 255")),
                }
            }
        }
        d.deserialize_any(BlobVisitor)
    }
}

/// What stands before every line up: a record separator, which text does not hold, and the mark.
pub fn prefix(mark: &str) -> String {
    format!("\u{1e}{mark} ")
}

/// A line: the number, a blank, the message, the end of the line.
///
/// # Errors
/// When the message is no JSON, which none of ours is.
pub fn line(number: u64, message: &impl Serialize) -> Result<String, serde_json::Error> {
    Ok(format!("{number} {}\n", serde_json::to_string(message)?))
}

/// The number and the message of a line.
///
/// # Errors
/// When it is no such line.
pub fn parse<'a, T: Deserialize<'a>>(line: &'a [u8]) -> Result<(u64, T), serde_json::Error> {
    let blank = line.iter().position(|b| *b == b' ').unwrap_or(0);
    let number = std::str::from_utf8(&line[..blank]).ok().and_then(|n| n.parse().ok());
    let number = number.ok_or_else(|| serde_json::Error::custom("a line without a number"))?;
    Ok((number, serde_json::from_slice(&line[blank..])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_bytes_come_back() {
        for bytes in [b"plain \x1b[0m text\n".to_vec(), (0..=255).collect(), vec![0xff, 0xfe, b'\n']] {
            let line = serde_json::to_string(&Blob(bytes.clone())).unwrap();
            assert!(!line.contains('\n'));
            assert_eq!(serde_json::from_str::<Blob>(&line).unwrap().0, bytes);
        }
    }

    #[test]
    fn a_message_reads_back() {
        let up = Up::End { id: 3, status: Status::Signalled { signal: 9, oom: false }, seconds: 1.5 };
        assert_eq!(serde_json::from_str::<Up>(&serde_json::to_string(&up).unwrap()).unwrap(), up);
        assert_eq!(parse::<Up>(line(7, &up).unwrap().as_bytes()).unwrap(), (7, up));
        assert!(parse::<Up>(b"{\"sent\":{\"left_out\":[]}}").is_err(), "a line without a number");
        let bad = r#"{"output":{"id":1,"stream":"out","at":0,"data":{"bytes":"Ā"}}}"#;
        assert!(serde_json::from_str::<Up>(bad).is_err(), "a byte above 255");
    }
}
