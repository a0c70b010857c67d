//! Whole jobs: ranks as processes, what they print, and how they end.
//!
//! The test executable stands in for planrun: its ignored tests are the programs that run here.

use super::super::config::Reference;
use super::super::reference::{self, Mode, RankLauncher, Spec, StepLine};
use super::super::ring::Ring;
use super::tiny;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

const SPEC: &str = "PLANRUN_TEST_SPEC";
const PROGRAM: [&str; 5] = ["-q", "--ignored", "--exact", "--nocapture", "--test-threads=1"];

/// Not a test: one rank, started by `job_program`.
#[test]
#[ignore = "a program that other tests run"]
fn rank_program() {
    if std::env::var(SPEC).is_ok() {
        std::process::exit(reference::rank_main());
    }
}

/// Not a test: a job, started by tests.
#[test]
#[ignore = "a program that other tests run"]
fn job_program() {
    if let Ok(spec) = std::env::var(SPEC) {
        let spec: Spec = serde_json::from_str(&spec).unwrap();
        std::process::exit(reference::main(&spec, &launcher()));
    }
}

fn launcher() -> RankLauncher {
    RankLauncher::this_program(PROGRAM.into_iter().chain(["workload::tests::jobs::rank_program"]))
}

fn spec() -> Spec {
    let model = Reference { layers: 1, sequence: 16, batch: 2, ..tiny() };
    Spec { model, world: 2, steps: 3, ..Spec::default() }
}

fn start(spec: &Spec) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(PROGRAM)
        .arg("workload::tests::jobs::job_program")
        .env(SPEC, serde_json::to_string(spec).unwrap())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The job's output as JSON lines; what libtest prints is passed over.
