//! The entry points of the reference workload: the job, one rank of it, and what they print.
//!
//! The training itself is in `trainer`, the processes in `launch`, their sums in `ring`.
//! Invariant: standard output holds nothing but JSON lines of the contract for programs, written
//! by rank 0 alone; everything else goes to standard error.

pub use super::config::Reference;
pub use super::launch::{Failure, RankLauncher};
pub use super::state::StateError;

use super::launch::{self, Seat, take_seat};
use super::ring::Ring;
use super::trainer::Trainer;
use serde::{Deserialize, Serialize};
use std::error::Error;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Exit code of a rank whose neighbour or launcher went away: a consequence, never a cause.
pub(super) const PEER_LOST: i32 = 76;
/// The loss is printed, and the ranks' parameters compared, every so many steps.
const REPORT_EVERY: u64 = 50;
/// How long a rank waits for its neighbours to start.
const PATIENCE: Duration = Duration::from_mins(1);

/// What stays the same when ranks are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The batch of each rank: the job's batch grows with the ranks.
    #[default]
    Weak,
    /// The batch of the job: each rank gets its part.
    Strong,
}

/// A job of the reference workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Spec {
    /// The model and its batch.
    pub model: Reference,
    /// Number of ranks.
    pub world: usize,
    /// Weak or strong scaling.
    pub mode: Mode,
    /// Cores, and threads, of each rank; more than a rank has sequences stay idle.
    pub cores_per_rank: usize,
    /// At least so many steps after the warm-up.
    pub steps: u64,
    /// At least so many seconds after the warm-up; 0 leaves it to `steps`.
    pub seconds: f64,
    /// Steps before those; they are trained and printed like all others, and planrun removes them.
    pub warmup: u64,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            model: Reference::default(),
            world: 1,
            mode: Mode::Weak,
            cores_per_rank: 1,
            steps: 200,
            seconds: 0.0,
            warmup: 0,
        }
    }
}

impl Spec {
    /// Says what is wrong with the job, in words.
    ///
    /// # Errors
    ///
    /// A sentence for a zero count, a global batch that the ranks do not divide, or an unusable
    /// model.
    pub fn check(&self) -> Result<(), String> {
        self.model.check()?;
        if self.world == 0 || self.cores_per_rank == 0 {
            return Err("world and cores_per_rank must be at least 1".into());
        }
        if self.mode == Mode::Strong && !self.model.batch.is_multiple_of(self.world) {
            let (batch, world) = (self.model.batch, self.world);
            return Err(format!(
                "strong scaling divides the batch, but {batch} is no multiple of {world} ranks"
            ));
        }
        if !(self.seconds.is_finite() && self.seconds >= 0.0) {
            return Err(format!("seconds {} must be 0 or more", self.seconds));
        }
        if self.warmup == 0 && self.steps == 0 && self.seconds == 0.0 {
            return Err("steps or seconds must be above 0".into());
        }
        Ok(())
    }

    /// Sequences of one rank in a step.
    pub fn sequences_per_rank(&self) -> usize {
        match self.mode {
            Mode::Weak => self.model.batch,
            Mode::Strong => self.model.batch / self.world,
        }
    }

    /// Whether the job is done after `steps` steps, of which those after the warm-up took `measured`.
    pub fn is_enough(&self, steps: u64, measured: Duration) -> bool {
        let target = self.warmup.saturating_add(self.steps);
        steps >= target && measured.as_secs_f64() >= self.seconds
    }

    /// Tokens of the whole job in a step.
    pub fn tokens_per_step(&self) -> usize {
        self.sequences_per_rank() * self.world * self.model.sequence
    }
}

/// A step of the whole job, as the contract for programs has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepLine {
    /// Counted from 1.
    pub step: u64,
    /// From taking the data to the updated parameters, by rank 0's monotonic clock.
    pub seconds: f64,
    /// Tokens of all ranks.
    pub tokens: usize,
    /// Number of ranks.
    pub world: usize,
    /// The part spent in the sum over ranks, waiting for the slowest included.
    pub comm_seconds: f64,
    /// The part spent taking the batch.
    pub data_seconds: f64,
}

/// Runs a job and returns its exit code: 0 when all ranks finished, 2 when the job cannot be run
/// as specified, 1 when something failed on the way.
///
/// Rank 0 prints to this process's standard output; call it from the main thread, since ranks end
/// when the thread that started them does.
pub fn main(spec: &Spec, launcher: &RankLauncher) -> i32 {
    match launch::run(spec, launcher) {
        Ok(()) => 0,
        Err(failure) => {
            complain(format_args!("failed to {}", chain(&failure)));
            failure.code()
        }
    }
}

