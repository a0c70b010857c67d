//! The phases of a storage run on one big file, and one on many small ones.
//!
//! Here: who reads or writes what, for how long, and the check of everything read. Not here: what
//! is printed about it.
//!
//! Invariant: only blocks that were written are read, and each is held against its last pass.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

use super::StorageSpec;
use super::data::{Buffer, Numbers, Pattern, RANDOM_PASS};
use super::series::Op;
use super::target::{Target, io_error};
use crate::probe::ProbeError;

/// The most operations that are kept of one phase; a faster device ends it earlier.
const MAX_OPS: usize = 2_000_000;

/// What a phase did.
#[derive(Debug, Default)]
pub(super) struct Phase {
    /// Every operation of all jobs.
    pub(super) ops: Vec<Op>,
    /// How long it took, without a final flush, in seconds.
    pub(super) seconds: f64,
    /// How long the final flush took, in seconds.
    pub(super) fsync_seconds: f64,
}

impl Phase {
    pub(super) fn bytes(&self) -> f64 {
        self.ops.iter().map(|op| op.bytes).sum()
    }
}

/// Blocks `first..end` of the file, of which one job wrote some.
#[derive(Debug, Clone, Copy)]
struct Part {
    first: u64,
    end: u64,
    written: u64,
}

impl Part {
    /// The pass in which a block of this part was written last; 0 = never.
    fn pass(self, block: u64) -> u64 {
        let blocks = self.end - self.first;
        self.written / blocks + u64::from(block - self.first < self.written % blocks)
    }

    /// How many of the part's blocks hold data; they are the first ones.
    fn filled(self) -> u64 {
        self.written.min(self.end - self.first)
    }
}

/// A storage run in progress.
#[derive(Debug)]
pub(super) struct Work<'a> {
    spec: &'a StorageSpec,
    target: &'a Target,
    pattern: Pattern,
    parts: Vec<Part>,
}

impl<'a> Work<'a> {
    pub(super) fn new(spec: &'a StorageSpec, target: &'a Target) -> Self {
        let blocks = spec.size_bytes / spec.block_bytes;
        let jobs = u64::from(spec.jobs).min(blocks);
        let parts = (0..jobs)
            .map(|job| Part { first: job * blocks / jobs, end: (job + 1) * blocks / jobs, written: 0 })
            .collect();
        Self { spec, target, pattern: Pattern::new(spec.seed, spec.block_bytes as usize), parts }
    }

    /// Writes the file in order, over and over where the page cache has no part in it.
    pub(super) fn write(&mut self) -> Result<Phase, ProbeError> {
        let file = self.target.open()?;
        if self.parts.len() > 1 {
            // Several writers past the end would wait for each other.
            file.set_len(self.spec.size_bytes).map_err(self.failed("grow"))?;
        }
        let (this, parts) = (&*self, self.parts.clone());
        let phase = this.jobs(parts.len(), |job, limit, start| {
            let file = this.target.open()?;
            let mut writer = this.pattern.writer();
            let (part, mut ops) = (parts[job], Vec::new());
            let blocks = part.end - part.first;
            // Without direct I/O a second pass would only change what still waits to be written.
            let most = if this.target.direct { u64::MAX } else { blocks };
            for count in 0..most {
                if !go_on(start, limit, ops.len(), parts.len()) {
                    break;
                }
                let offset = (part.first + count % blocks) * this.spec.block_bytes;
                let bytes = this.pattern.stamped(
                    &mut writer,
                    offset,
                    this.spec.block_bytes as usize,
                    count / blocks + 1,
                );
                let began = Instant::now();
                file.write_all_at(bytes, offset).map_err(this.failed("write to"))?;
                ops.push(op(began, start.elapsed(), bytes.len()));
            }
            Ok(ops)
        });
        let (mut phase, counts) = phase?;
        let began = Instant::now();
        file.sync_all().map_err(self.failed("flush"))?;
        phase.fsync_seconds = began.elapsed().as_secs_f64();
        for (part, count) in self.parts.iter_mut().zip(counts) {
            part.written = count as u64;
        }
        Ok(phase)
    }

