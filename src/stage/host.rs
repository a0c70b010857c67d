//! The host as a stage sees it: start programs, hear what they say, move files. One task at a time.
//!
//! Above the wire and below every stage. It neither knows how bytes travel nor what a program measures.

use std::{collections::BTreeMap, path::Path};

use tokio::sync::mpsc;

use crate::{
    outcome::{Cause, Outcome, OutcomeKind, printable},
    readers::Lines,
    wire::{Blob, CHUNK, Down, Program, Spawn, Status, Stream, Up},
};

/// Where the raw output of a task goes.
pub trait Tap: Send {
    /// Takes the next bytes of one stream of the program that plays `role`.
    fn output(&mut self, role: &str, stream: Stream, bytes: &[u8]);
    /// Takes the next bytes of a fetched file.
    fn artifact(&mut self, path: &str, bytes: &[u8], last: bool);
    /// Takes a line that a program beside said, if it is meant for the tap; else the stage may ask for it.
    fn takes(&mut self, role: &str, line: &str) -> bool;
}

/// What a program is to its task; names its log.
pub type Role = &'static str;

/// The role of the sampler that runs beside every task.
pub const TELEMETRY: Role = "telemetry";

/// A host that tasks run on, one after the other.
pub struct Host {
    down: mpsc::Sender<Down>,
    up: mpsc::Receiver<Up>,
    tap: Option<Box<dyn Tap>>,
    /// The task's folder on the host.
    pub folder: String,
    /// Logical CPUs that tasks may use there.
    pub cpus: u32,
    /// When anything was last heard from it.
    pub heard: std::time::Instant,
    /// When anything was last printed there, by the host's monotonic clock, in seconds.
    pub latest: f64,
    next: u32,
    /// The agent's folder, below which it makes one for each task.
    root: String,
    /// Tasks that were begun.
    tasks: u32,
    /// Tasks that are over, and that the agent has not cleaned up yet.
    closing: u32,
    /// What it found when it did.
    swept: Swept,
    /// Programs that were started and have not ended.
    running: BTreeMap<u32, (Role, Lines)>,
    /// Lines of programs beside the main one, until somebody asks.
    beside: Vec<(Role, String)>,
    /// Bytes of them.
    beside_bytes: usize,
    /// Programs beside the main one that ended before anybody asked.
    ended: Vec<(Role, Status)>,
}

/// What a program that was waited for said and how it ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended {
    /// How.
    pub status: Status,
    /// Seconds by the host's monotonic clock.
    pub seconds: f64,
    /// The last lines of its standard error.
    pub last_words: Vec<String>,
}

/// A program to run.
#[derive(Debug, Clone)]
pub struct Run {
    /// What it is to the task.
    pub role: Role,
    /// What to start.
    pub program: Program,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// Its folder; `None`: the task's own.
    pub dir: Option<String>,
    /// Its input.
    pub stdin: Option<String>,
    /// What undoes it.
    pub undo: Option<Vec<String>>,
    /// Seconds to wait before it is started.
    pub after: Option<f64>,
    /// The program beside that it cannot do without: it is ended once that one has failed.
    pub beside: Option<Role>,
}

impl Run {
    /// A program with nothing special about it.
    pub fn new(role: Role, program: Program) -> Self {
        let (env, dir, stdin, undo, after, beside) = (BTreeMap::new(), None, None, None, None, None);
        Self { role, program, env, dir, stdin, undo, after, beside }
    }

    /// A probe with its options.
    pub fn probe(role: Role, kind: &str, spec: &serde_json::Value) -> Self {
        Self { stdin: Some(spec.to_string()), ..Self::new(role, Program::Probe(kind.to_owned())) }
    }
}

/// A line of a program, with the host's monotonic time at which it was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line<'a> {
    /// Which stream.
    pub stream: Stream,
    /// Seconds, only to be compared with others of the same host.
    pub at: f64,
    /// The text.
    pub text: &'a str,
}

/// How many lines of standard error are kept to explain a failure.
const LAST_WORDS: usize = 8;

/// Bytes of the lines of programs beside the main one that are kept at most.
const MOST_BESIDE: usize = 16 << 20;

/// What the agent found when a task was over.
#[derive(Debug, Default)]
pub struct Swept {
    /// Processes that had to be ended.
    pub ended: u32,
    /// Those that could not be.
    pub stuck: Vec<u32>,
    /// What else went wrong with the clean-up, in words.
    pub troubles: Vec<String>,
}

