//! The agent: the process on the host that does what the runner says, and cleans up whatever happens.
//!
//! It starts processes, passes on what they print, and ends them and everything that they started: when told, when
//! the runner falls silent for a lease, and when its input closes. It does not know what a task measures; probes are
//! processes like any other. All it keeps on the host lies in one folder, removed at the end.

mod children;
mod files;
mod processes;

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::wire::{Down, MAX_LINE, PROTOCOL, Up, prefix};
use children::Children;

pub use children::{CHILD, child};

/// How often the agent looks at what is due when nothing happens.
const TICK: Duration = Duration::from_millis(50);

/// Messages that may wait for the runner; when it does not read, what prints waits, too.
const WAITING: usize = 64;

/// What wakes the agent.
enum Event {
    /// The runner said something.
    Down(Down),
    /// The runner said something that cannot be read.
    Garbled(String),
    /// The runner is gone.
    Closed,
    /// A child ended and waits to be reaped.
    Ended(u32),
    /// Both outputs of a child are closed, or nobody reads them any more.
    Drained(u32),
    /// A signal told the agent to go.
    Told(i32),
}

/// Runs until told to stop, until the runner is gone, or until the lease lapses. Returns the exit code.
///
/// # Errors
/// When the first line is missing or of another protocol, or no folder can be made.
pub fn main(input: impl Read + Send + 'static, output: impl Write + Send + 'static) -> Result<(), String> {
    // A session of its own: the terminal's Ctrl-C is the runner's to handle. Already a leader: fine, too.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| format!("cannot adopt what children leave behind: {e}"))?;
    let (events, inbox) = sync_channel(WAITING);
    let heard = Arc::new(Mutex::new(Instant::now()));
    let (to_inbox, last) = (events.clone(), heard.clone());
    std::thread::spawn(move || listen(input, &to_inbox, &last));
    hear_signals(events.clone());
    let hello = match inbox.recv() {
        Ok(Event::Down(Down::Hello { protocol, .. })) if protocol != PROTOCOL => {
            return Err(format!("the runner speaks protocol {protocol}, this agent {PROTOCOL}"));
        }
        Ok(Event::Down(hello @ Down::Hello { .. })) => hello,
        _ => return Err("nobody said hello: the agent is started by `planrun run`, not by hand".to_owned()),
    };
    let Down::Hello { mark, run, place, lease, grace, cpus, workdir, .. } = hello else {
        return Err("no hello".to_owned());
    };
    let (up, spoken) = speak(output, &mark);
    let marks = [("PLANRUN_RUN", &run), ("PLANRUN_PLACE", &place)].map(|(k, v)| format!("{k}={v}"));
    let reaped = processes::reap_leftovers(&marks);
    let root = workdir.map_or_else(std::env::temp_dir, PathBuf::from);
    // A number of its own: an earlier agent that hangs and cleans up late does not remove ours.
    let name = format!("planrun-{run}-{place}.");
    remove_earlier(&root, &name);
    let folder = root.join(format!("{name}{}", std::process::id()));
    let made = std::fs::create_dir_all(&folder).and_then(|()| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))
    });
    if let Err(e) = made {
        let text = format!("cannot make the folder {}: {e}; set `workdir` of the endpoint", folder.display());
        let _ = up.send(Up::Trouble { id: None, disk: true, text: text.clone() });
        drop(up);
        let _ = spoken.join();
        return Err(text);
    }
    let hello = Up::Hello {
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .unwrap_or_default()
            .trim()
            .to_owned(),
        folder: folder.display().to_string(),
        cpus: cpus.unwrap_or(u32::MAX).min(processes::allowed_cpus().len() as u32),
        reaped,
    };
    let mut agent = Agent {
        children: Children::new(
            events,
            up.clone(),
            base_env(&run, &place),
            cpus,
            Duration::from_secs_f64(grace.clamp(0.0, 60.0)),
        ),
        up,
        folder,
        task: None,
        task_count: 0,
        lease: Duration::from_secs_f64(lease.clamp(1.0, 86_400.0)),
        closed: false,
        heard,
    };
    agent.tell(hello);
    stand_by(agent.heard.clone(), agent.lease, agent.folder.clone());
    let ended = agent.serve(&inbox);
    agent.finish();
    let _ = files::remove_all(&agent.folder);
    ended
}

