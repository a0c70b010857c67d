//! Reading a journal, line by line, in bounded memory.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use serde::Deserialize;

use super::{JournalError, unseal};
use crate::record::{Record, SCHEMA};

/// What stands at the end of a journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// Lines that count.
    pub lines: u64,
    /// Bytes of the lines that count.
    pub bytes: u64,
    /// Bytes after them that do not: a line that was being written when the machine or the process died.
    pub torn: u64,
}

/// Reads every line that counts, in order.
///
/// # Errors
/// When the file cannot be read, is damaged before its end, or was written by a newer planrun.
pub fn read(path: &Path, mut each: impl FnMut(Record)) -> Result<Tail, JournalError> {
    let io = |action| move |source| JournalError::Io { action, path: path.to_owned(), source };
    let file = open_regular(path).map_err(io("open"))?;
    let mut file = BufReader::with_capacity(1 << 18, file);
    let mut tail = Tail { lines: 0, bytes: 0, torn: 0 };
    let mut bad: Option<String> = None;
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = file.read_until(b'\n', &mut line).map_err(io("read"))? as u64;
        if length == 0 {
            break;
        }
        let parsed = parse(&line, tail.lines);
        match (parsed, &bad) {
            (Err(Line::Newer(found)), _) => {
                return Err(JournalError::Newer { path: path.to_owned(), found, known: SCHEMA });
            }
            (Ok(record), None) => {
                tail.lines += 1;
                tail.bytes += length;
                each(record);
            }
            // A whole line behind one that does not count: the file was not torn, it was damaged.
            (Ok(_), Some(what)) => return Err(damaged(path, tail.lines, what)),
            // Written as it is, and not what must stand here: whatever is wrong, it is no torn write.
            (Err(Line::Wrong(wrong)), what) => {
                return Err(damaged(path, tail.lines, what.as_ref().unwrap_or(&wrong)));
            }
            (Err(Line::Bad(what)), _) => {
                tail.torn += length;
                bad.get_or_insert(what);
            }
        }
    }
    if tail.lines == 0 {
        return Err(JournalError::Empty(path.to_owned()));
    }
    Ok(tail)
}

/// Opens a file that has an end. A pipe would wait for somebody who writes, and a device may go on for ever.
///
/// # Errors
/// When it cannot be opened or is no regular file.
pub fn open_regular(path: &Path) -> std::io::Result<File> {
    // Without this opening a pipe would wait already; it means nothing to a regular file.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(std::io::Error::other("it is no regular file")) }
}

fn damaged(path: &Path, lines: u64, what: &str) -> JournalError {
    JournalError::Damaged { path: path.to_owned(), line: lines + 1, what: what.to_owned() }
}

enum Line {
    /// It may be the rest of a write that was cut short.
    Bad(String),
    /// Its checksum is right, and it cannot stand here.
    Wrong(String),
    Newer(u32),
}

/// The little that every version of a first line must have.
#[derive(Deserialize)]
struct FirstLine {
    body: FirstBody,
}

#[derive(Deserialize)]
struct FirstBody {
    run_started: FirstSchema,
}

#[derive(Deserialize)]
struct FirstSchema {
    schema: u32,
}

fn parse(line: &[u8], seq: u64) -> Result<Record, Line> {
    let Some(line) = line.strip_suffix(b"\n") else {
        return Err(Line::Bad("it has no end".to_owned()));
    };
    let Some(object) = unseal(line) else {
        return Err(Line::Bad("its checksum is wrong".to_owned()));
    };
    let mut object = object.to_vec();
    object.push(b'}');
    if seq == 0 {
        match serde_json::from_slice::<FirstLine>(&object) {
            Ok(first) if first.body.run_started.schema > SCHEMA => {
                return Err(Line::Newer(first.body.run_started.schema));
            }
            Ok(_) => {}
            Err(_) => return Err(Line::Wrong("the run does not begin here".to_owned())),
        }
    }
    let record: Record =
        serde_json::from_slice(&object).map_err(|e| Line::Wrong(format!("it cannot be read: {e}")))?;
    if record.seq == seq {
        Ok(record)
    } else {
        Err(Line::Wrong(format!("line {} stands in its place", record.seq + 1)))
    }
}
