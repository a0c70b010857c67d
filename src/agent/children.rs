//! The processes that the agent started for a task: their groups, outputs, ends and time to die.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    os::unix::process::{CommandExt as _, ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc::SyncSender},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

use super::{Event, processes};
use crate::wire::{Blob, CHUNK, Program, Spawn, Status, Stream, Up};

/// The sub-command under which the agent's binary starts itself as a child.
pub const CHILD: &str = "agent-child";

/// After a process ended, how long its output may stay open with nothing coming: something that it left behind may
/// hold it.
const DRAIN: Duration = Duration::from_millis(250);

/// After a process ended, how much of its output may still come: no pipe holds more, the rest is of others.
const MOST_AFTER_END: u64 = 2 << 20;

/// How long a command that undoes may take.
const UNDO: Duration = Duration::from_secs(20);

/// A process that was started and has not been reported as ended.
struct Running {
    child: Child,
    begun: Instant,
    /// Set once it was told to go: when it must be gone.
    kill_at: Option<Instant>,
    ended: Option<(ExitStatus, f64, Instant)>,
    /// Outputs that are still open.
    open: u32,
    flow: Arc<Mutex<Flow>>,
    /// Bytes that had been passed on when it ended.
    bytes_at_end: u64,
    undo: Option<Vec<String>>,
}

/// How the outputs of a process flow.
struct Flow {
    /// When bytes last came, or were last passed on.
    at: Instant,
    /// Bytes so far.
    bytes: u64,
    /// Outputs whose bytes wait for the runner to take them.
    waiting: u32,
}

/// All processes of the current task.
pub(super) struct Children {
    running: BTreeMap<u32, Running>,
    /// What is to be started later.
    waiting: Vec<(Instant, Spawn, PathBuf)>,
    events: SyncSender<Event>,
    up: SyncSender<Up>,
    env: BTreeMap<String, String>,
    task: String,
    cpus: Option<u32>,
    grace: Duration,
    born: Instant,
    oom_kills: u64,
    muted: bool,
}

impl Children {
    pub(super) fn new(
        events: SyncSender<Event>,
        up: SyncSender<Up>,
        env: BTreeMap<String, String>,
        cpus: Option<u32>,
        grace: Duration,
    ) -> Self {
        let born = Instant::now();
        Self {
            running: BTreeMap::new(),
            waiting: Vec::new(),
            events,
            up,
            env,
            task: String::new(),
            cpus,
            grace,
            born,
            oom_kills: 0,
            muted: false,
        }
    }

    pub(super) fn begin(&mut self, task: &str, _folder: &Path) {
        task.clone_into(&mut self.task);
        self.oom_kills = oom_kills();
    }

