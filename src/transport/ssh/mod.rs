//! A host behind an SSH server, by the `openssh` crate: one connection, and on it one channel to an agent.
//!
//! The agent's binary is uploaded unless the host has it. Here: how an agent is started there and found again. In the
//! files beside: the controller's own folder and settings ([`controller`]), binaries ([`binary`]), what ssh's words
//! mean (`words`). Invariant: no remote text decides anything unless it stands behind the random mark.

pub mod binary;
pub mod controller;
mod preflight;
mod words;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use openssh::{KnownHosts, Session, SessionBuilder, Stdio};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    time::timeout,
};

use super::{BoxFuture, NoPipe, Pipe, Transport};
use crate::outcome::{Cause, Outcome, OutcomeKind, printable};
use binary::Binary;
use controller::Controller;

/// How a host is reached.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Target {
    /// A name that ssh knows.
    pub host: String,
    /// Who logs in; `None`: as ssh decides.
    pub user: Option<String>,
    /// The port; `None`: as ssh decides.
    pub port: Option<u16>,
    /// The key file; `None`: as ssh decides.
    pub identity: Option<PathBuf>,
    /// Where files may be put; `None`: the host's folders for temporary files.
    pub workdir: Option<String>,
}

/// How long a login shell may take to start anything.
const SLOWEST_SHELL: Duration = Duration::from_secs(30);

/// From when on a login shell is worth a word.
const SLOW_SHELL: Duration = Duration::from_millis(500);

/// How often a connection is tried that the server dropped because too many came at once.
const TRIES: u32 = 4;

/// Longest line of a shell before the mark.
const LONGEST: u64 = 64 << 10;

/// Lines before the mark that are kept.
const KEPT: usize = 20;

/// Starts a cached agent, or says what the host is. No single quote, line end or `!`: any login shell passes it on.
const START: &str = concat!(
    r#"umask 077; m=$1; shift; for h; do f="$HOME/.cache/planrun/agent-$h"; "#,
    r#"if [ -x "$f" ] && "$f" agent ready; then printf "\036%s start\n" "$m"; "#,
    r#"exec "$f" agent remote keep "${TMPDIR:-/tmp}"; fi; done; "#,
    r#"printf "\036%s need %s %s\n" "$m" "$(uname -m)" "$(getconf GNU_LIBC_VERSION 2>/dev/null || echo unknown)""#,
);

/// Takes a binary into the first folder that takes and runs files, checks it, and says where it is.
const UPLOAD: &str = concat!(
    r#"umask 077; m=$1; h=$2; n=$3; t=$4; k=$5; s=$6; w=$7; i=0; "#,
    r#"sum() { if command -v sha256sum >/dev/null; then [ "$(sha256sum <"$1")" = "$h  -" ]; fi; }; "#,
    r#"for d in "$HOME/.cache/planrun" "$w" "${TMPDIR:-/tmp}" /var/tmp "$HOME" /dev/shm; do i=$((i+1)); "#,
    r#"if [ $i -le $s ] || [ -z "$d" ]; then continue; fi; "#,
    r#"if [ $i = 1 ]; then [ $k = 1 ] || continue; p=$d; q=keep; r="${TMPDIR:-/tmp}"; "#,
    r#"else [ $i = 2 ] || [ -d "$d" ] || continue; p="$d/planrun-$t.up"; q=drop; r=$d; fi; "#,
    r#"c="$p/try.$$"; f="$p/agent-$h"; "#,
    r##"if mkdir -p "$p" && printf "#%s/bin/sh\n" "$(printf "\041")" >"$c" && chmod 700 "$c" && "$c"; then "##,
    r#"if cat >"$c" && [ "$(wc -c <"$c")" -eq $n ] && sum "$c" && "$c" agent ready && mv -f "$c" "$f"; "#,
    r#"then printf "\036%s at\036%s\036%s\036%s\n" "$m" "$q" "$r" "$f"; exit 0; fi; "#,
    r#"rm -f "$c"; [ $q = keep ] || rmdir "$p"; printf "\036%s bad %s %s\n" "$m" $i "$p"; exit 0; fi; "#,
    r#"rm -f "$c"; [ $q = keep ] || rmdir "$p"; done; printf "\036%s none\n" "$m""#,
);

