//! Appending to a journal.

use std::{
    fs::{File, OpenOptions},
    io::{Seek, SeekFrom, Write},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};

use super::{JournalError, Tail, read, seal};
use crate::{
    measure::Finite,
    record::{Body, Record, RunStarted},
};

/// How long samples may wait for the disk.
const SYNC_EVERY: Duration = Duration::from_secs(1);

/// A journal that this process may append to.
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
    seq: u64,
    /// Bytes of whole lines: after a failed write the file is cut back to here.
    length: u64,
    begun: Instant,
    synced: Instant,
}

/// A journal that was taken up again.
#[derive(Debug)]
pub struct Resumed {
    /// The journal, ready for more.
    pub journal: Journal,
    /// What was dropped at its end.
    pub tail: Tail,
}

impl Journal {
    /// Begins a journal in an existing folder, with its first line and what is settled before anything runs. It has
    /// its name once all of that is on disk: a crash leaves no journal, or one that says what the user left out.
    ///
    /// # Errors
    /// When the folder has one already, or cannot be written.
    pub fn create(dir: &Path, first: RunStarted, settled: Vec<Body>) -> Result<Self, JournalError> {
        let path = dir.join(super::FILE);
        if path.symlink_metadata().is_ok() {
            return Err(JournalError::Exists(path));
        }
        let io = |action| {
            let path = path.clone();
            move |source| JournalError::Io { action, path, source }
        };
        let draft = tempfile::Builder::new()
            .prefix(".journal-")
            .append(true)
            .permissions(std::fs::Permissions::from_mode(0o644))
            .tempfile_in(dir)
            .map_err(io("create"))?;
        let file = draft.as_file().try_clone().map_err(io("create"))?;
        let mut journal = Self::over(file, path.clone(), 0, 0)?;
        journal.write(Body::RunStarted(Box::new(first)))?;
        for body in settled {
            journal.write(body)?;
        }
        journal.sync()?;
        draft.persist_noclobber(&path).map_err(|e| match e.error.kind() {
            std::io::ErrorKind::AlreadyExists => JournalError::Exists(path.clone()),
            _ => JournalError::Io { action: "create", path: path.clone(), source: e.error },
        })?;
        // The name in the folder must survive a crash, too.
        if let Ok(folder) = File::open(dir) {
            let _ = folder.sync_all();
        }
        Ok(journal)
    }

    /// Takes up the journal of a run that stopped, and hands over its records one by one: there may be more than fit
    /// into memory. A torn tail is cut off.
    ///
    /// # Errors
    /// When it is in use, damaged, of a newer planrun, or cannot be read or written.
    pub fn resume(dir: &Path, each: impl FnMut(Record)) -> Result<Resumed, JournalError> {
        let path = dir.join(super::FILE);
        let io = |action| {
            let path = path.clone();
            move |source| JournalError::Io { action, path, source }
        };
        let file = OpenOptions::new().append(true).open(&path).map_err(io("open"))?;
        let mut journal = Self::over(file, path.clone(), 0, 0)?;
        let tail = read(&path, each)?;
        if tail.torn > 0 {
            journal.file.set_len(tail.bytes).map_err(io("shorten"))?;
            journal.file.sync_data().map_err(io("sync"))?;
        }
        (journal.seq, journal.length) = (tail.lines, tail.bytes);
        Ok(Resumed { journal, tail })
    }

    fn over(file: File, path: PathBuf, seq: u64, length: u64) -> Result<Self, JournalError> {
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(JournalError::Locked(path)),
            Err(e) => return Err(JournalError::Io { action: "lock", path, source: e.into() }),
        }
        let now = Instant::now();
        Ok(Self { file, path, seq, length, begun: now, synced: now })
    }

    /// Appends lines, and waits for the disk once. Otherwise as [`Self::append`].
    ///
    /// # Errors
    /// When a line cannot be written, or the disk refuses.
    pub fn append_all(&mut self, bodies: impl IntoIterator<Item = Body>) -> Result<(), JournalError> {
        let mut due = self.synced.elapsed() >= SYNC_EVERY;
        for body in bodies {
            due |= is_edge(&body);
            self.write(body)?;
        }
        if due { self.sync() } else { Ok(()) }
    }

    /// Appends one line. The ends of runs and tasks are on disk when this returns; the rest at most a second later.
    ///
    /// # Errors
    /// When the line cannot be written; the journal is then as it was before.
    pub fn append(&mut self, body: Body) -> Result<(), JournalError> {
        self.append_all([body])
    }

    fn write(&mut self, body: Body) -> Result<(), JournalError> {
        let since = Finite::new(self.begun.elapsed().as_secs_f64()).unwrap_or_default();
        let record = Record { seq: self.seq, at: now(), since, body };
        let mut line = serde_json::to_string(&record).map_err(|e| self.io("write", e.into()))?;
        seal(&mut line);
        if let Err(e) = self.file.write_all(line.as_bytes()) {
            // A full disk may have taken half a line: cut it off, so that what follows does not count as damage.
            let _ = self.file.set_len(self.length);
            let _ = self.file.seek(SeekFrom::End(0));
            return Err(self.io("write", e));
        }
        self.seq += 1;
        self.length += line.len() as u64;
        Ok(())
    }

    /// Waits until all is on disk.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.synced = Instant::now();
        self.file.sync_data().map_err(|e| self.io("sync", e))
    }

    fn io(&self, action: &'static str, source: std::io::Error) -> JournalError {
        JournalError::Io { action, path: self.path.clone(), source }
    }
}

/// Whether a line is to be on disk before anybody acts on it.
fn is_edge(body: &Body) -> bool {
    matches!(
        body,
        Body::TaskStarted { .. } | Body::TaskEnded { .. } | Body::RunEnded { .. } | Body::RunResumed { .. }
    )
}

/// The wall clock in UTC to the millisecond.
fn now() -> String {
    format!("{:.3}", jiff::Timestamp::now())
}