impl Host {
    /// A host over an open link to its agent.
    pub fn new(down: mpsc::Sender<Down>, up: mpsc::Receiver<Up>, cpus: u32, root: String) -> Self {
        Self {
            down,
            up,
            tap: None,
            folder: root.clone(),
            cpus,
            heard: std::time::Instant::now(),
            latest: 0.0,
            next: 0,
            root,
            tasks: 0,
            closing: 0,
            swept: Swept::default(),
            running: BTreeMap::new(),
            beside: Vec::new(),
            beside_bytes: 0,
            ended: Vec::new(),
        }
    }

    /// Begins a task: the agent makes its folder, raw output goes to `tap`. Nothing is waited for: where the folder will
    /// be is known, and an agent that cannot make it says so when it is asked for more.
    ///
    /// # Errors
    /// When contact is lost.
    pub async fn begin(&mut self, task: &str, tap: Box<dyn Tap>) -> Result<(), Outcome> {
        self.tap = Some(tap);
        self.running.clear();
        self.beside.clear();
        self.beside_bytes = 0;
        self.ended.clear();
        self.tasks += 1;
        self.folder = format!("{}/task-{}", self.root, self.tasks);
        self.tell(Down::Begin { task: task.to_owned() }).await
    }

    /// Ends the task: the agent ends all that it started and removes its folder.
    ///
    /// # Errors
    /// When contact is lost.
    pub async fn finish(&mut self) -> Result<Swept, Outcome> {
        self.finish_soon().await?;
        while self.closing > 0 {
            let up = self.receive().await?;
            self.close(up);
        }
        self.tap = None;
        Ok(self.take_swept())
    }

    /// Tells the agent to end the task, and does not wait: nothing of the next one begins before it has.
    ///
    /// # Errors
    /// When contact is lost.
    pub async fn finish_soon(&mut self) -> Result<(), Outcome> {
        self.closing += 1;
        self.tell(Down::Finish).await
    }

    /// What the agent found when it cleaned up, since the last call.
    pub fn take_swept(&mut self) -> Swept {
        std::mem::take(&mut self.swept)
    }

    /// A message about a task that is over.
    fn close(&mut self, up: Up) {
        match up {
            Up::Finished { ended, stuck } => {
                self.closing -= 1;
                self.swept.ended += ended;
                self.swept.stuck.extend(stuck);
            }
            // What goes wrong now does not change how the task ended, but somebody should know.
            other => {
                let trouble = self.beside(other).err();
                self.swept.troubles.extend(trouble.map(|o| o.reason));
            }
        }
    }

    async fn tell(&mut self, down: Down) -> Result<(), Outcome> {
        self.down.send(down).await.map_err(|_| contact_lost())
    }

    async fn hear(&mut self) -> Result<Up, Outcome> {
        while self.closing > 0 {
            let up = self.receive().await?;
            self.close(up);
        }
        self.receive().await
    }

    async fn receive(&mut self) -> Result<Up, Outcome> {
        let up = self.up.recv().await.ok_or_else(contact_lost)?;
        self.heard = std::time::Instant::now();
        if let Up::Output { at, .. } = &up {
            self.latest = self.latest.max(*at);
        }
        Ok(up)
    }

    fn log(&mut self, role: Role, stream: Stream, bytes: &[u8]) {
        if let Some(tap) = &mut self.tap {
            tap.output(role, stream, bytes);
        }
    }

    /// Starts a program beside; its output goes to the log and to [`Self::said_by`].
    ///
    /// # Errors
    /// When contact is lost.
    pub async fn start(&mut self, run: Run) -> Result<u32, Outcome> {
        let id = self.next;
        self.next += 1;
        self.running.insert(id, (run.role, Lines::default()));
        let Run { program, env, dir, stdin, undo, after, .. } = run;
        self.tell(Down::Spawn(Box::new(Spawn { id, program, env, dir, stdin, undo, after }))).await?;
        Ok(id)
    }

    /// Ends a program that was started beside, and waits for its end.
    ///
    /// # Errors
    /// When contact is lost.
    pub async fn stop(&mut self, id: u32) -> Result<(), Outcome> {
        if self.running.contains_key(&id) {
            self.tell(Down::Kill { id }).await?;
        }
        while self.running.contains_key(&id) {
            let up = self.hear().await?;
            self.beside(up)?;
        }
        Ok(())
    }