    /// Starts a process in a group of its own, now or when it is due.
    pub(super) fn spawn(&mut self, mut spawn: Spawn, folder: &Path) {
        if let Some(after) = spawn.after.take().filter(|after| *after > 0.0) {
            let due = Instant::now() + Duration::from_secs_f64(after.min(86_400.0));
            self.waiting.push((due, spawn, folder.to_owned()));
            return;
        }
        let id = spawn.id;
        let dir = spawn.dir.as_deref().map_or(folder, Path::new);
        let program = match startable(&spawn.program, dir, &spawn.env) {
            Ok(program) => program,
            Err(status) => {
                let _ = self.up.send(Up::End { id, status, seconds: 0.0 });
                return;
            }
        };
        let mut command = match &spawn.program {
            Program::Probe(kind) => {
                // The binary starts itself. The link holds when the file was replaced meanwhile.
                let mut command = Command::new("/proc/self/exe");
                command.args([CHILD, "probe"]).arg(kind);
                command
            }
            Program::Argv(argv) => {
                let mut command = Command::new(program);
                command.arg0(&argv[0]).args(&argv[1..]);
                command
            }
            Program::Shell(line) => {
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(line);
                command
            }
        };
        command
            .current_dir(dir)
            .envs(&spawn.env)
            .envs(&self.env)
            .env("PLANRUN_TASK", &self.task)
            .env("PWD", dir);
        command.stdin(if spawn.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let begun = Instant::now();
        let mut child = match on_cores(self.cpus, || command.spawn()) {
            Ok(child) => child,
            Err(e) => {
                let status =
                    Status::NotStarted { reason: format!("{}: {e}", named(&spawn.program)), missing: false };
                let _ = self.up.send(Up::End { id, status, seconds: 0.0 });
                return;
            }
        };
        if let (Some(text), Some(mut stdin)) = (spawn.stdin, child.stdin.take()) {
            std::thread::spawn(move || {
                let _ = stdin.write_all(text.as_bytes());
            });
        }
        let mut open = 0;
        let flow = Arc::new(Mutex::new(Flow { at: begun, bytes: 0, waiting: 0 }));
        if let Some(out) = child.stdout.take() {
            self.forward(id, Stream::Out, out, flow.clone());
            open += 1;
        }
        if let Some(err) = child.stderr.take() {
            self.forward(id, Stream::Err, err, flow.clone());
            open += 1;
        }
        let events = self.events.clone();
        if let Some(pid) = pid_of(&child) {
            std::thread::spawn(move || {
                // Waits without reaping: the process number stays taken until the main thread has seen the end.
                while let Err(rustix::io::Errno::INTR) =
                    waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
                {}
                let _ = events.send(Event::Ended(id));
            });
        }
        let running = Running {
            child,
            begun,
            kill_at: None,
            ended: None,
            open,
            flow,
            bytes_at_end: 0,
            undo: spawn.undo,
        };
        self.running.insert(id, running);
    }

    /// Passes on what a process prints, as it comes.
    fn forward(&self, id: u32, stream: Stream, mut from: impl Read + Send + 'static, flow: Arc<Mutex<Flow>>) {
        let (up, events, born) = (self.up.clone(), self.events.clone(), self.born);
        std::thread::spawn(move || {
            let mut buffer = vec![0; CHUNK];
            loop {
                match from.read(&mut buffer) {
                    Ok(0) => break,
                    Ok(n) => {
                        let at = born.elapsed().as_secs_f64();
                        let data = Blob(buffer[..n].to_vec());
                        note(&flow, |flow| {
                            flow.bytes += n as u64;
                            flow.waiting += 1;
                        });
                        let sent = up.send(Up::Output { id, stream, at, data });
                        note(&flow, |flow| flow.waiting -= 1);
                        if sent.is_err() {
                            break;
                        }
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
            let _ = events.send(Event::Drained(id));
        });
    }

    /// A child ended: takes its status.
    pub(super) fn reap(&mut self, id: u32) {
        if let Some(running) = self.running.get_mut(&id)
            && running.ended.is_none()
        {
            let status = match running.child.try_wait() {
                Ok(status) => status,
                Err(_) => Some(ExitStatus::from_raw(9)), // the sweep reaped it: it was killed
            };
            if let Some(status) = status {
                running.ended = Some((status, running.begun.elapsed().as_secs_f64(), Instant::now()));
                running.bytes_at_end = note(&running.flow, |flow| flow.bytes);
            }
        }
        self.report(id, false);
    }

    /// An output of a child is closed.
    pub(super) fn drained(&mut self, id: u32) {
        if let Some(running) = self.running.get_mut(&id) {
            running.open = running.open.saturating_sub(1);
        }
        self.report(id, false);
    }

    /// Reports the end of a process once all that it printed is on its way.
    fn report(&mut self, id: u32, anyhow: bool) {
        let Some(running) = self.running.get(&id) else { return };
        let Some((status, seconds, since)) = running.ended else { return };
        if running.open > 0 && !anyhow {
            let flow = running.flow.lock().unwrap_or_else(PoisonError::into_inner);
            let quiet = flow.waiting == 0 && flow.at.max(since).elapsed() >= DRAIN;
            if !quiet && flow.bytes - running.bytes_at_end <= MOST_AFTER_END {
                return;
            }
        }
        let oom = oom_kills() > self.oom_kills;
        let status = match (status.code(), status.signal()) {
            (Some(code), _) => Status::Exited(code),
            (None, Some(signal)) => Status::Signalled { signal, oom: oom && signal == 9 },
            (None, None) => Status::Exited(-1),
        };
        if let Some(undo) = self.running.remove(&id).and_then(|r| r.undo) {
            undo_by(&undo, &self.env);
        }
        if !self.muted {
            let _ = self.up.send(Up::End { id, status, seconds });
        }
    }

    /// From now on no end is reported: the agent goes, and takes all processes along.
    pub(super) fn mute(&mut self) {
        self.muted = true;
    }

    /// Asks a process and its group to end; [`Self::tick`] kills what does not.
    pub(super) fn kill(&mut self, id: u32) {
        self.forget(|waiting| waiting == id);
        if let Some(running) = self.running.get_mut(&id)
            && running.ended.is_none()
            && running.kill_at.is_none()
        {
            running.kill_at = Some(Instant::now() + self.grace);
            signal_group(&running.child, Signal::TERM);
        }
    }

    /// What has not been started yet never will be.
    fn forget(&mut self, which: impl Fn(u32) -> bool) {
        for (_, spawn, _) in self.waiting.extract_if(.., |(_, spawn, _)| which(spawn.id)) {
            let status = Status::NotStarted { reason: "it was not due yet".to_owned(), missing: false };
            let _ = self.up.send(Up::End { id: spawn.id, status, seconds: 0.0 });
        }
    }

    /// Whatever is due.
    pub(super) fn tick(&mut self) {
        let now = Instant::now();
        let due: Vec<_> = self.waiting.extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, spawn, folder) in due {
            self.spawn(spawn, &folder);
        }
        for running in self.running.values_mut() {
            if running.kill_at.is_some_and(|at| at <= Instant::now()) && running.ended.is_none() {
                signal_group(&running.child, Signal::KILL);
                running.kill_at = None;
            }
        }
        let ids: Vec<u32> = self.running.keys().copied().collect();
        for id in ids {
            self.reap(id);
        }
    }

    /// Ends every process of the task in order: TERM, the grace, KILL; returns when all have ended.
    pub(super) fn end_all(&mut self) {
        self.forget(|_| true);
        let ids: Vec<u32> = self.running.keys().copied().collect();
        for id in &ids {
            self.kill(*id);
        }
        let deadline = Instant::now() + self.grace + Duration::from_secs(1);
        while self.running.values().any(|r| r.ended.is_none()) && Instant::now() < deadline {
            self.tick();
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends everything that the task started, whatever group or session it fled into.
    pub(super) fn sweep(&mut self) -> (u32, Vec<u32>) {
        self.end_all();
        let (ended, stuck) = processes::end_descendants();
        let ids: Vec<u32> = self.running.keys().copied().collect();
        for id in ids {
            self.reap(id);
            self.report(id, true);
        }
        for undo in std::mem::take(&mut self.running).into_values().filter_map(|r| r.undo) {
            undo_by(&undo, &self.env);
        }
        (ended, stuck)
    }
}

/// Notes that something happened to the outputs.
fn note<T>(flow: &Mutex<Flow>, change: impl FnOnce(&mut Flow) -> T) -> T {
    let mut flow = flow.lock().unwrap_or_else(PoisonError::into_inner);
    flow.at = Instant::now();
    change(&mut flow)
}

fn pid_of(child: &Child) -> Option<Pid> {
    i32::try_from(child.id()).ok().and_then(Pid::from_raw)
}

fn signal_group(child: &Child, signal: Signal) {
    if let Some(pid) = pid_of(child) {
        let _ = kill_process_group(pid, signal);
    }
}

/// Runs a command that undoes, for a bounded time, quietly.
fn undo_by(command: &[String], env: &BTreeMap<String, String>) {
    let [program, args @ ..] = command else { return };
    let mut command = Command::new(program);
    command.args(args).envs(env).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return };
    let deadline = Instant::now() + UNDO;
    while Instant::now() < deadline {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// A program for a message.
fn named(program: &Program) -> &str {
    match program {
        Program::Probe(kind) => kind,
        Program::Argv(argv) => argv.first().map_or("", String::as_str),
        Program::Shell(_) => "/bin/sh",
    }
}

/// The file of a program, if it can be started at all: found out before, so that no exit code has to be guessed at.
fn startable(program: &Program, dir: &Path, env: &BTreeMap<String, String>) -> Result<PathBuf, Status> {
    let not_started = |reason: String, missing| Err(Status::NotStarted { reason, missing });
    if !dir.is_dir() {
        return not_started(format!("the folder {} is not there", dir.display()), true);
    }
    let Program::Argv(argv) = program else { return Ok(PathBuf::new()) };
    let Some(name) = argv.first() else { return not_started("an empty command".to_owned(), true) };
    let executable =
        |path: &Path| path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok();
    if name.contains('/') {
        let path = dir.join(name);
        return match (path.exists(), executable(&path)) {
            (_, true) => Ok(path),
            (true, false) => not_started(format!("{name} may not be executed"), false),
            (false, false) => not_started(format!("{name} is not there"), true),
        };
    }
    let path = env.get("PATH").cloned().or_else(|| std::env::var("PATH").ok()).unwrap_or_default();
    // An empty or relative entry of PATH means the program's own folder.
    let found =
        std::env::split_paths(&path).map(|folder| dir.join(folder).join(name)).find(|p| executable(p));
    found.map_or_else(|| not_started(format!("no program `{name}` in PATH"), true), Ok)
}

/// How often the kernel has ended a process of this control group for want of memory.
fn oom_kills() -> u64 {
    let group = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let path = group.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    let events = std::fs::read_to_string(format!("/sys/fs/cgroup{path}/memory.events")).unwrap_or_default();
    let count = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|n| n.trim().parse().ok()).unwrap_or(0)
}

/// The child's side of a probe. `args` are what stands behind [`CHILD`]. Returns the exit code.
pub fn child(args: &[String], probe: impl FnOnce(&str) -> i32) -> i32 {
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    match args {
        [how, kind] if how == "probe" => probe(kind),
        _ => 2,
    }
}

/// Does something on so many cores: what is started meanwhile inherits them.
fn on_cores<T>(cpus: Option<u32>, act: impl FnOnce() -> T) -> T {
    let Some(count @ 1..) = cpus else { return act() };
    let own = rustix::thread::sched_getaffinity(None);
    let mut set = rustix::thread::CpuSet::new();
    processes::allowed_cpus().into_iter().take(count as usize).for_each(|cpu| set.set(cpu));
    let _ = rustix::thread::sched_setaffinity(None, &set);
    let done = act();
    if let Ok(own) = own {
        let _ = rustix::thread::sched_setaffinity(None, &own);
    }
    done
}
