//! What one run needs on this machine to speak ssh: a private short folder with settings and sockets, and a guard that
//! clears it away should the run be killed.
//!
//! Invariant: nothing in that folder, and no ssh that uses it, outlives the run.

use std::{
    io::{Read as _, Write as _},
    num::NonZeroUsize,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use openssh::Session;
use tempfile::TempDir;

use super::{Target, binary, binary::Binary};
use crate::{
    outcome::{Cause, Outcome, OutcomeKind, printable},
    transport::NoPipe,
};

/// The sub-command under which planrun's own binary is the guard.
pub const GUARD: &str = "ssh-guard";

/// A connection that nobody uses any more ends after so many seconds.
pub const IDLE: NonZeroUsize = match NonZeroUsize::new(60) {
    Some(n) => n,
    None => NonZeroUsize::MIN,
};

/// The longest path of a folder whose sockets ssh can bind: 108 bytes less the names that it appends.
const LONGEST_DIR: usize = 40;

/// What planrun must have its way in, whatever the user's own file says: the first value of a key counts.
const FIRST: &str = "\
Host *
  BatchMode yes
  LogLevel ERROR
  RequestTTY no
  RemoteCommand none
  PermitLocalCommand no
  ForwardAgent no
  ForwardX11 no
  ClearAllForwardings yes
  ServerAliveInterval 5
  ServerAliveCountMax 3
";

/// What holds where the user's own file says nothing.
const LAST: &str = "\
Host *
  ConnectTimeout 10
  Ciphers ^aes128-gcm@openssh.com
";

/// ssh as one run uses it.
pub struct Controller {
    dir: Option<TempDir>,
    config: PathBuf,
    guard: Option<Child>,
    binaries: OnceLock<Result<Vec<Binary>, String>>,
    /// Whether the agent's binary stays on the hosts.
    pub keep_agent: bool,
    /// Connections stay open until the run ends: one that is closed before can no longer be told from others' ones.
    sessions: Mutex<Vec<Arc<Session>>>,
}

/// What ssh says it would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answers {
    /// The name or address that it connects to.
    pub hostname: String,
    /// The port.
    pub port: String,
    /// Who logs in.
    pub user: String,
    /// `StrictHostKeyChecking`.
    pub host_key_check: String,
    /// The first `UserKnownHostsFile`.
    pub known_hosts: String,
    /// `ProxyJump`, empty for none.
    pub jump: String,
}