fn lines(output: &Output) -> Vec<Value> {
    let text = str::from_utf8(&output.stdout).unwrap();
    text.lines()
        .filter(|line| line.starts_with('{'))
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn run(spec: &Spec) -> Vec<Value> {
    let output = start(spec).wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    lines(&output)
}

fn losses(lines: &[Value]) -> Vec<f64> {
    lines.iter().filter(|line| line["metric"] == "loss").map(|line| line["value"].as_f64().unwrap()).collect()
}

#[test]
fn a_job_prints_the_lines_of_the_contract() {
    let spec = Spec { warmup: 48, ..spec() };
    let lines = run(&spec);
    assert_eq!(
        lines[..4],
        [
            json!({"metric": "world", "value": 2, "unit": "1", "labels": {"device": "cpu"}}),
            json!({"metric": "parameters", "value": spec.model.parameters(), "unit": "1"}),
            json!({"metric": "flops_per_token", "value": spec.model.flops_per_token(), "unit": "1"}),
            json!({"metric": "cores_per_rank", "value": 1, "unit": "1"}),
        ]
    );
    let (steps, metrics): (Vec<_>, Vec<_>) = lines[4..].iter().partition(|line| line.get("step").is_some());
    let steps: Vec<StepLine> =
        steps.into_iter().map(|line| serde_json::from_value(line.clone()).unwrap()).collect();
    assert_eq!(steps.iter().map(|line| line.step).collect::<Vec<_>>(), (1..=51).collect::<Vec<_>>());
    for line in &steps {
        assert_eq!((line.tokens, line.world), (2 * 2 * 16, 2));
        assert!(line.seconds > 0.0 && line.comm_seconds > 0.0 && line.data_seconds > 0.0);
        assert!(line.comm_seconds + line.data_seconds < line.seconds);
    }
    let labels: Vec<_> =
        metrics.iter().map(|line| format!("{} {}", line["metric"], line["labels"])).collect();
    assert_eq!(labels, ["1", "50", "51"].map(|step| format!(r#""loss" {{"step":"{step}"}}"#)));
}

/// Strong scaling trains on the same batches whatever the ranks, so the losses differ by the order
/// of additions only; and a repeated job gives the same bits.
#[test]
fn ranks_and_cores_change_the_loss_by_rounding_only() {
    let strong = Spec { mode: Mode::Strong, ..spec() };
    let two = losses(&run(&strong));
    assert_eq!(two, losses(&run(&strong)));
    let one = losses(&run(&Spec { world: 1, ..strong.clone() }));
    let threads = losses(&run(&Spec { world: 1, cores_per_rank: 2, ..strong }));
    assert_eq!((two.len(), one.len(), threads.len()), (2, 2, 2));
    for ((two, one), threads) in two.iter().zip(&one).zip(&threads) {
        assert!((two - one).abs() < 1e-5 && (threads - one).abs() < 1e-5, "{two} {one} {threads}");
    }
    assert!(one[1] < one[0] - 0.01, "the loss did not fall: {one:?}");
}

#[test]
fn too_few_cores_are_exit_code_2_and_start_nothing() {
    let spec = Spec { world: 5000, ..spec() };
    assert_eq!(reference::main(&spec, &launcher()), 2);
}

#[test]
fn a_job_is_enough_when_steps_and_seconds_both_are() {
    let spec = Spec { warmup: 2, steps: 3, seconds: 1.0, ..spec() };
    let second = Duration::from_secs(1);
    assert!(spec.is_enough(5, second) && spec.is_enough(6, second * 2));
    assert!(!spec.is_enough(4, second) && !spec.is_enough(5, second.mul_f64(0.99)));
}

/// The processes whose parent is `parent`, in the order of their numbers.
fn children(parent: u32) -> Vec<u32> {
    let mut found: Vec<u32> = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| state_and_parent(*pid).is_some_and(|(_, own)| own == parent))
        .collect();
    found.sort_unstable();
    found
}

fn state_and_parent(pid: u32) -> Option<(char, u32)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

fn is_gone(pid: u32) -> bool {
    state_and_parent(pid).is_none_or(|(state, _)| state == 'Z')
}

/// Waits, at most 20 seconds, for a state.
fn await_state(what: &str, mut reached: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !reached() {
        assert!(Instant::now() < deadline, "{what} did not happen");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A job that does not end by itself, ended when the test is over, however that goes.
struct Endless {
    job: Child,
    ranks: [u32; 2],
}

impl Drop for Endless {
    fn drop(&mut self) {
        let _ = self.job.kill();
        let _ = self.job.wait();
    }
}

/// Starts an endless job of two ranks and waits for its first step.
fn endless() -> Endless {
    let mut endless = Endless { job: start(&Spec { seconds: 1e6, ..spec() }), ranks: [0; 2] };
    let mut output = BufReader::new(endless.job.stdout.take().unwrap());
    let mut line = String::new();
    while !line.starts_with(r#"{"step"#) {
        line.clear();
        assert_ne!(output.read_line(&mut line).unwrap(), 0, "the job ended before its first step");
    }
    // Its output has to go somewhere, or it would wait for its reader.
    thread::spawn(move || std::io::copy(&mut output, &mut std::io::sink()));
    endless.ranks = children(endless.job.id()).try_into().expect("two ranks");
    endless
}

fn signal(pid: u32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_dead_rank_ends_the_job_and_is_named() {
    let mut endless = endless();
    signal(endless.ranks[1], rustix::process::Signal::KILL);
    let mut errors = String::new();
    endless.job.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    assert_eq!(endless.job.wait().unwrap().code(), Some(1), "{errors}");
    assert!(errors.contains("failed to finish the job: rank 1 was ended by signal 9"), "{errors}");
    assert!(endless.ranks.into_iter().all(is_gone));
}

#[test]
fn ranks_end_with_their_launcher() {
    let mut endless = endless();
    endless.job.kill().unwrap();
    endless.job.wait().unwrap();
    await_state("the end of the ranks", || endless.ranks.into_iter().all(is_gone));
}

/// A rank asks to be killed only after it has started; until then, and on systems that lose the
/// signal, the closing of its standard input ends it.
#[test]
fn a_rank_ends_when_its_standard_input_closes() {
    let directory = tempfile::tempdir().unwrap();
    let mut rank = Command::new(std::env::current_exe().unwrap())
        .args(launcher().arguments)
        .env(SPEC, "")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let cores = super::super::launch::allowed_cores().unwrap();
    let seat = json!({"spec": spec(), "rank": 0, "cores": cores, "directory": directory.path()});
    let mut input = rank.stdin.take().unwrap();
    writeln!(input, "{seat}").unwrap();
    // It now waits for a neighbour that never comes.
    await_state("the rank's socket", || directory.path().join("0").exists());
    drop(input);
    let output = rank.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("rank 0: the launcher is gone"), "{errors}");
    assert_eq!(output.status.code(), Some(reference::PEER_LOST));
}

/// Runs `body` as every rank of a ring of threads and returns what each made.
fn ring<R: Send>(world: usize, body: impl Fn(Ring, usize) -> R + Sync) -> Vec<R> {
    let directory = tempfile::tempdir().unwrap();
    let results = thread::scope(|scope| {
        let join = |rank| Ring::join(directory.path(), rank, world, Duration::from_secs(20)).unwrap();
        let body = &body;
        let handles: Vec<_> = (0..world).map(|rank| scope.spawn(move || body(join(rank), rank))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).collect()
    });
    assert!(world == 1 || !directory.path().exists(), "sockets were left behind");
    results
}

#[test]
fn the_mean_over_a_ring_is_right_and_the_same_bits_everywhere() {
    for world in 1..=5 {
        // Shorter than the ring, about one piece, and many pieces that do not divide.
        for length in [0, 1, 3, 4099, 100_003] {
            let value = |rank: usize, k: usize| ((rank * 7919 + k * 31) % 1000) as f32 / 7.0;
            let results = ring(world, |mut ring, rank| {
                let mut values: Vec<f32> = (0..length).map(|k| value(rank, k)).collect();
                ring.mean(&mut values).unwrap();
                values
            });
            for (k, mean) in results[0].iter().enumerate() {
                let right = (0..world).map(|rank| f64::from(value(rank, k))).sum::<f64>() / world as f64;
                assert!(
                    (f64::from(*mean) - right).abs() < 1e-4,
                    "{world} ranks, element {k}: {mean}, {right}"
                );
            }
            let bits = |values: &[f32]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
            assert!(results.iter().all(|values| bits(values) == bits(&results[0])), "{world} ranks");
        }
    }
}

#[test]
fn a_rank_that_differs_is_noticed() {
    assert_eq!(ring(3, |mut ring, _| ring.agrees(5).unwrap()), [true; 3]);
    let one_differs = ring(3, |mut ring, rank| ring.agrees(u64::from(rank == 1)).unwrap());
    assert_eq!(one_differs, [true, false, false]);
}