/// Starts an agent whose binary is there.
const RUN: &str = r#"printf "\036%s start\n" "$1"; exec "$2" agent remote "$3" "$4""#;

/// Finds an agent again, or says that it is gone.
const ATTACH: &str = concat!(
    r#"b=$(cat /proc/sys/kernel/random/boot_id); if [ -S "$2/socket" ] && "$2/agent" agent alive "$2"; "#,
    r#"then printf "\036%s here %s\n" "$1" "$b"; exec "$2/agent" agent attach "$2"; fi; "#,
    r#"printf "\036%s gone %s\n" "$1" "$b""#,
);

/// The way to a host.
#[derive(Clone)]
pub struct Ssh {
    target: Target,
    controller: Arc<Controller>,
    /// The socket of the latest connection.
    latest: Arc<Mutex<Option<PathBuf>>>,
}

/// A remote program with what it said behind the mark.
struct Remote {
    child: openssh::Child<Arc<Session>>,
    up: BufReader<openssh::ChildStdout>,
    /// The line behind the mark.
    word: String,
    /// Lines before it.
    noise: Vec<String>,
    /// How long it took to say it.
    took: Duration,
}

impl Ssh {
    /// A way to this host.
    pub fn new(target: Target, controller: Arc<Controller>) -> Self {
        Self { target, controller, latest: Arc::default() }
    }

    /// Logs in. Returns the connection and what a reader should know of it.
    ///
    /// # Errors
    /// When ssh cannot: the outcome says why and what helps.
    pub async fn log_in(&self) -> Result<(Arc<Session>, Vec<String>), NoPipe> {
        let answers = self.controller.ask(&self.target).await?;
        let mut notes = Vec::new();
        let check = match answers.host_key_check.as_str() {
            "false" | "no" | "off" => {
                notes.push("host identity not checked: ssh_config sets StrictHostKeyChecking no".to_owned());
                KnownHosts::Accept
            }
            "accept-new" if answers.known_hosts == "/dev/null" => {
                notes.push(
                    "host identity not checked: ssh_config sets UserKnownHostsFile /dev/null".to_owned(),
                );
                KnownHosts::Add
            }
            "accept-new" => KnownHosts::Add,
            _ => KnownHosts::Strict,
        };
        let mut builder = SessionBuilder::default();
        builder
            .config_file(self.controller.config())
            .control_directory(self.controller.dir())
            .control_persist(openssh::ControlPersist::IdleFor(controller::IDLE))
            .known_hosts_check(check);
        if let Some(user) = &self.target.user {
            builder.user(user.clone());
        }
        if let Some(port) = self.target.port {
            builder.port(port);
        }
        if let Some(identity) = &self.target.identity {
            builder.keyfile(identity);
        }
        let mut tries = 0;
        loop {
            tries += 1;
            match builder.connect_mux(&self.target.host).await {
                Ok(session) => {
                    let session = Arc::new(session);
                    self.controller.keep(&session);
                    let path = session.control_socket().to_owned();
                    *self.latest.lock().unwrap_or_else(PoisonError::into_inner) = Some(path);
                    return Ok((session, notes));
                }
                Err(e) => {
                    let (no_pipe, crowded) = words::connect_error(&e, &self.target, &answers);
                    if !crowded || tries == TRIES {
                        return Err(no_pipe);
                    }
                    // Servers drop at random when many come at once: not all at the same moment again.
                    let wait = 100 * 2_u32.pow(tries) + u32::from(self.controller.jitter());
                    tokio::time::sleep(Duration::from_millis(u64::from(wait))).await;
                }
            }
        }
    }

