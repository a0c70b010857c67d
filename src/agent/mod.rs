//! The agent: the process on the host that does what the runner says, and cleans up whatever happens.
//!
//! It starts processes, passes on what they print, and ends them and everything that they started: when told, when
//! the runner falls silent for a lease, and when its input closes. It does not know what a task measures; probes are
//! processes like any other. All it keeps on the host lies in one folder, removed at the end.

mod children;
mod files;
mod hold;
mod line;
mod processes;
mod watch;

use std::{
    collections::{BTreeMap, VecDeque},
    io::{BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM},
    iterator::Signals,
};

use crate::wire::{Down, MAX_LINE, PROTOCOL, Up, parse};
use children::Children;
use hold::Held;
use line::{Line, Way};

pub use children::{CHILD, child};

/// How often the agent looks at what is due when nothing happens.
const TICK: Duration = Duration::from_millis(50);

/// Messages that may wait for the runner; when it does not read, what prints waits, too.
const WAITING: usize = 64;

/// Bytes of messages that are taken before the runner hears of it.
const UNCONFIRMED: usize = 256 << 10;

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

/// Runs an agent as its arguments say: over its own streams until they close, or `remote`, `attach` and `hold` as the
/// runner starts it on other machines.
///
/// # Errors
/// When the first line is missing or of another protocol, no folder can be made, or it ended before it was told to.
pub fn main(args: &[String]) -> Result<(), String> {
    match args.split_first().map(|(how, rest)| (how.as_str(), rest)) {
        Some(("remote", rest)) => hold::remote(rest),
        Some(("attach", rest)) => hold::attach(rest),
        Some(("hold", rest)) => {
            let args: Vec<&str> = ["held"].into_iter().chain(rest.iter().map(String::as_str)).collect();
            watch::watch(&args)
        }
        Some(("held", rest)) => hold::hold(rest),
        Some(("work", _)) => work(std::io::stdin(), Box::new(Streams(std::io::stdout())), None),
        Some(("alive", rest)) => hold::alive(rest),
        // Shows that the binary can run here.
        Some(("ready", _)) => Ok(()),
        _ => watch::watch(&["work"]),
    }
}

/// The agent's own output as a way to the runner.
struct Streams(std::io::Stdout);

impl Write for Streams {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        self.0.flush()
    }
}

impl Way for Streams {
    fn cutter(&self) -> Option<Box<dyn FnOnce() + Send>> {
        None
    }
}

/// Runs until told to stop, until the runner is gone, or until the lease lapses.
fn work(input: impl Read + Send + 'static, way: Box<dyn Way>, held: Option<Held>) -> Result<(), String> {
    let binary_dir = held.as_ref().and_then(|h| h.binary_dir.clone());
    if let Some(dir) = &binary_dir {
        watch::made(dir);
    }
    let ended = serve(input, way, held);
    // Whatever it came to: also when nobody ever said hello.
    remove(binary_dir.as_slice());
    ended
}

/// See [`work`].
fn serve(input: impl Read + Send + 'static, way: Box<dyn Way>, held: Option<Held>) -> Result<(), String> {
    // Without its watch nobody would clean up after it: it then does so itself, at once.
    let _ = rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM));
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(|e| format!("cannot adopt what children leave behind: {e}"))?;
    let mut input = BufReader::new(input);
    let mut first = Vec::new();
    let _ = input.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut first);
    let (mark, run, place, lease, grace, cpus, workdir, again) = match parse(&first) {
        Ok((_, Down::Hello { protocol, .. })) if protocol != PROTOCOL => {
            return Err(format!("the runner speaks protocol {protocol}, this agent {PROTOCOL}"));
        }
        Ok((_, Down::Hello { mark, run, place, lease, grace, cpus, workdir, again, .. })) => {
            (mark, run, place, lease, grace, cpus, workdir, again)
        }
        _ => return Err("nobody said hello: the agent is started by `planrun run`, not by hand".to_owned()),
    };
    let (events, inbox) = sync_channel(WAITING);
    let line = Line::new(way, &mark, held.is_some());
    let ear = Arc::new(Ear::new(events.clone(), line.clone()));
    let (up, spoken) = speak(line.clone());
    let marks = [("PLANRUN_RUN", &run), ("PLANRUN_PLACE", &place)].map(|(k, v)| format!("{k}={v}"));
    let reaped = if again { processes::reap_leftovers(&marks) } else { 0 };
    let lasting = held.is_some();
    let (root, binary_dir) = held.map_or((None, None), |h| (Some(h.root), h.binary_dir));
    let root = workdir.map(PathBuf::from).or(root).unwrap_or_else(std::env::temp_dir);
    // A number of its own: an earlier agent that hangs and cleans up late does not remove ours.
    let name = format!("planrun-{run}-{place}.");
    if again {
        remove_earlier(&root, &name, binary_dir.as_deref());
    }
    let folder = root.join(format!("{name}{}", std::process::id()));
    let leavings: Vec<PathBuf> = [Some(folder.clone()), binary_dir].into_iter().flatten().collect();
    let made = std::fs::create_dir_all(&folder).and_then(|()| {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700))?;
        watch::made(&folder);
        if lasting { hold::listen(&folder, &ear, &line) } else { Ok(()) }
    });
    if let Err(e) = made {
        let text = format!("cannot make the folder {}: {e}; set `workdir` of the endpoint", folder.display());
        let _ = up.send(Up::Trouble { id: None, disk: true, text: text.clone() });
        drop(up);
        let _ = spoken.join();
        remove(&leavings);
        return Err(text);
    }
    hear_signals(events.clone());
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
            events.clone(),
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
        lasting,
        later: VecDeque::new(),
        closed: false,
        ear: ear.clone(),
    };
    agent.tell(hello);
    stand_by(ear.clone(), agent.lease, leavings.clone());
    std::thread::spawn(move || {
        ear.listen(input);
        let _ = events.send(Event::Closed);
    });
    let ended = agent.serve(&inbox);
    agent.finish();
    if let (true, Err(text)) = (lasting, &ended) {
        // Its own error output ends with the first connection: the last words go to whoever still listens.
        line.say(&Up::Trouble { id: None, disk: false, text: text.clone() });
    }
    remove(&leavings);
    ended
}

