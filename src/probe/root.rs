//! The only way in which the facts of a host are looked at: files below a prefix, and a few calls.
//!
//! Here: capped file reads, listings, file system sizes, limits, helper programs. Not here: what
//! they mean.
//!
//! Invariant: no read is unbounded in size or time, and "not there" is never mixed up with
//! "could not be read".

use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::{IpAddr, ToSocketAddrs as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

use super::child::{self, Output};
use super::text::clean;

/// The most that is read of one file, in bytes (the `cpuinfo` of 1024 processors fits).
const MAX_FILE: u64 = 4 << 20;
/// The most entries of a directory that are looked at.
const MAX_ENTRIES: usize = 4096;

/// Why something was not found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// It does not exist here.
    NotThere,
    /// It may exist but could not be looked at; the reason in words.
    Unreadable(String),
}

impl From<io::Error> for Missing {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NotThere,
            _ => Self::Unreadable(error.to_string()),
        }
    }
}

/// A soft and a hard resource limit; `None` means unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) soft: Option<u64>,
    pub(crate) hard: Option<u64>,
}

/// A mounted file system as `statfs` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    /// The type's name, such as `ext4`, or `0x…` for one that is not known here.
    pub(crate) kind: String,
    /// Its size, in bytes.
    pub(crate) bytes: u64,
    /// What a user other than root may still fill, in bytes.
    pub(crate) free_bytes: u64,
}

/// What is asked of the running system by a call rather than by a file.
pub(crate) trait System {
    /// The file system that holds `path`.
    fn volume(&self, path: &Path) -> Result<Volume, Missing>;
    /// This process's limit of a resource.
    fn limit(&self, resource: Resource) -> Limit;
    /// The machine's architecture as the kernel names it.
    fn arch(&self) -> String;
    /// Runs a helper program of the host.
    fn run(&self, argv: &[&str], limit: Duration) -> Result<Output, Missing>;
    /// True when the search path holds this program.
    fn has_program(&self, program: &str) -> bool;
    /// The addresses of the host's own name; an empty list when it has none.
    fn resolve(&self, name: &str, limit: Duration) -> Result<Vec<IpAddr>, Missing>;
    /// Lets time pass between two looks.
    fn wait(&self, pause: Duration);
    /// The places to look for a file, best first; only recordings have more than one.
    fn places(&self, prefix: &Path, path: &str) -> Vec<PathBuf> {
        vec![prefix.join(path.trim_start_matches('/'))]
    }
}

/// A host to look at: the running one, or one recorded in a folder.
pub struct Root {
    prefix: PathBuf,
    system: Box<dyn System>,
}

impl fmt::Debug for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Root").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl Root {
    /// The running host.
    pub fn live() -> Self {
        Self::at("/")
    }

    /// The running host, with its `/proc`, `/sys` and `/etc` below `prefix`.
    pub fn at(prefix: impl Into<PathBuf>) -> Self {
        Self { prefix: prefix.into(), system: Box::new(Live) }
    }

    #[cfg(test)]
    pub(crate) fn with_system(prefix: impl Into<PathBuf>, system: Box<dyn System>) -> Self {
        Self { prefix: prefix.into(), system }
    }

    /// The bytes of a file, at most 4 MiB of them.
    pub(crate) fn bytes(&self, path: &str) -> Result<Vec<u8>, Missing> {
        let mut missing = Missing::NotThere;
        for place in self.system.places(&self.prefix, path) {
            match read_capped(&place) {
                Ok(bytes) => return Ok(bytes),
                Err(error) => missing = error,
            }
        }
        Err(missing)
    }

    /// The text of a file, with what is no UTF-8 replaced.
    pub(crate) fn text(&self, path: &str) -> Result<String, Missing> {
        Ok(String::from_utf8_lossy(&self.bytes(path)?).into_owned())
    }

    /// The text of a file as one clean line; an empty one counts as not there.
    pub(crate) fn line(&self, path: &str) -> Result<String, Missing> {
        let line = clean(&self.bytes(path)?);
        if line.is_empty() { Err(Missing::NotThere) } else { Ok(line) }
    }

    /// The number that a file holds.
    pub(crate) fn number<N: std::str::FromStr>(&self, path: &str) -> Result<N, Missing> {
        let line = self.line(path)?;
        line.parse().map_err(|_| Missing::Unreadable(format!("`{line}` is no number")))
    }

    /// The names in a directory, sorted; at most 4096 of them.
    pub(crate) fn list(&self, path: &str) -> Result<Vec<String>, Missing> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.path(path)).map_err(Missing::from)?.take(MAX_ENTRIES) {
            let entry = entry.map_err(Missing::from)?;
            if let Ok(name) = entry.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The last part of where a symbolic link points to.
    pub(crate) fn link_name(&self, path: &str) -> Result<String, Missing> {
        let target = self.link(path)?;
        let name = Path::new(&target).file_name().ok_or(Missing::NotThere)?;
        Ok(clean(name.as_encoded_bytes()))
    }

    /// Where a symbolic link points to, as it stands there.
    pub(crate) fn link(&self, path: &str) -> Result<String, Missing> {
        let target = std::fs::read_link(self.path(path)).map_err(Missing::from)?;
        Ok(String::from_utf8_lossy(target.as_os_str().as_encoded_bytes()).into_owned())
    }

    /// True when the path exists, whatever it is.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.path(path).symlink_metadata().is_ok()
    }

    /// The file system that holds `path`.
    pub(crate) fn volume(&self, path: &str) -> Result<Volume, Missing> {
        self.system.volume(&self.path(path))
    }

    /// The calls that go beyond files.
    pub(crate) fn system(&self) -> &dyn System {
        self.system.as_ref()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.prefix.join(path.trim_start_matches('/'))
    }
}