    /// Starts a script there and waits for its first word behind the mark.
    async fn start(
        &self,
        session: &Arc<Session>,
        script: &str,
        mark: &str,
        args: &[&str],
        input: Option<Arc<Vec<u8>>>,
    ) -> Result<Remote, NoPipe> {
        let mut command = format!("exec sh -c {} sh {}", words::quoted(script), words::quoted(mark));
        for arg in args {
            command.push(' ');
            command.push_str(&words::quoted(arg));
        }
        let begun = Instant::now();
        let spawned = session
            .clone()
            .arc_raw_command(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .await;
        let mut child = spawned.map_err(|e| words::exec_error(&e, &self.target))?;
        let Some(up) = child.stdout().take() else {
            return Err(words::no_exec(&self.target, "no output"));
        };
        let mut up = BufReader::with_capacity(128 << 10, up);
        if let Some(input) = input
            && let Some(mut to) = child.stdin().take()
        {
            tokio::spawn(async move {
                // One that refuses says so in words.
                let _ = to.write_all(&input).await;
            });
        }
        let prefix = format!("\u{1e}{mark} ");
        let mut noise = Vec::new();
        let word = match timeout(SLOWEST_SHELL, first_word(&mut up, &prefix, &mut noise)).await {
            Ok(Some(word)) => word,
            Ok(None) => {
                let mut said = noise;
                said.extend(rest(child.stderr().take()).await);
                if session.check().await.is_err() {
                    return Err(words::broke(&self.target));
                }
                return Err(words::no_exec(&self.target, &said.join(" / ")));
            }
            Err(_) => return Err(words::no_exec(&self.target, "nothing within 30 s")),
        };
        Ok(Remote { child, up, word, noise, took: begun.elapsed() })
    }

    async fn open(&self, name: &str) -> Result<Pipe, NoPipe> {
        let (session, mut notes) = self.log_in().await?;
        let mark = self.controller.mark();
        let binaries = self.controller.binaries().map_err(|e| self.failed(Cause::NotThere, &e))?;
        let digests: Vec<&str> = binaries.iter().map(|b| b.digest.as_str()).collect();
        let mut remote = self.start(&session, START, &mark, &digests, None).await?;
        if remote.took > SLOW_SHELL {
            notes.push(format!(
                "the login shell takes {:.1} s to start a command: look at what its start-up files do",
                remote.took.as_secs_f64()
            ));
        }
        if let Some(host) = remote.word.strip_prefix("need ") {
            let binary = Binary::fitting(binaries, host).map_err(|e| self.failed(Cause::DoesNotFit, &e))?;
            let [how, root, path] = self.upload(&session, &mark, binary, name).await?;
            remote = self.start(&session, RUN, &mark, &[&path, &how, &root], None).await?;
        }
        if remote.word != "start" {
            return Err(words::no_exec(&self.target, &remote.word));
        }
        Ok(pipe(remote, notes))
    }

    /// Uploads a binary. Returns how it is kept, the root of the agent's folder, and its path.
    async fn upload(
        &self,
        session: &Arc<Session>,
        mark: &str,
        binary: &Binary,
        name: &str,
    ) -> Result<[String; 3], NoPipe> {
        let (bytes, keep) = (&binary.bytes, if self.controller.keep_agent { "1" } else { "0" });
        let size = bytes.len().to_string();
        let workdir = self.target.workdir.as_deref().unwrap_or("");
        let (mut tried, mut skip) = (Vec::new(), "0".to_owned());
        loop {
            let args = [binary.digest.as_str(), &size, name, keep, &skip, workdir];
            let mut remote = self.start(session, UPLOAD, mark, &args, Some(bytes.clone())).await?;
            if let Some(at) = remote.word.strip_prefix("at\u{1e}") {
                let fields: Vec<String> = at.split('\u{1e}').map(str::to_owned).collect();
                if let Ok(fields) = fields.try_into() {
                    return Ok(fields);
                }
            }
            tried.extend(rest(remote.child.stderr().take()).await);
            // A folder that took only a part: the next one.
            if let Some((index, folder)) =
                remote.word.strip_prefix("bad ").and_then(|bad| bad.split_once(' '))
            {
                tried.push(format!("{} took only a part", printable(folder)));
                index.clone_into(&mut skip);
            } else {
                let tried = if tried.is_empty() { String::new() } else { format!(": {}", tried.join("; ")) };
                let why = format!(
                    "no folder on the host takes and runs the agent ({} KB){tried}; set `workdir` of the endpoint to one \
                     that does",
                    bytes.len() / 1000
                );
                return Err(self.failed(Cause::Disk, &why));
            }
        }
    }

    async fn find(&self, folder: &str, boot_id: &str) -> Result<Pipe, NoPipe> {
        // The old connection may still hope for an answer.
        if let Some(old) = self.latest.lock().unwrap_or_else(PoisonError::into_inner).take() {
            controller::end_masters(&old);
        }
        let (session, _) = self.log_in().await?;
        let remote = self.start(&session, ATTACH, &self.controller.mark(), &[folder], None).await?;
        let (what, boot) = remote.word.split_once(' ').unwrap_or((&remote.word, ""));
        if what == "here" {
            return Ok(pipe(remote, Vec::new()));
        }
        let (cause, reason) = if boot != boot_id && !boot.is_empty() && !boot_id.is_empty() {
            (Cause::Rebooted, "the host was restarted: it has another boot id")
        } else {
            (Cause::ContactLost, "the agent on the host is gone")
        };
        let outcome = Outcome::new(OutcomeKind::Lost, cause, reason);
        Err(NoPipe { outcome, again: false })
    }

    fn failed(&self, cause: Cause, reason: &str) -> NoPipe {
        let kind = if cause == Cause::Disk { OutcomeKind::Failed } else { OutcomeKind::Lost };
        let reason = format!("{}: {reason}", self.target.host);
        NoPipe { outcome: Outcome::new(kind, cause, reason), again: false }
    }
}

impl Transport for Ssh {
    fn connect(&self, name: &str) -> BoxFuture<Result<Pipe, NoPipe>> {
        let (ssh, name) = (self.clone(), name.to_owned());
        Box::pin(async move { ssh.open(&name).await })
    }