impl Controller {
    /// Makes the folder, with settings that include the user's own: `given` in place of `~/.ssh/config` and the
    /// system's.
    ///
    /// # Errors
    /// When the folder cannot be made, or `given` cannot be read.
    pub fn new(given: Option<&Path>, keep_agent: bool) -> std::io::Result<Self> {
        let temp = std::env::temp_dir();
        let fits = temp.as_os_str().len() <= LONGEST_DIR && temp.is_dir();
        let root = if fits { temp } else { PathBuf::from("/tmp") };
        let dir = tempfile::Builder::new().prefix("planrun-ssh-").rand_bytes(8).tempdir_in(root)?;
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700))?;
        let guard = Command::new("/proc/self/exe")
            .arg(GUARD)
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let config = dir.path().join("config");
        let mut text = FIRST.to_owned();
        let mut include = |name: &str, path: &Path| -> std::io::Result<()> {
            // By a link: the path itself may hold what ssh takes for a pattern.
            let link = dir.path().join(name);
            std::os::unix::fs::symlink(path, &link)?;
            text.extend(["Host *\nInclude ", &link.display().to_string(), "\n"]);
            Ok(())
        };
        match given {
            Some(path) if path.as_os_str() == "none" => {}
            Some(path) => {
                if std::fs::File::open(path)?.metadata()?.is_dir() {
                    return Err(std::io::ErrorKind::IsADirectory.into());
                }
                include("given", &std::path::absolute(path)?)?;
            }
            None => {
                if let Some(home) = std::env::var_os("HOME") {
                    include("user", &Path::new(&home).join(".ssh/config"))?;
                }
                include("system", Path::new("/etc/ssh/ssh_config"))?;
            }
        }
        text.push_str(LAST);
        std::fs::write(&config, text)?;
        let (dir, guard, binaries) = (Some(dir), Some(guard), OnceLock::new());
        Ok(Self { dir, config, guard, binaries, keep_agent, sessions: Mutex::default() })
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        self.dir.as_ref().map_or(Path::new("/nonexistent"), TempDir::path)
    }

    /// The settings file.
    pub fn config(&self) -> &Path {
        &self.config
    }

    /// The agents that can be sent, the smallest first.
    ///
    /// # Errors
    /// When none can be read.
    pub fn binaries(&self) -> Result<&[Binary], String> {
        self.binaries.get_or_init(binary::find).as_ref().map(Vec::as_slice).map_err(Clone::clone)
    }

    /// A word that nothing else prints.
    pub(super) fn mark(&self) -> String {
        let mut bytes = [0_u8; 16];
        let random = std::fs::File::open("/dev/urandom").and_then(|mut f| f.read_exact(&mut bytes));
        match random {
            Ok(()) => format!("{:032x}", u128::from_be_bytes(bytes)),
            // Its name is random, too.
            Err(_) => self.dir().display().to_string(),
        }
    }

    /// Keeps a connection until the run ends.
    pub(super) fn keep(&self, session: &Arc<Session>) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).push(session.clone());
    }

    /// Up to a quarter of a second, in milliseconds.
    pub(super) fn jitter(&self) -> u8 {
        self.mark().bytes().fold(0, |a, b| a.wrapping_mul(31).wrapping_add(b))
    }

    /// Asks ssh what it would do for this host.
    ///
    /// # Errors
    /// When there is no ssh, or its settings are wrong.
    pub async fn ask(&self, target: &Target) -> Result<Answers, NoPipe> {
        let mut command = tokio::process::Command::new("ssh");
        command.arg("-G").arg("-F").arg(&self.config);
        if let Some(user) = &target.user {
            command.arg("-l").arg(user);
        }
        if let Some(port) = target.port {
            command.arg("-p").arg(port.to_string());
        }
        command.arg("--").arg(&target.host).stdin(Stdio::null());
        let failed = |kind, cause, reason: String| {
            Err(NoPipe { outcome: Outcome::new(kind, cause, reason), again: false })
        };
        let output = match command.output().await {
            Ok(output) => output,
            Err(e) => {
                let reason = format!("cannot start ssh: {e}; install an OpenSSH client");
                return failed(OutcomeKind::Unsupported, Cause::NotThere, reason);
            }
        };
        if !output.status.success() {
            let said = printable(&String::from_utf8_lossy(&output.stderr));
            return failed(
                OutcomeKind::Lost,
                Cause::SshSettings,
                format!("ssh refuses its settings: {said}"),
            );
        }
        Ok(Answers::read(&String::from_utf8_lossy(&output.stdout)))
    }
}

impl Answers {
    fn read(text: &str) -> Self {
        let value = |key: &str| {
            let found = text.lines().filter_map(|l| l.split_once(' ')).find(|(k, _)| *k == key);
            found.map_or_else(String::new, |(_, v)| v.trim().to_owned())
        };
        let first = |key: &str| value(key).split(' ').next().unwrap_or_default().to_owned();
        Self {
            hostname: value("hostname"),
            port: value("port"),
            user: value("user"),
            host_key_check: value("stricthostkeychecking"),
            known_hosts: first("userknownhostsfile"),
            jump: value("proxyjump"),
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        if let Some(dir) = self.dir.take() {
            end_masters(dir.path());
            self.sessions.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
            drop(dir);
        }
        if let Some(mut guard) = self.guard.take() {
            drop(guard.stdin.take());
            let until = Instant::now() + Duration::from_secs(2);
            while Instant::now() < until && matches!(guard.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }
}

/// Ends every ssh whose command line names this path.
pub(super) fn end_masters(path: &Path) {
    use std::os::unix::ffi::OsStrExt as _;
    let wanted = path.as_os_str().as_bytes();
    for entry in std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let named = line.windows(wanted.len()).any(|w| w == wanted);
        if named
            && line.starts_with(b"ssh")
            && let Some(pid) = rustix::process::Pid::from_raw(pid)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

/// The guard: waits until the run is gone, however it went, and clears its folder away.
pub fn guard(dir: &Path) {
    let _ = rustix::process::setsid();
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    if dir.is_dir() {
        end_masters(dir);
        let _ = std::fs::remove_dir_all(dir);
    }
    let _ = std::io::stdout().flush();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_as_ssh_prints_them() {
        let text = "user ubuntu\nhostname 203.0.113.21\nport 2201\nstricthostkeychecking false\n\
                    userknownhostsfile /dev/null /other\nidentityfile ~/.ssh/id_gpu\n";
        let answers = Answers::read(text);
        assert_eq!((answers.user.as_str(), answers.port.as_str()), ("ubuntu", "2201"));
        assert_eq!(answers.hostname, "203.0.113.21");
        assert_eq!((answers.known_hosts.as_str(), answers.host_key_check.as_str()), ("/dev/null", "false"));
        assert_eq!(answers.jump, "");
    }
}