fn read_capped(path: &Path) -> Result<Vec<u8>, Missing> {
    // Without waiting: a named pipe in the place of a file must not hang the probe.
    let nonblock = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file: File = File::options().read(true).custom_flags(nonblock).open(path).map_err(Missing::from)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE).read_to_end(&mut bytes).map_err(Missing::from)?;
    Ok(bytes)
}

/// The running system.
struct Live;

impl System for Live {
    fn volume(&self, path: &Path) -> Result<Volume, Missing> {
        let missing = |error| Missing::from(io::Error::from(error));
        let kind = rustix::fs::statfs(path).map_err(missing)?.f_type;
        let stat = rustix::fs::statvfs(path).map_err(missing)?;
        Ok(Volume {
            // The magic numbers are 32 bits wide whatever the type of the field.
            kind: volume_kind(kind as u32),
            bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
            free_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
        })
    }

    fn limit(&self, resource: Resource) -> Limit {
        let limit = getrlimit(resource);
        Limit { soft: limit.current, hard: limit.maximum }
    }

    fn arch(&self) -> String {
        clean(rustix::system::uname().machine().to_bytes())
    }

    fn run(&self, argv: &[&str], limit: Duration) -> Result<Output, Missing> {
        child::run(argv, limit)
    }

    fn has_program(&self, program: &str) -> bool {
        use std::os::unix::fs::PermissionsExt as _;
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|folder| {
            folder
                .join(program)
                .metadata()
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
    }

    fn resolve(&self, name: &str, limit: Duration) -> Result<Vec<IpAddr>, Missing> {
        let (send, receive) = std::sync::mpsc::channel();
        let target = (name.to_owned(), 0);
        // The resolver cannot be interrupted; its thread ends with the probe at the latest.
        std::thread::spawn(move || send.send(target.to_socket_addrs().map(Iterator::collect::<Vec<_>>)));
        match receive.recv_timeout(limit) {
            Ok(Ok(found)) => Ok(found.iter().map(std::net::SocketAddr::ip).collect()),
            Ok(Err(_)) => Ok(Vec::new()),
            Err(_) => Err(Missing::Unreadable(format!("no answer within {:.1} s", limit.as_secs_f64()))),
        }
    }

    fn wait(&self, pause: Duration) {
        std::thread::sleep(pause);
    }
}

/// The name of a file system type by its `statfs` number.
///
/// # Source
/// `statfs(2)` and `linux/magic.h`.
pub(crate) fn volume_kind(magic: u32) -> String {
    let name = match magic {
        0x6367_7270 => "cgroup2",
        0x0027_e0eb => "cgroup",
        0x0102_1994 => "tmpfs",
        0x8584_58f6 => "ramfs",
        0x0000_ef53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683e => "btrfs",
        0x2fc1_2fc1 => "zfs",
        0x794c_7630 => "overlay",
        0x0000_6969 => "nfs",
        0x6573_5546 => "fuse",
        0x0102_1997 => "9p",
        0xff53_4d42 | 0xfe53_4d42 => "cifs",
        0x0bd0_0bd0 => "lustre",
        0x00c3_6400 => "ceph",
        0x4750_4653 => "gpfs",
        0xf2f5_2010 => "f2fs",
        0x7371_7368 => "squashfs",
        0xca45_1a4e => "bcachefs",
        0x6a65_6a63 => "virtiofs",
        other => return format!("0x{other:08x}"),
    };
    name.into()
}

#[cfg(test)]
pub(crate) mod recorded;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_and_unreadable_differ() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::at(folder.path());
        assert_eq!(root.bytes("/proc/none"), Err(Missing::NotThere));
        std::fs::create_dir(folder.path().join("proc")).unwrap();
        assert!(matches!(root.bytes("/proc"), Err(Missing::Unreadable(_))));
        std::fs::write(folder.path().join("number"), "x7").unwrap();
        assert!(matches!(root.number::<u64>("/number"), Err(Missing::Unreadable(_))));
        std::fs::write(folder.path().join("empty"), "\n").unwrap();
        assert_eq!(root.line("/empty"), Err(Missing::NotThere));
    }

    #[test]
    fn huge_files_are_read_to_the_cap_and_lines_stay_short() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("huge"), vec![b'\x1b'; 10 << 20]).unwrap();
        std::fs::write(folder.path().join("long"), vec![b'a'; 10 << 20]).unwrap();
        let root = Root::at(folder.path());
        assert_eq!(root.bytes("/huge").unwrap().len() as u64, MAX_FILE);
        assert!(root.line("/huge").is_ok_and(|line| line == "…"));
        assert_eq!(root.line("/long").unwrap().len(), super::super::text::MAX_VALUE);
    }

    #[test]
    fn a_named_pipe_does_not_hang_the_probe() {
        let folder = tempfile::tempdir().unwrap();
        let made = std::process::Command::new("mkfifo").arg(folder.path().join("pipe")).status().unwrap();
        assert!(made.success());
        assert_eq!(Root::at(folder.path()).line("/pipe"), Err(Missing::NotThere));
    }

    #[test]
    fn file_systems_have_names() {
        assert_eq!(volume_kind(0x6367_7270), "cgroup2");
        assert_eq!(volume_kind(0x1234), "0x00001234");
        assert_eq!(Root::live().volume("/proc").unwrap().kind, "0x00009fa0");
    }
}