    /// Reads what was written, in order, and checks it.
    pub(super) fn read(&self) -> Result<Phase, ProbeError> {
        self.target.drop_cache()?;
        let jobs = self.parts.len();
        let (phase, _) = self.jobs(jobs, |job, limit, start| {
            let file = self.target.open()?;
            let mut buffer = Buffer::new(self.spec.block_bytes as usize);
            let (part, mut ops) = (self.parts[job], Vec::new());
            // Past the page cache nothing is read ahead, so checking takes no time from reading.
            let mut reading = Duration::ZERO;
            let most = if self.target.direct { u64::MAX } else { part.filled() };
            for count in 0..most {
                let elapsed = if self.target.direct { reading } else { start.elapsed() };
                if part.filled() == 0 || (count > 0 && (elapsed >= limit || ops.len() >= MAX_OPS / jobs)) {
                    break;
                }
                let block = part.first + count % part.filled();
                let offset = block * self.spec.block_bytes;
                let began = Instant::now();
                file.read_exact_at(buffer.get_mut(), offset).map_err(self.failed("read from"))?;
                let took = began.elapsed();
                reading += took;
                self.check(buffer.get(), offset, part.pass(block))?;
                let end = if self.target.direct { reading } else { start.elapsed() };
                ops.push(Op {
                    end: end.as_secs_f64(),
                    seconds: took.as_secs_f64(),
                    bytes: buffer.get().len() as f64,
                });
            }
            Ok(ops)
        })?;
        Ok(phase)
    }

    /// Reads small pieces at random places and checks them.
    pub(super) fn read_random(&self) -> Result<Phase, ProbeError> {
        self.target.drop_cache()?;
        let jobs = self.spec.random_jobs as usize;
        let (phase, _) = self.jobs(jobs, |job, limit, start| {
            let file = self.target.open()?;
            // Reading ahead at random places would only be in the way.
            let _ = fadvise(&file, 0, None, Advice::Random);
            let mut buffer = Buffer::new(self.spec.random_block_bytes as usize);
            let mut places = self.places(job, 0);
            let mut ops = Vec::new();
            while go_on(start, limit, ops.len(), jobs) {
                let Some((offset, pass)) = self.place(&mut places) else { break };
                let began = Instant::now();
                file.read_exact_at(buffer.get_mut(), offset).map_err(self.failed("read from"))?;
                ops.push(op(began, start.elapsed(), buffer.get().len()));
                self.check(buffer.get(), offset, pass)?;
            }
            Ok(ops)
        })?;
        Ok(phase)
    }

    /// Overwrites small pieces at random places, then checks the first thousand of each job.
    pub(super) fn write_random(&self) -> Result<Phase, ProbeError> {
        let jobs = self.spec.random_jobs as usize;
        let (mut phase, counts) = self.jobs(jobs, |job, limit, start| {
            let file = self.target.open()?;
            let mut writer = self.pattern.writer();
            let mut places = self.places(job, 1);
            let mut ops = Vec::new();
            while go_on(start, limit, ops.len(), jobs) {
                let Some((offset, _)) = self.place(&mut places) else { break };
                let bytes = self.pattern.stamped(
                    &mut writer,
                    offset,
                    self.spec.random_block_bytes as usize,
                    RANDOM_PASS,
                );
                let began = Instant::now();
                file.write_all_at(bytes, offset).map_err(self.failed("write to"))?;
                if !self.target.direct {
                    // Else only the memory would be measured.
                    file.sync_data().map_err(self.failed("flush"))?;
                }
                ops.push(op(began, start.elapsed(), bytes.len()));
            }
            Ok(ops)
        })?;
        let file = self.target.open()?;
        let began = Instant::now();
        file.sync_all().map_err(self.failed("flush"))?;
        phase.fsync_seconds = began.elapsed().as_secs_f64();
        self.target.drop_cache()?;
        let mut buffer = Buffer::new(self.spec.random_block_bytes as usize);
        for (job, count) in counts.into_iter().enumerate() {
            let mut places = self.places(job, 1);
            for _ in 0..count.min(1000) {
                let Some((offset, _)) = self.place(&mut places) else { break };
                file.read_exact_at(buffer.get_mut(), offset).map_err(self.failed("read from"))?;
                self.check(buffer.get(), offset, RANDOM_PASS)?;
            }
        }
        Ok(phase)
    }

