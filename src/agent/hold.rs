//! An agent that outlives its connection: how it is started over a remote shell, and how a runner comes back to it.
//!
//! What the remote shell starts is a relay between its own streams and the agent proper, which runs in a session of its
//! own and holds a socket in its folder. When the connection breaks, the relay ends; a new one finds the socket. Here:
//! relay, socket, and who may come in. Not here: what is said.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write},
    net::Shutdown,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::{
            net::{UnixListener, UnixStream},
            process::CommandExt as _,
        },
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, poll};

use super::{Ear, line::Line, line::Way};
use crate::wire::{Down, MAX_LINE, parse};

/// How long a newcomer may take to say who it is.
const INTRODUCTION: Duration = Duration::from_secs(10);

/// How long a relay goes on passing on what is left after the agent has hung up.
const REST: Duration = Duration::from_secs(2);

/// The name of the socket, and of the way to the binary, in the agent's folder.
const SOCKET: &str = "socket";
/// See [`SOCKET`].
const BINARY: &str = "agent";

/// A socket as a way to the runner.
pub(super) struct Stream(pub(super) UnixStream);

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Way for Stream {
    fn cutter(&self) -> Option<Box<dyn FnOnce() + Send>> {
        let other = self.0.try_clone().ok()?;
        Some(Box::new(move || {
            let _ = other.shutdown(Shutdown::Both);
        }))
    }
}

/// What an agent that outlives its connection was told when it was started.
pub(super) struct Held {
    /// Where its folder is made unless the runner says otherwise.
    pub(super) root: PathBuf,
    /// A folder that was made for its binary and goes with it.
    pub(super) binary_dir: Option<PathBuf>,
}

/// Starts an agent that outlives this process, and passes on what it and the runner say.
///
/// `args`: `keep` or `drop` (whether the folder of the binary goes with the agent), and the root of its folder.
pub(super) fn remote(args: &[String]) -> Result<(), String> {
    let failed = |e: io::Error| format!("cannot start the agent: {e}");
    let (near, far) = UnixStream::pair().map_err(failed)?;
    Command::new("/proc/self/exe")
        .args(["agent", "hold"])
        .args(args)
        .stdin(Stdio::from(OwnedFd::from(far)))
        // The remote shell's streams must not be held open: they end with the relay.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    relay(&near)
}

/// Passes on what the agent in this folder and the runner say.
pub(super) fn attach(args: &[String]) -> Result<(), String> {
    let [folder] = args else { return Err("attach to which folder?".to_owned()) };
    let near = in_folder(Path::new(folder), |path| UnixStream::connect(path));
    relay(&near.map_err(|e| format!("no agent answers in {folder}: {e}"))?)
}

/// Whether an agent answers in this folder.
pub(super) fn alive(args: &[String]) -> Result<(), String> {
    let [folder] = args else { return Err("alive in which folder?".to_owned()) };
    in_folder(Path::new(folder), |path| UnixStream::connect(path)).map(drop).map_err(|e| e.to_string())
}

/// The agent proper.
pub(super) fn hold(args: &[String]) -> Result<(), String> {
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(|e| e.to_string())?;
    let stream = UnixStream::from(input);
    let root = args.get(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let binary = std::fs::read_link("/proc/self/exe").ok();
    let dropped = args.first().is_some_and(|how| how == "drop");
    let binary_dir = binary.filter(|_| dropped).and_then(|b| b.parent().map(Path::to_owned));
    let reader = stream.try_clone().map_err(|e| e.to_string())?;
    super::work(reader, Box::new(Stream(stream)), Some(Held { root, binary_dir }))
}

/// Does something with a socket in a folder whose path may be longer than that of a socket may be.
fn in_folder<T>(folder: &Path, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let dir = std::fs::File::open(folder)?;
    act(Path::new(&format!("/proc/self/fd/{}/{SOCKET}", dir.as_raw_fd())))
}

/// Lets runners that come back in.
pub(super) fn listen(folder: &Path, ear: &Arc<Ear>, line: &Line) -> io::Result<()> {
    let binary = std::fs::read_link("/proc/self/exe")?;
    std::os::unix::fs::symlink(binary, folder.join(BINARY))?;
    let listener = in_folder(folder, |path| UnixListener::bind(path))?;
    let (ear, line) = (ear.clone(), line.clone());
    std::thread::spawn(move || {
        for stream in listener.incoming().filter_map(Result::ok) {
            let (ear, line) = (ear.clone(), line.clone());
            std::thread::spawn(move || {
                let _ = admit(&stream, &ear, &line);
            });
        }
    });
    Ok(())
}

/// Goes on with a runner that shows that it is ours.
fn admit(stream: &UnixStream, ear: &Ear, line: &Line) -> io::Result<()> {
    stream.set_read_timeout(Some(INTRODUCTION))?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = Vec::new();
    reader.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut first)?;
    let Ok((_, Down::Attach { mark, seen })) = parse(&first) else { return Ok(()) };
    if line.is_marked(&mark) {
        stream.set_read_timeout(None)?;
        ear.heard_now();
        line.go_on(Box::new(Stream(stream.try_clone()?)), seen, ear.taken());
        ear.listen(reader);
        let _ = stream.shutdown(Shutdown::Both);
    }
    Ok(())
}

/// Passes bytes on both ways until the agent has hung up or the runner is gone.
fn relay(agent: &UnixStream) -> Result<(), String> {
    let failed = |e: io::Error| e.to_string();
    let (mut to, mut from) = (agent.try_clone().map_err(failed)?, agent.try_clone().map_err(failed)?);
    std::thread::spawn(move || {
        pass_on(&mut io::stdin(), &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let hung_up = agent.try_clone().map_err(failed)?;
    std::thread::spawn(move || {
        // A relay that is stuck in writing to a dead connection must end with its agent all the same.
        let mut fds = [PollFd::new(&hung_up, PollFlags::RDHUP)];
        while poll(&mut fds, None).is_err() {}
        std::thread::sleep(REST);
        #[expect(clippy::exit, reason = "the main thread is stuck: nothing else ends the process")]
        std::process::exit(0);
    });
    pass_on(&mut from, &mut io::stdout().lock());
    Ok(())
}

/// Copies by reading and writing. `io::copy` would splice, and a splice that waits for a socket holds the lock of the
/// pipe, so that sshd could not read what is already in it.
fn pass_on(from: &mut impl io::Read, to: &mut impl Write) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) if to.write_all(&buffer[..n]).and_then(|()| to.flush()).is_ok() => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            _ => return,
        }
    }
}