/// Removes folders of earlier agents of this run and place.
fn remove_earlier(root: &Path, name: &str) {
    for entry in std::fs::read_dir(root).into_iter().flatten().filter_map(Result::ok) {
        if entry.file_name().to_string_lossy().starts_with(name) {
            let _ = files::remove_all(&entry.path());
        }
    }
}

/// Reads lines until the input closes. Each shows that the runner is there, however long the agent takes to obey it.
fn listen(input: impl Read, events: &SyncSender<Event>, heard: &Mutex<Instant>) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => break,
            Ok(_) => *lock(heard) = Instant::now(),
        }
        let event = match serde_json::from_slice(&line) {
            Ok(down) => Event::Down(down),
            Err(e) => Event::Garbled(e.to_string()),
        };
        if events.send(event).is_err() {
            return;
        }
    }
    let _ = events.send(Event::Closed);
}

/// INT and TERM end the agent in order. HUP does nothing: a frozen agent gets one when the runner dies, and must then
/// live on to clean up.
fn hear_signals(events: SyncSender<Event>) {
    // Not tokio's: its runtime would be a tenth of what is sent to every host.
    let Ok(mut signals) = Signals::new([SIGHUP, SIGINT, SIGTERM]) else { return };
    std::thread::spawn(move || {
        for signal in signals.forever().filter(|signal| *signal != SIGHUP) {
            if events.send(Event::Told(signal)).is_err() {
                return;
            }
        }
    });
}

/// Writes messages, each a line behind the mark, until nobody has anything to say; the thread ends once all is said.
fn speak(output: impl Write + Send + 'static, mark: &str) -> (SyncSender<Up>, JoinHandle<()>) {
    let prefix = prefix(mark);
    let (up, messages) = sync_channel::<Up>(WAITING);
    let spoken = std::thread::spawn(move || {
        let mut output = output;
        for message in messages {
            let Ok(json) = serde_json::to_string(&message) else { continue };
            // One write a message, so that a line is never torn by another process on the same stream.
            if output.write_all(format!("{prefix}{json}\n").as_bytes()).and_then(|()| output.flush()).is_err()
            {
                return;
            }
        }
    });
    (up, spoken)
}

fn lock(heard: &Mutex<Instant>) -> MutexGuard<'_, Instant> {
    heard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends everything by itself should the agent be stuck when the lease lapses, for instance in the middle of a message
/// that a frozen runner does not take.
fn stand_by(heard: Arc<Mutex<Instant>>, lease: Duration, folder: PathBuf) {
    let late = lease + Duration::from_secs(5);
    std::thread::spawn(move || {
        while lock(&heard).elapsed() <= late {
            std::thread::sleep(Duration::from_millis(200));
        }
        processes::end_descendants();
        let _ = files::remove_all(&folder);
        #[expect(clippy::exit, reason = "the main thread is stuck: nothing else ends the process")]
        std::process::exit(1);
    });
}

/// The state of a running agent.
struct Agent {
    children: Children,
    up: SyncSender<Up>,
    folder: PathBuf,
    task: Option<PathBuf>,
    task_count: u32,
    lease: Duration,
    /// The runner went away in the middle of a clean-up.
    closed: bool,
    heard: Arc<Mutex<Instant>>,
}

impl Agent {
    fn tell(&self, up: Up) {
        // A runner that is gone is noticed by the closed input; nothing to do here.
        let _ = self.up.send(up);
    }

    fn trouble(&self, id: Option<u32>, disk: bool, text: impl Into<String>) {
        self.tell(Up::Trouble { id, disk, text: text.into() });
    }