    /// Makes, reads and removes small files one by one; the rates per second, by operation.
    pub(super) fn small_files(&self) -> Result<Vec<(&'static str, Phase)>, ProbeError> {
        let folder = self.target.small();
        std::fs::create_dir(&folder).map_err(io_error(format!("make {}", folder.display())))?;
        let limit = Duration::from_secs_f64(self.spec.seconds);
        let content = &self.pattern.writer();
        let content = &content.get()[..self.spec.small_file_bytes as usize];
        let path = |number: usize| folder.join(format!("{number:08}"));

        let (mut create, start) = (Phase::default(), Instant::now());
        while create.ops.len() < self.spec.small_files as usize && start.elapsed() < limit {
            let path = path(create.ops.len());
            let began = Instant::now();
            let file = File::create_new(&path).map_err(io_error(format!("make {}", path.display())))?;
            file.write_all_at(content, 0).map_err(io_error(format!("write to {}", path.display())))?;
            file.sync_all().map_err(io_error(format!("flush {}", path.display())))?;
            create.ops.push(op(began, start.elapsed(), content.len()));
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
        }
        create.seconds = start.elapsed().as_secs_f64();
        let count = create.ops.len();

        let (mut read, start) = (Phase::default(), Instant::now());
        for number in 0..count {
            let path = path(number);
            let began = Instant::now();
            let found = std::fs::read(&path).map_err(io_error(format!("read {}", path.display())))?;
            read.ops.push(op(began, start.elapsed(), found.len()));
            if found != content {
                return Err(ProbeError::WrongData { reason: format!("the small file {number} is damaged") });
            }
        }
        read.seconds = start.elapsed().as_secs_f64();

        let (mut delete, start) = (Phase::default(), Instant::now());
        for number in 0..count {
            let path = path(number);
            let began = Instant::now();
            std::fs::remove_file(&path).map_err(io_error(format!("remove {}", path.display())))?;
            delete.ops.push(op(began, start.elapsed(), 0));
        }
        delete.seconds = start.elapsed().as_secs_f64();
        Ok(vec![("create", create), ("read", read), ("delete", delete)])
    }

    /// Runs jobs side by side; the phase lasts as long as the longest of them. Also tells how many
    /// operations each did.
    fn jobs(
        &self,
        count: usize,
        job: impl Fn(usize, Duration, Instant) -> Result<Vec<Op>, ProbeError> + Sync,
    ) -> Result<(Phase, Vec<usize>), ProbeError> {
        let limit = Duration::from_secs_f64(self.spec.seconds);
        let start = Instant::now();
        let results: Vec<_> = std::thread::scope(|scope| {
            let job = &job;
            let threads: Vec<_> = (0..count)
                .map(|index| {
                    std::thread::Builder::new().spawn_scoped(scope, move || job(index, limit, start))
                })
                .collect();
            let joined = threads.into_iter().map(|thread| match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
                Err(source) => Err(ProbeError::Io { what: format!("start {count} threads"), source }),
            });
            joined.collect()
        });
        let (mut phase, mut counts) = (Phase::default(), Vec::new());
        for result in results {
            let ops = result?;
            counts.push(ops.len());
            phase.seconds = ops.last().map_or(phase.seconds, |op| phase.seconds.max(op.end));
            phase.ops.extend(ops);
        }
        Ok((phase, counts))
    }

    /// The sequence of places of a job: the same each time for the same seed.
    fn places(&self, job: usize, phase: u64) -> Numbers {
        Numbers::new(
            self.spec.seed.wrapping_add((2 * job as u64 + phase + 1).wrapping_mul(0x2545_f491_4f6c_dd1d)),
        )
    }

    /// The next place, with the pass in which its block was written; `None` when nothing was.
    fn place(&self, numbers: &mut Numbers) -> Option<(u64, u64)> {
        let filled = |part: &Part| part.filled();
        let mut index = numbers.below(self.parts.iter().map(filled).sum::<u64>().max(1));
        let piece = numbers.below(self.spec.block_bytes / self.spec.random_block_bytes);
        for part in &self.parts {
            if index < part.filled() {
                let block = part.first + index;
                let offset = block * self.spec.block_bytes + piece * self.spec.random_block_bytes;
                return Some((offset, part.pass(block)));
            }
            index -= part.filled();
        }
        None
    }

    fn check(&self, read: &[u8], offset: u64, pass: u64) -> Result<(), ProbeError> {
        self.pattern.verify(read, offset, pass).map_err(|reason| ProbeError::WrongData { reason })
    }

    fn failed(&self, doing: &str) -> impl FnOnce(std::io::Error) -> ProbeError + use<> {
        io_error(format!("{doing} {}", self.target.file().display()))
    }
}

fn go_on(start: Instant, limit: Duration, done: usize, jobs: usize) -> bool {
    // One at least: a device that is slower than the limit is still measured.
    done == 0 || (start.elapsed() < limit && done < MAX_OPS / jobs.max(1))
}

fn op(began: Instant, end: Duration, bytes: usize) -> Op {
    Op { end: end.as_secs_f64(), seconds: began.elapsed().as_secs_f64(), bytes: bytes as f64 }
}
