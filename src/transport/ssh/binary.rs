//! Agents that can be sent to a host: which there are, and which one fits.
//!
//! A binary fits when it was made for the host's processor and needs no newer C library than the host has. Both are
//! read from the file itself.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use sha2::{Digest as _, Sha256};

use crate::outcome::printable;

/// The folder in which agents are looked for first.
pub const AGENT_DIR: &str = "PLANRUN_AGENT_DIR";

/// An agent that can be sent.
#[derive(Debug, Clone)]
pub struct Binary {
    /// Where it lies.
    pub path: PathBuf,
    /// Its bytes.
    pub bytes: Arc<Vec<u8>>,
    /// SHA-256 in hex.
    pub digest: String,
    /// The processor, as `uname -m` names it.
    pub machine: &'static str,
    /// The newest version of the GNU C library that it asks for: (2, 17) for 2.17.
    pub glibc: (u32, u32),
}

/// All agents at hand: those in `PLANRUN_AGENT_DIR` and beside this program, then this program itself.
pub(super) fn find() -> Result<Vec<Binary>, String> {
    let own = std::env::current_exe().map_err(|e| format!("cannot find this program's own file: {e}"))?;
    let asked = std::env::var_os(AGENT_DIR).filter(|d| !d.is_empty()).map(PathBuf::from);
    let folders = asked.into_iter().chain(own.parent().map(Path::to_owned));
    let names = ["planrun-agent-x86_64", "planrun-agent-aarch64", "planrun-agent"];
    let files = folders.flat_map(|dir| names.map(|name| dir.join(name)));
    let mut found: Vec<Binary> = files.filter_map(|path| Binary::read(&path).ok()).collect();
    if found.is_empty() || found.iter().all(|b| b.machine != std::env::consts::ARCH) {
        // The running file, whatever its name holds by now.
        found.push(Binary::read(Path::new("/proc/self/exe"))?);
    }
    Ok(found)
}

impl Binary {
    fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|e| format!("cannot read {}: {e}", path.display()))?;
        let machine = machine(&bytes).ok_or_else(|| format!("{} is no program", path.display()))?;
        let digest = Sha256::digest(&bytes).iter().fold(String::new(), |hex, b| format!("{hex}{b:02x}"));
        let glibc = newest_glibc(&bytes);
        Ok(Self { path: path.to_owned(), bytes: Arc::new(bytes), digest, machine, glibc })
    }

    /// The first that fits a host: `host` is what `uname -m` and `getconf GNU_LIBC_VERSION` said.
    pub(super) fn fitting<'a>(all: &'a [Self], host: &str) -> Result<&'a Self, String> {
        let (machine, libc) = host.split_once(' ').unwrap_or((host, "unknown"));
        let machine = if machine == "arm64" { "aarch64" } else { machine };
        let known = ["x86_64", "aarch64"].contains(&machine);
        let file = format!("planrun-agent-{machine}");
        let provide = if known {
            format!("put `{file}` beside planrun or into {AGENT_DIR} (scripts/build_agent makes it)")
        } else {
            "planrun has no agent for it".to_owned()
        };
        let libc = printable(libc);
        let Some(version) = libc.strip_prefix("glibc ").and_then(version) else {
            return Err(format!(
                "the host has no GNU C library ({machine}, {libc}); it needs glibc 2.17 or newer"
            ));
        };
        let same: Vec<&Self> = all.iter().filter(|b| b.machine == machine).collect();
        if same.is_empty() {
            return Err(format!("no agent for the host's processor {}: {provide}", printable(machine)));
        }
        same.iter().copied().find(|b| b.glibc <= version).ok_or_else(|| {
            let least = same.iter().map(|b| b.glibc).min().unwrap_or_default();
            format!(
                "the host has glibc {}.{}, the agents at hand need {}.{}: {provide}",
                version.0, version.1, least.0, least.1
            )
        })
    }
}

fn version(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.trim().split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The processor that an ELF file is for.
fn machine(bytes: &[u8]) -> Option<&'static str> {
    let header = bytes.get(..20)?;
    if !header.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    match u16::from_le_bytes([header[18], header[19]]) {
        62 => Some("x86_64"),
        183 => Some("aarch64"),
        _ => None,
    }
}

/// The newest version that the file names: `GLIBC_2.x` stands in its table of needed versions, and nowhere else as a
/// whole string.
fn newest_glibc(bytes: &[u8]) -> (u32, u32) {
    let mark = b"\0GLIBC_";
    let mut newest = (0, 0);
    for (at, _) in bytes.windows(mark.len()).enumerate().filter(|(_, w)| w == mark) {
        let rest = &bytes[at + mark.len()..];
        let end = rest.iter().take(12).position(|b| *b == 0);
        let text = end.and_then(|end| std::str::from_utf8(&rest[..end]).ok());
        if let Some(found) = text.and_then(version) {
            newest = newest.max(found);
        }
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(machine: u8, glibc: &[&str]) -> Vec<u8> {
        let mut bytes = b"\x7fELF\x02\x01".to_vec();
        bytes.resize(18, 0);
        bytes.extend([machine, 0]);
        for version in glibc {
            bytes.extend(format!("\0GLIBC_{version}\0").bytes());
        }
        bytes
    }

    fn binary(number: u8, glibc: &[&str]) -> Binary {
        let bytes = elf(number, glibc);
        let (machine, glibc) = (machine(&bytes).unwrap(), newest_glibc(&bytes));
        Binary { path: PathBuf::new(), bytes: Arc::new(bytes), digest: String::new(), machine, glibc }
    }

    #[test]
    fn the_newest_version_counts_and_only_whole_names() {
        assert_eq!(newest_glibc(&elf(62, &["2.2.5", "2.17", "2.9"])), (2, 17));
        assert_eq!(newest_glibc(b"text about GLIBC_2.99 in a message"), (0, 0));
        assert_eq!(machine(b"#!/bin/sh\n                    "), None);
    }

    #[test]
    fn a_host_gets_what_fits_or_learns_what_to_provide() {
        let all = [binary(62, &["2.34"]), binary(62, &["2.17"])];
        let glibc = |host| Binary::fitting(&all, host).map(|b| b.glibc);
        assert_eq!(glibc("x86_64 glibc 2.36"), Ok((2, 34)));
        assert_eq!(glibc("x86_64 glibc 2.28"), Ok((2, 17)));
        let old = glibc("x86_64 glibc 2.12").unwrap_err();
        assert!(old.contains("glibc 2.12") && old.contains("2.17") && old.contains("planrun-agent-x86_64"));
        assert!(glibc("aarch64 glibc 2.36").unwrap_err().contains("planrun-agent-aarch64"));
        assert!(glibc("x86_64 unknown").unwrap_err().contains("no GNU C library"));
        assert!(glibc("sparc64 glibc 2.36").unwrap_err().contains("no agent for it"));
    }

    #[test]
    fn this_program_can_be_sent() {
        let own = Binary::read(Path::new("/proc/self/exe")).unwrap();
        assert_eq!(own.machine, std::env::consts::ARCH);
        assert!(own.glibc >= (2, 2) && own.digest.len() == 64);
    }
}