    fn serve(&mut self, inbox: &Receiver<Event>) -> Result<(), String> {
        let mut silent = false;
        loop {
            if self.closed {
                return Ok(());
            }
            match inbox.recv_timeout(TICK) {
                Ok(Event::Closed | Event::Down(Down::Bye)) | Err(RecvTimeoutError::Disconnected) => {
                    return Ok(());
                }
                Ok(Event::Down(down)) => self.obey(down, inbox),
                Ok(Event::Garbled(why)) => {
                    self.trouble(None, false, format!("a message cannot be read: {why}"));
                }
                Ok(Event::Ended(id)) => self.children.reap(id),
                Ok(Event::Drained(id)) => self.children.drained(id),
                Ok(Event::Told(signal)) => {
                    self.children.mute();
                    return Err(format!("signal {signal} told the agent to go: everything was ended"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.children.tick();
            // Looked at twice: an agent that was itself frozen first gets to read what waits for it.
            let was_silent = std::mem::replace(&mut silent, lock(&self.heard).elapsed() > self.lease);
            if silent && was_silent {
                // How processes end from now on says nothing about them.
                self.children.mute();
                return Err(
                    "the runner fell silent for longer than the lease: everything was ended".to_owned()
                );
            }
        }
    }

    fn obey(&mut self, down: Down, inbox: &Receiver<Event>) {
        match down {
            Down::Begin { task } => {
                self.finish();
                self.task_count += 1;
                let folder = self.folder.join(format!("task-{}", self.task_count));
                match std::fs::create_dir_all(&folder) {
                    Ok(()) => {
                        self.tell(Up::Begun { folder: folder.display().to_string() });
                        self.children.begin(&task, &folder);
                        self.task = Some(folder);
                    }
                    Err(e) => self.trouble(None, true, format!("cannot make {}: {e}", folder.display())),
                }
            }
            Down::Spawn(spawn) => match &self.task {
                Some(folder) => self.children.spawn(*spawn, folder),
                None => self.trouble(Some(spawn.id), false, "no task has begun"),
            },
            Down::Kill { id } => self.children.kill(id),
            Down::Put { path, data, executable, last } => {
                let stored = match &self.task {
                    Some(folder) => files::put(folder, &path, &data.0, executable),
                    None => Err(std::io::Error::other("no task has begun")),
                };
                match stored {
                    Ok(()) if last => self.tell(Up::Stored { path }),
                    Ok(()) => {}
                    Err(e) => self.trouble(None, files::is_disk(&e), format!("cannot write {path}: {e}")),
                }
            }
            Down::Get { path, dir, limit } => {
                let folder = dir.map(PathBuf::from).or_else(|| self.task.clone());
                let left_out = match folder {
                    Some(folder) => files::get(&folder, Path::new(&path), limit, |up| self.tell(up)),
                    None => vec![format!("{path}: no task has begun")],
                };
                self.tell(Up::Sent { left_out });
            }
            Down::Finish => {
                // What was printed before the end must come before the word that all is over.
                self.children.end_all();
                while let Ok(event) = inbox.try_recv() {
                    match event {
                        Event::Ended(id) => self.children.reap(id),
                        Event::Drained(id) => self.children.drained(id),
                        Event::Closed | Event::Told(_) | Event::Down(Down::Bye) => self.closed = true,
                        Event::Down(_) | Event::Garbled(_) => {}
                    }
                }
                let (ended, stuck) = self.finish();
                self.tell(Up::Finished { ended, stuck });
            }
            Down::Hello { .. } | Down::Renew | Down::Bye => {}
        }
    }

    /// Ends everything that the task started, and removes its folder.
    fn finish(&mut self) -> (u32, Vec<u32>) {
        let swept = self.children.sweep();
        if let Some(folder) = self.task.take()
            && let Err(e) = files::remove_all(&folder)
        {
            self.trouble(None, false, format!("cannot remove {}: {e}", folder.display()));
        }
        swept
    }
}

/// Environment that every process gets beside what the runner asks for. Run and place mark it as ours.
fn base_env(run: &str, place: &str) -> BTreeMap<String, String> {
    [("LC_ALL", "C"), ("TZ", "UTC"), ("PLANRUN_RUN", run), ("PLANRUN_PLACE", place)]
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .collect()
}