    fn attach(&self, folder: &str, boot_id: &str) -> Option<BoxFuture<Result<Pipe, NoPipe>>> {
        let (ssh, folder, boot_id) = (self.clone(), folder.to_owned(), boot_id.to_owned());
        Some(Box::pin(async move { ssh.find(&folder, &boot_id).await }))
    }

    fn lasting(&self) -> bool {
        true
    }
}

/// A remote program as a pipe.
fn pipe(mut remote: Remote, notes: Vec<String>) -> Pipe {
    let (down, aside) = (remote.child.stdin().take(), remote.child.stderr().take());
    let gone = Box::pin(async move {
        let _ = remote.child.wait().await;
    });
    Pipe {
        down: down.map_or_else(|| Box::new(tokio::io::sink()) as Box<_>, |down| Box::new(down) as Box<_>),
        up: Box::new(remote.up),
        aside: aside
            .map_or_else(|| Box::new(tokio::io::empty()) as Box<_>, |aside| Box::new(aside) as Box<_>),
        gone,
        notes,
        noise: remote.noise,
    }
}

/// The first line behind the mark; what comes before it is kept as noise.
async fn first_word(
    up: &mut (impl AsyncBufRead + Unpin),
    prefix: &str,
    noise: &mut Vec<String>,
) -> Option<String> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if !matches!((&mut *up).take(LONGEST).read_until(b'\n', &mut line).await, Ok(1..)) {
            return None;
        }
        let text = String::from_utf8_lossy(&line);
        let (before, word) = match text.split_once(prefix) {
            Some((before, word)) => (before, Some(word.trim_end())),
            None => (text.as_ref(), None),
        };
        let before = printable(before);
        if !before.is_empty() && noise.len() < KEPT {
            noise.push(before);
        }
        if let Some(word) = word {
            return Some(word.to_owned());
        }
    }
}

/// The last lines of an error output that ends soon.
async fn rest(from: Option<openssh::ChildStderr>) -> Vec<String> {
    let Some(from) = from else { return Vec::new() };
    let mut bytes = Vec::new();
    let _ = timeout(Duration::from_secs(2), from.take(LONGEST).read_to_end(&mut bytes)).await;
    String::from_utf8_lossy(&bytes).lines().map(printable).filter(|l| !l.is_empty()).take(KEPT).collect()
}