/// Runs one rank, as the process that [`main`] starts, and returns its exit code.
///
/// What it is to do comes on standard input; nothing may have read from there before.
pub fn rank_main() -> i32 {
    let seat = match take_seat() {
        Ok(seat) => seat,
        Err(failure) => {
            complain(format_args!("failed to {}", chain(&failure)));
            return failure.code();
        }
    };
    match train(&seat, &mut io::stdout()) {
        Ok(()) => 0,
        Err(stop) => {
            complain(format_args!("rank {}: {}", seat.rank, stop.words()));
            match stop {
                Stop::Peer(_) => PEER_LOST,
                Stop::Output(_) | Stop::Wrong(_) => 1,
            }
        }
    }
}

/// Why a rank stops before its time.
#[derive(Debug)]
enum Stop {
    Peer(io::Error),
    Output(io::Error),
    Wrong(String),
}

impl Stop {
    fn words(&self) -> String {
        match self {
            Self::Peer(error) => format!("lost its neighbour: {error}"),
            Self::Output(error) => format!("cannot write to standard output: {error}"),
            Self::Wrong(words) => words.clone(),
        }
    }
}

/// Trains until the job is done; rank 0 prints.
fn train(seat: &Seat, output: &mut dyn Write) -> Result<(), Stop> {
    let Seat { spec, rank, directory, .. } = seat;
    let (rank, world) = (*rank, spec.world);
    let mut ring = Ring::join(directory, rank, world, PATIENCE).map_err(Stop::Peer)?;
    let sequences = spec.sequences_per_rank();
    let mut trainer = Trainer::new(&spec.model, sequences, spec.cores_per_rank);
    let mut print = |line: serde_json::Value| {
        if rank != 0 {
            return Ok(());
        }
        let mut line = line.to_string();
        line.push('\n');
        output.write_all(line.as_bytes()).and_then(|()| output.flush()).map_err(Stop::Output)
    };
    for line in facts(spec) {
        print(line)?;
    }
    let mut measured_since = None;
    loop {
        let started = Instant::now();
        if trainer.step() >= spec.warmup {
            measured_since.get_or_insert(started);
        }
        trainer.load(rank * sequences);
        let loaded = Instant::now();
        trainer.differentiate();
        // Rank 0 alone decides when to stop; its wish travels behind the gradient.
        let enough = spec
            .is_enough(trainer.step() + 1, measured_since.map_or(Duration::ZERO, |since| since.elapsed()));
        trainer.set_wish(if rank == 0 && enough { 1.0 } else { 0.0 });
        let differentiated = Instant::now();
        ring.mean(&mut trainer.gradient).map_err(Stop::Peer)?;
        let comm_seconds = differentiated.elapsed().as_secs_f64();
        trainer.update();
        let line = StepLine {
            step: trainer.step(),
            seconds: started.elapsed().as_secs_f64(),
            tokens: spec.tokens_per_step(),
            world,
            comm_seconds: if world == 1 { 0.0 } else { comm_seconds },
            data_seconds: (loaded - started).as_secs_f64(),
        };
        let (loss, last) = (trainer.loss(), trainer.wish() > 0.0);
        if !loss.is_finite() {
            return Err(Stop::Wrong(format!("the loss of step {} is not a number", line.step)));
        }
        print(serde_json::json!(line))?;
        if line.step == 1 || line.step.is_multiple_of(REPORT_EVERY) || last {
            let labels = [("step", line.step.to_string())];
            print(metric("loss", loss, &labels))?;
            if !ring.agrees(trainer.digest()).map_err(Stop::Peer)? {
                let words = format!("the ranks' parameters differ after step {}", line.step);
                return Err(Stop::Wrong(words));
            }
        }
        if last {
            return Ok(());
        }
    }
}

/// What does not change during the job, as metric lines.
fn facts(spec: &Spec) -> [serde_json::Value; 4] {
    [
        metric("world", spec.world, &[("device", "cpu".into())]),
        metric("parameters", spec.model.parameters(), &[]),
        metric("flops_per_token", spec.model.flops_per_token(), &[]),
        metric("cores_per_rank", spec.cores_per_rank, &[]),
    ]
}

/// A metric line of the contract for programs.
fn metric(name: &str, value: impl Serialize, labels: &[(&str, String)]) -> serde_json::Value {
    let mut line = serde_json::json!({ "metric": name, "value": value, "unit": "1" });
    if !labels.is_empty() {
        let labels: serde_json::Map<_, _> =
            labels.iter().map(|(name, value)| ((*name).to_owned(), value.as_str().into())).collect();
        line["labels"] = labels.into();
    }
    line
}

fn complain(words: std::fmt::Arguments<'_>) {
    eprintln!("planrun reference: {words}");
}

fn chain(failure: &Failure) -> String {
    let mut words = failure.to_string();
    let mut source = failure.source();
    while let Some(error) = source {
        words = format!("{words}: {error}");
        source = error.source();
    }
    words
}
