//! The launcher: starts one process per rank on cores of its own and waits for all of them.
//!
//! It trains nothing itself; what a rank does is in `reference`. Invariant: when the launcher has
//! returned, none of its ranks runs any more, and a rank whose launcher is gone ends by itself
//! (its standard input closes, and Linux kills it as well).

use super::reference::{PEER_LOST, Spec};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use thiserror::Error;

/// The longest directory that leaves room for a rank's number in a socket's 108 bytes.
const LONGEST_DIRECTORY: usize = 90;
/// How long the other ranks may take to end by themselves after one has failed.
const GRACE: Duration = Duration::from_secs(2);

/// How the launcher starts a rank: a program and the arguments that make it call
/// [`rank_main`](super::reference::rank_main).
#[derive(Clone, Debug, Default)]
pub struct RankLauncher {
    /// The program; the running executable if none.
    pub program: Option<PathBuf>,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Environment variables beside those inherited.
    pub environment: Vec<(String, String)>,
}

impl RankLauncher {
    /// Starts ranks by running this executable again with `arguments`.
    pub fn this_program<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        Self { arguments: arguments.into_iter().map(String::from).collect(), ..Self::default() }
    }
}

/// Why a job did not run or did not finish.
#[derive(Debug, Error)]
pub enum Failure {
    /// The specification contradicts itself.
    #[error("run the reference workload: {0}")]
    Spec(String),
    /// There are fewer cores than the ranks need.
    #[error(
        "run {world} ranks on {per_rank} cores each: that takes {}, but this process may use {allowed}",
        world.saturating_mul(*per_rank)
    )]
    Cores {
        /// Ranks asked for.
        world: usize,
        /// Cores asked for each.
        per_rank: usize,
        /// Cores in this process's affinity mask.
        allowed: usize,
    },
    /// A rank did not end well.
    #[error("finish the job: rank {rank} {how}")]
    Rank {
        /// The rank that failed first, as far as can be told.
        rank: usize,
        /// How it ended.
        how: String,
    },
    /// The system refused something.
    #[error("{what}")]
    System {
        /// What was tried.
        what: String,
        /// Why it did not work.
        source: io::Error,
    },
}

impl Failure {
    pub(super) fn system(what: impl std::fmt::Display) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::System { what: what.to_string(), source }
    }

    /// The exit code: 2 for a specification that cannot be run here, else 1.
    pub fn code(&self) -> i32 {
        match self {
            Self::Spec(_) | Self::Cores { .. } => 2,
            Self::Rank { .. } | Self::System { .. } => 1,
        }
    }
}

/// What a rank learns from its launcher, as one JSON line on its standard input.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Seat {
    pub(super) spec: Spec,
    pub(super) rank: usize,
    pub(super) cores: Vec<usize>,
    pub(super) directory: PathBuf,
}