    /// Runs a program to its end, handing on each line as it comes.
    ///
    /// # Errors
    /// When contact is lost or the agent cannot do it; a program that fails is no error here.
    pub async fn run(&mut self, run: Run, mut each: impl FnMut(Line<'_>) + Send) -> Result<Ended, Outcome> {
        let (role, needed) = (run.role, run.beside);
        let own = self.start(run).await?;
        let mut given_up = false;
        let mut errors = Lines::default();
        let mut last_words = std::collections::VecDeque::new();
        let mut latest = 0.0;
        loop {
            match self.hear().await? {
                Up::Output { id, stream, at, data } if id == own => {
                    latest = at;
                    self.log(role, stream, &data.0);
                    match stream {
                        Stream::Out => {
                            if let Some((_, lines)) = self.running.get_mut(&own) {
                                lines.take(&data.0, |text| each(Line { stream, at, text }));
                            }
                        }
                        Stream::Err => errors.take(&data.0, |text| {
                            if last_words.len() == LAST_WORDS {
                                last_words.pop_front();
                            }
                            last_words.push_back(text.to_owned());
                            each(Line { stream, at, text });
                        }),
                    }
                    // What the lines told is taken in before more is read: a flood must not pile up in memory.
                    tokio::task::yield_now().await;
                }
                Up::End { id, status, seconds } if id == own => {
                    if let Some((_, mut lines)) = self.running.remove(&own) {
                        lines.end(|text| each(Line { stream: Stream::Out, at: latest, text }));
                    }
                    errors.end(|text| last_words.push_back(text.to_owned()));
                    return Ok(Ended { status, seconds, last_words: last_words.into() });
                }
                other => self.beside(other)?,
            }
            let needed = needed.and_then(|role| self.ended_beside(role));
            if !given_up && needed.is_some_and(|status| *status != Status::Exited(0)) {
                given_up = true;
                self.tell(Down::Kill { id: own }).await?;
            }
        }
    }

    /// A message that is not about the program that is waited for.
    fn beside(&mut self, up: Up) -> Result<(), Outcome> {
        match up {
            Up::Output { id, stream, data, .. } => {
                let role = self.running.get(&id).map(|(role, _)| *role);
                if let Some(role) = role {
                    self.log(role, stream, &data.0);
                }
                if let Some((role, lines)) = self.running.get_mut(&id)
                    && stream == Stream::Out
                {
                    let (beside, kept, tap) = (&mut self.beside, &mut self.beside_bytes, &mut self.tap);
                    lines.take(&data.0, |text| {
                        let taken = tap.as_mut().is_some_and(|tap| tap.takes(role, text));
                        if !taken && *kept < MOST_BESIDE {
                            *kept += text.len() + size_of::<(Role, String)>();
                            beside.push((*role, text.to_owned()));
                        }
                    });
                }
                Ok(())
            }
            Up::End { id, status, .. } => {
                if let Some((role, _)) = self.running.remove(&id) {
                    self.ended.push((role, status));
                }
                Ok(())
            }
            Up::Trouble { disk, text, .. } => {
                let cause = if disk { Cause::Disk } else { Cause::Internal };
                Err(Outcome::new(OutcomeKind::Failed, cause, text))
            }
            _ => Ok(()),
        }
    }

    /// What the programs of a role beside have said on standard output since the last call, line by line.
    pub fn said_by(&mut self, role: Role) -> Vec<String> {
        let said: Vec<String> =
            self.beside.extract_if(.., |(r, _)| *r == role).map(|(_, line)| line).collect();
        let bytes: usize = said.iter().map(|line| line.len() + size_of::<(Role, String)>()).sum();
        self.beside_bytes = self.beside_bytes.saturating_sub(bytes);
        said
    }

    /// How a program beside ended, if it did.
    pub fn ended_beside(&self, role: Role) -> Option<&Status> {
        self.ended.iter().find(|(r, _)| *r == role).map(|(_, status)| status)
    }

    /// Copies a local file into the task's folder.
    ///
    /// # Errors
    /// When the file cannot be read, the host cannot store it, or contact is lost.
    pub async fn put(&mut self, file: &Path, name: &str) -> Result<(), Outcome> {
        use std::os::unix::fs::PermissionsExt as _;
        use tokio::io::AsyncReadExt as _;
        let no_file = |e: std::io::Error| {
            Outcome::new(OutcomeKind::Failed, Cause::NotThere, format!("cannot read {}: {e}", file.display()))
        };
        let mut from = tokio::fs::File::open(file).await.map_err(no_file)?;
        let mode = from.metadata().await.map_err(no_file)?.permissions().mode();
        loop {
            let mut data = Vec::with_capacity(CHUNK);
            (&mut from).take(CHUNK as u64).read_to_end(&mut data).await.map_err(no_file)?;
            let last = data.len() < CHUNK;
            let (path, data, executable) = (name.to_owned(), Blob(data), mode & 0o111 != 0);
            self.tell(Down::Put { path, data, executable, last }).await?;
            if last {
                break;
            }
            // A disk that is full says so early: the rest is not sent.
            while let Ok(up) = self.up.try_recv() {
                if self.closing > 0 { self.close(up) } else { self.beside(up)? }
            }
        }
        loop {
            match self.hear().await? {
                Up::Stored { path } if path == name => return Ok(()),
                other => self.beside(other)?,
            }
        }
    }

    /// Fetches a file, or all files below a folder, as artifacts. Returns what was left out and why.
    ///
    /// # Errors
    /// When contact is lost.
    pub async fn get(&mut self, path: &str, dir: Option<String>, limit: u64) -> Result<Vec<String>, Outcome> {
        self.tell(Down::Get { path: path.to_owned(), dir, limit }).await?;
        loop {
            match self.hear().await? {
                Up::File { path, data, last } => {
                    if let Some(tap) = &mut self.tap {
                        tap.artifact(&path, &data.0, last);
                    }
                }
                Up::Sent { left_out } => return Ok(left_out),
                other => self.beside(other)?,
            }
        }
    }
}

/// The outcome of a task whose agent is gone.
fn contact_lost() -> Outcome {
    Outcome::new(OutcomeKind::Lost, Cause::ContactLost, "the agent on the host is gone")
}

impl Ended {
    /// The outcome that a program's end means for its task, if it did not end well.
    ///
    /// `what` names the program in the reason.
    pub fn check(&self, what: &str) -> Result<(), Outcome> {
        let said = self.last_words.iter().rfind(|line| !line.trim().is_empty());
        let said = said.map_or_else(String::new, |line| format!(": {}", printable(line)));
        let (cause, how) = match &self.status {
            Status::Exited(0) => return Ok(()),
            Status::Exited(127) => {
                (Cause::CommandNotFound, "ended with code 127, a shell's code for `not found`".to_owned())
            }
            Status::Exited(code) => (Cause::CommandFailed, format!("ended with code {code}")),
            Status::Signalled { oom: true, .. } => {
                (Cause::OomKilled, "was killed by the kernel for want of memory".to_owned())
            }
            Status::Signalled { signal, .. } => {
                (Cause::KilledBySignal, format!("was ended by signal {signal}"))
            }
            Status::NotStarted { reason, missing } => {
                let cause = if *missing { Cause::CommandNotFound } else { Cause::CommandFailed };
                (cause, format!("could not be started: {reason}"))
            }
        };
        Err(Outcome::new(OutcomeKind::Failed, cause, format!("{what} {how}{said}")))
    }
}

/// The outcome of a probe's end; its exit codes tell more than those of other programs.
///
/// # Errors
/// How the task ended, when the probe did not end well.
pub fn check_probe(ended: &Ended, what: &str) -> Result<(), Outcome> {
    let mut checked = ended.check(what);
    if let (Err(outcome), Status::Exited(code)) = (&mut checked, &ended.status) {
        let cause = match *code {
            crate::probe::EXIT_WRONG_DATA => Cause::WrongData,
            crate::probe::EXIT_DISK => Cause::Disk,
            crate::probe::EXIT_NOT_THERE => Cause::NotThere,
            _ => return checked,
        };
        let said = ended.last_words.iter().rfind(|l| !l.trim().is_empty()).map_or("", |l| l.as_str());
        *outcome = Outcome::new(OutcomeKind::Failed, cause, format!("{what}: {}", printable(said)));
    }
    checked
}
