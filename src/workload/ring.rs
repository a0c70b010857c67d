//! The ring of ranks: the mean of their gradients, and the check that they agree.
//!
//! Unix sockets in a private directory carry the bytes; who starts the ranks is in `launch`.
//! Invariant: every element is summed once, in an order that only its position decides, and the
//! sum is copied to all ranks, so that they stay bit-identical.

use std::fs;
use std::io::{self, Read, Write};
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Bytes in one write. Both neighbours write a piece, then read one; a piece therefore has to fit
/// into a socket's buffer, or all would wait for each other.
const PIECE: usize = 16 * 1024;
const FLOAT: usize = size_of::<f32>();

/// This rank's place among its neighbours.
#[derive(Debug)]
pub(super) struct Ring {
    rank: usize,
    world: usize,
    // None when the world is this rank alone
    links: Option<Links>,
}

#[derive(Debug)]
struct Links {
    next: UnixStream,
    previous: UnixStream,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

impl Ring {
    /// Meets the neighbours in `directory`, waiting for them at most `patience`.
    ///
    /// Each rank removes its own socket once it is met, and the last one the directory.
    pub(super) fn join(directory: &Path, rank: usize, world: usize, patience: Duration) -> io::Result<Self> {
        if world == 1 {
            return Ok(Self { rank, world, links: None });
        }
        let deadline = Instant::now() + patience;
        let own = socket(directory, rank);
        let listener = UnixListener::bind(&own)?;
        listener.set_nonblocking(true)?;
        let next = retry(deadline, || UnixStream::connect(socket(directory, (rank + 1) % world)))?;
        let (previous, _) = retry(deadline, || listener.accept())?;
        previous.set_nonblocking(false)?;
        // Another rank may still need the directory, so only an empty one goes.
        fs::remove_file(&own)?;
        let _ = fs::remove_dir(directory);
        let links = Links { next, previous, outgoing: vec![0; PIECE], incoming: vec![0; PIECE] };
        let mut ring = Self { rank, world, links: Some(links) };
        let before = (rank + world - 1) % world;
        if ring.pass(rank as u64)? != before as u64 {
            return Err(io::Error::other("the ring of ranks is tangled"));
        }
        Ok(ring)
    }

    /// Replaces `values` by their mean over all ranks.
    ///
    /// # Formula
    ///
    /// Reduce-scatter, then all-gather, each in `world − 1` rounds over `world` chunks, so that a
    /// rank sends `2 (world − 1) / world` times the bytes of `values`.
    ///
    /// # Source
    ///
    /// Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations"
    /// (J. Parallel Distrib. Comput. 69, 2009).
    pub(super) fn mean(&mut self, values: &mut [f32]) -> io::Result<()> {
        let (rank, world, length) = (self.rank, self.world, values.len());
        let Some(links) = &mut self.links else { return Ok(()) };
        // Adding the world keeps the index of a chunk from going below 0.
        let chunk = |index: usize| {
            let index = index % world;
            index * length / world..(index + 1) * length / world
        };
        for round in 0..world - 1 {
            let (give, take) = (chunk(world + rank - round), chunk(2 * world + rank - round - 1));
            links.exchange(values, give, take, |own, received| *own += received)?;
        }
        let scale = 1.0 / world as f32;
        values[chunk(rank + 1)].iter_mut().for_each(|value| *value *= scale);
        for round in 0..world - 1 {
            let (give, take) = (chunk(world + rank + 1 - round), chunk(world + rank - round));
            links.exchange(values, give, take, |own, received| *own = received)?;
        }
        Ok(())
    }

    /// Tells whether the rank before this one has the same `digest`.
    ///
    /// When every rank says yes, all digests are equal.
    pub(super) fn agrees(&mut self, digest: u64) -> io::Result<bool> {
        Ok(self.pass(digest)? == digest)
    }

    /// Sends a number to the next rank and returns the one from the rank before.
    fn pass(&mut self, number: u64) -> io::Result<u64> {
        let Some(links) = &mut self.links else { return Ok(number) };
        links.next.write_all(&number.to_le_bytes())?;
        let mut bytes = [0; 8];
        links.previous.read_exact(&mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }
}

impl Links {
    /// Sends one range to the next rank while merging the other from the rank before.
    fn exchange(
        &mut self,
        values: &mut [f32],
        mut give: Range<usize>,
        mut take: Range<usize>,
        merge: impl Fn(&mut f32, f32),
    ) -> io::Result<()> {
        while !(give.is_empty() && take.is_empty()) {
            let sent = &values[give.start..give.end.min(give.start + PIECE / FLOAT)];
            let bytes = &mut self.outgoing[..sent.len() * FLOAT];
            for (bytes, value) in bytes.as_chunks_mut::<FLOAT>().0.iter_mut().zip(sent) {
                *bytes = value.to_le_bytes();
            }
            self.next.write_all(bytes)?;
            give.start += sent.len();
            let end = take.end.min(take.start + PIECE / FLOAT);
            let taken = &mut values[take.start..end];
            let bytes = &mut self.incoming[..taken.len() * FLOAT];
            self.previous.read_exact(bytes)?;
            for (value, bytes) in taken.iter_mut().zip(bytes.as_chunks::<FLOAT>().0) {
                merge(value, f32::from_le_bytes(*bytes));
            }
            take.start = end;
        }
        Ok(())
    }
}

/// Where a rank listens.
fn socket(directory: &Path, rank: usize) -> PathBuf {
    directory.join(rank.to_string())
}

/// Tries until it works, the deadline passes, or an error says that waiting is no use.
fn retry<T>(deadline: Instant, mut attempt: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        let error = match attempt() {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
        let waits = matches!(
            error.kind(),
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused | io::ErrorKind::WouldBlock
        );
        if !waits {
            return Err(error);
        }
        if Instant::now() >= deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a neighbouring rank never came"));
        }
        thread::sleep(Duration::from_millis(2));
    }
}