/// What the agent hears: numbered messages over one connection after another, each taken once and in order.
struct Ear {
    events: SyncSender<Event>,
    line: Line,
    /// The number of the last message that was taken.
    taken: Mutex<u64>,
    heard: Mutex<Instant>,
}

impl Ear {
    fn new(events: SyncSender<Event>, line: Line) -> Self {
        Self { events, line, taken: Mutex::new(0), heard: Mutex::new(Instant::now()) }
    }

    fn taken(&self) -> u64 {
        *lock(&self.taken)
    }

    fn heard_now(&self) {
        *lock(&self.heard) = Instant::now();
    }

    /// How long nobody has been heard.
    fn silent(&self) -> Duration {
        lock(&self.heard).elapsed()
    }

    /// Reads lines until the input closes. Each shows that the runner is there, however long the agent takes to obey.
    fn listen(&self, mut input: impl BufRead) {
        let mut text = Vec::new();
        let mut unconfirmed = 0;
        loop {
            text.clear();
            match input.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut text) {
                Ok(0) | Err(_) => return,
                // The connection broke in the middle of a line, which will come again.
                Ok(n) if n < MAX_LINE && !text.ends_with(b"\n") => return,
                Ok(_) => self.heard_now(),
            }
            let event = match parse(&text) {
                Ok((_, Down::Renew { seen })) => {
                    self.line.confirm(seen);
                    self.line.mention(&Up::Seen { seen: self.taken() });
                    continue;
                }
                Ok((_, Down::Ping { id })) => {
                    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
                    self.line.mention(&Up::Pong { id, wall });
                    continue;
                }
                Ok((number, down)) => {
                    // Held until the message is on its way: two connections must not mix their messages.
                    let mut taken = lock(&self.taken);
                    if number <= *taken {
                        continue; // came over an earlier connection, too
                    }
                    if number > *taken + 1 {
                        return; // something is missing: the runner must begin again from what was taken
                    }
                    *taken = number;
                    if self.events.send(Event::Down(down)).is_err() {
                        return;
                    }
                    unconfirmed += text.len();
                    if unconfirmed > UNCONFIRMED {
                        unconfirmed = 0;
                        self.line.mention(&Up::Seen { seen: *taken });
                    }
                    continue;
                }
                Err(e) => Event::Garbled(e.to_string()),
            };
            if self.events.send(event).is_err() {
                return;
            }
        }
    }
}

/// Removes folders of earlier agents of this run and place, but not the one that holds our own binary.
fn remove_earlier(root: &Path, name: &str, own: Option<&Path>) {
    for entry in std::fs::read_dir(root).into_iter().flatten().filter_map(Result::ok) {
        let earlier = entry.file_name().to_string_lossy().starts_with(name);
        if earlier && own.is_none_or(|own| own.file_name() != Some(&entry.file_name())) {
            let _ = files::remove_all(&entry.path());
        }
    }
}

/// Removes what the agent leaves behind.
fn remove(leavings: &[PathBuf]) {
    for leaving in leavings {
        let _ = files::remove_all(leaving);
    }
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

/// Says messages until nobody has anything to say, or nobody hears; the thread ends once all is said.
fn speak(line: Line) -> (SyncSender<Up>, JoinHandle<()>) {
    let (up, messages) = sync_channel::<Up>(WAITING);
    let spoken = std::thread::spawn(move || {
        for message in messages {
            if !line.say(&message) {
                return;
            }
        }
    });
    (up, spoken)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends everything by itself should the agent be stuck when the lease lapses, for instance in the middle of a message
/// that a frozen runner does not take.
fn stand_by(ear: Arc<Ear>, lease: Duration, leavings: Vec<PathBuf>) {
    let late = lease + Duration::from_secs(5);
    std::thread::spawn(move || {
        while ear.silent() <= late {
            std::thread::sleep(Duration::from_millis(200));
        }
        processes::end_descendants();
        remove(&leavings);
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
    /// What the runner said while a task was cleaned up.
    later: VecDeque<Down>,
    /// The runner went away in the middle of a clean-up.
    closed: bool,
    /// Whether a connection that is gone may be followed by another one.
    lasting: bool,
    ear: Arc<Ear>,
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
            let next = match self.later.pop_front() {
                Some(down) => Ok(Event::Down(down)),
                None => inbox.recv_timeout(TICK),
            };
            match next {
                Ok(Event::Closed) if self.lasting => {}
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
            let was_silent = std::mem::replace(&mut silent, self.ear.silent() > self.lease);
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
                        Event::Closed if self.lasting => {}
                        Event::Closed | Event::Told(_) | Event::Down(Down::Bye) => self.closed = true,
                        // Words about the next task: their turn comes.
                        Event::Down(down) => self.later.push_back(down),
                        Event::Garbled(_) => {}
                    }
                }
                let (ended, stuck) = self.finish();
                self.tell(Up::Finished { ended, stuck });
            }
            Down::Hello { .. } | Down::Attach { .. } | Down::Renew { .. } | Down::Ping { .. } | Down::Bye => {
            }
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