/// The cores this thread may run on, ascending.
pub(super) fn allowed_cores() -> Result<Vec<usize>, Failure> {
    let set = sched_getaffinity(None).map_err(io::Error::from);
    let set = set.map_err(Failure::system("read the affinity mask"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Deals `allowed` out: rank i gets `allowed[i * per_rank .. (i + 1) * per_rank]`.
pub(super) fn deal(allowed: &[usize], world: usize, per_rank: usize) -> Result<Vec<Vec<usize>>, Failure> {
    if allowed.len() < world.saturating_mul(per_rank) {
        return Err(Failure::Cores { world, per_rank, allowed: allowed.len() });
    }
    Ok(allowed.chunks_exact(per_rank).take(world).map(<[usize]>::to_vec).collect())
}

/// Runs the whole job.
pub(super) fn run(spec: &Spec, launcher: &RankLauncher) -> Result<(), Failure> {
    spec.check().map_err(Failure::Spec)?;
    let hands = deal(&allowed_cores()?, spec.world, spec.cores_per_rank)?;
    let program = match &launcher.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(Failure::system("find this executable"))?,
    };
    let directory = meeting_place().map_err(Failure::system("make a directory for sockets"))?;
    let mut ranks = Ranks::default();
    for (rank, cores) in hands.into_iter().enumerate() {
        let seat = Seat { spec: spec.clone(), rank, cores, directory: directory.path().to_owned() };
        ranks.start(&program, launcher, &seat).map_err(Failure::system(format_args!("start rank {rank}")))?;
    }
    ranks.wait()
}

/// A private directory whose path leaves room for the sockets' names.
fn meeting_place() -> io::Result<tempfile::TempDir> {
    let place = tempfile::tempdir()?;
    if place.path().as_os_str().as_bytes().len() <= LONGEST_DIRECTORY {
        return Ok(place);
    }
    tempfile::tempdir_in("/tmp")
}

/// The ranks that were started; dropping it ends them.
#[derive(Debug, Default)]
struct Ranks {
    children: Vec<Child>,
    // Held open: when one closes, its rank ends.
    inputs: Vec<ChildStdin>,
}

impl Ranks {
    fn start(&mut self, program: &Path, launcher: &RankLauncher, seat: &Seat) -> io::Result<()> {
        let mut child = Command::new(program)
            .args(&launcher.arguments)
            .envs(launcher.environment.iter().map(|(name, value)| (name, value)))
            // A rank's threads share its batch; threads inside a product would only get in their way.
            .env("MATMUL_NUM_THREADS", "1")
            .stdin(Stdio::piped())
            .stdout(if seat.rank == 0 { Stdio::inherit() } else { Stdio::null() })
            .spawn()?;
        let input = child.stdin.take();
        self.children.push(child);
        let Some(mut input) = input else { return Err(io::Error::other("no standard input")) };
        let mut line = serde_json::to_vec(seat)?;
        line.push(b'\n');
        input.write_all(&line)?;
        self.inputs.push(input);
        Ok(())
    }

    /// Waits for all ranks; after the first failure the others get a moment, then are killed.
    fn wait(&mut self) -> Result<(), Failure> {
        let mut ends: Vec<Option<ExitStatus>> = vec![None; self.children.len()];
        let mut failed_at: Option<Instant> = None;
        let mut pause = Duration::from_millis(2);
        while ends.iter().any(Option::is_none) && failed_at.is_none_or(|at| at.elapsed() < GRACE) {
            for (rank, (child, end)) in self.children.iter_mut().zip(&mut ends).enumerate() {
                if end.is_none() {
                    let what = format_args!("wait for rank {rank}");
                    *end = child.try_wait().map_err(Failure::system(what))?;
                    if end.is_some_and(|end| !end.success()) {
                        failed_at.get_or_insert_with(Instant::now);
                    }
                }
            }
            thread::sleep(pause);
            // Rarely enough not to disturb the ranks.
            pause = (pause * 2).min(Duration::from_millis(50));
        }
        // A rank that lost its neighbour is a consequence; the cause is one that did not.
        let failed = |lost: bool| {
            let ends = ends.iter().enumerate().filter_map(|(rank, end)| Some((rank, (*end)?)));
            ends.filter(|(_, end)| !end.success())
                .find(move |(_, end)| (end.code() == Some(PEER_LOST)) == lost)
        };
        match failed(false).or_else(|| failed(true)) {
            Some((rank, end)) => Err(Failure::Rank { rank, how: describe(end) }),
            None => Ok(()),
        }
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        self.inputs.clear();
        for child in &mut self.children {
            // Both fail only for a rank that has ended and been waited for.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn describe(end: ExitStatus) -> String {
    match (end.code(), end.signal()) {
        (Some(PEER_LOST), _) => "lost its neighbour".into(),
        (Some(code), _) => format!("ended with exit code {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended for no reason that can be told".into(),
    }
}

/// Takes this rank's seat: reads it from standard input, moves onto its cores, and arranges that
/// this process ends with its launcher.
pub(super) fn take_seat() -> Result<Seat, Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::system("ask to end with the launcher")(error.into()))?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).map_err(Failure::system("read the seat"))?;
    let seat: Seat = serde_json::from_str(&line).map_err(|error| {
        Failure::Spec(format!("a rank is started by its launcher, which writes its seat: {error}"))
    })?;
    let mut affinity = CpuSet::new();
    seat.cores.iter().for_each(|core| affinity.set(*core));
    let what = format_args!("move onto the cores {:?}", seat.cores);
    sched_setaffinity(None, &affinity).map_err(|error| Failure::system(what)(error.into()))?;
    let rank = seat.rank;
    // The signal above is lost if the launcher ended before it was asked for; this is not.
    thread::spawn(move || {
        let mut byte = [0];
        while matches!(io::stdin().lock().read(&mut byte), Ok(1..)) {}
        eprintln!("planrun reference: rank {rank}: the launcher is gone");
        #[expect(clippy::exit, reason = "the thread that trains may wait for a neighbour for ever")]
        std::process::exit(PEER_LOST);
    });
    Ok(seat)
}
