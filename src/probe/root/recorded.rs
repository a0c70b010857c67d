//! A recorded host for tests: a folder with the files, and `host.json` for the calls.
//!
//! Here: how a recording answers. Not here: the recordings (`fixtures/host`).
//!
//! Invariant: a recording never asks the machine that runs the tests.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Resource;
use serde::Deserialize;

use super::{Limit, Missing, Root, System, Volume};
use crate::probe::child::Output;

/// What `host.json` may say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Calls {
    arch: String,
    volumes: BTreeMap<String, RecordedVolume>,
    limits: BTreeMap<String, (Option<u64>, Option<u64>)>,
    commands: BTreeMap<String, String>,
    slow: Vec<String>,
    programs: Vec<String>,
    names: BTreeMap<String, Vec<IpAddr>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RecordedVolume {
    kind: String,
    #[serde(default)]
    bytes: u64,
    #[serde(default)]
    free_bytes: u64,
}

struct Recorded {
    prefix: PathBuf,
    calls: Calls,
    /// How often time has passed: `later1/…`, `later2/…` win over the files of before.
    ticks: Cell<u32>,
}

/// The recording in `fixtures/host/<case>`.
pub(crate) fn host(case: &str) -> Root {
    let prefix = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/host").join(case);
    let text = std::fs::read_to_string(prefix.join("host.json")).expect("the recording has a host.json");
    let calls = serde_json::from_str(&text).expect("host.json fits");
    let system = Recorded { prefix: prefix.clone(), calls, ticks: Cell::new(0) };
    Root::with_system(prefix, Box::new(system))
}

impl System for Recorded {
    fn volume(&self, path: &Path) -> Result<Volume, Missing> {
        let inside = path.strip_prefix(&self.prefix).expect("inside the recording");
        let found = self.calls.volumes.get(&format!("/{}", inside.display())).ok_or(Missing::NotThere)?;
        Ok(Volume { kind: found.kind.clone(), bytes: found.bytes, free_bytes: found.free_bytes })
    }

    fn limit(&self, resource: Resource) -> Limit {
        let name = match resource {
            Resource::Memlock => "memlock",
            Resource::Nofile => "nofile",
            Resource::Stack => "stack",
            Resource::Nproc => "nproc",
            other => panic!("{other:?} is not recorded"),
        };
        let (soft, hard) = self.calls.limits.get(name).copied().unwrap_or((None, None));
        Limit { soft, hard }
    }

    fn arch(&self) -> String {
        self.calls.arch.clone()
    }

    fn run(&self, argv: &[&str], _limit: Duration) -> Result<Output, Missing> {
        // A script is recorded by the program and its first option.
        let name = argv.iter().take(2).copied().collect::<Vec<_>>().join(" ");
        if self.calls.slow.contains(&name) {
            return Err(Missing::Unreadable(format!("{} took longer than 20.0 s", argv[0])));
        }
        let stdout = self.calls.commands.get(&name).ok_or(Missing::NotThere)?;
        Ok(Output { success: true, stdout: stdout.clone().into_bytes(), stderr: Vec::new() })
    }

    fn has_program(&self, program: &str) -> bool {
        self.calls.programs.iter().any(|known| known == program)
    }

    fn resolve(&self, name: &str, _limit: Duration) -> Result<Vec<IpAddr>, Missing> {
        Ok(self.calls.names.get(name).cloned().unwrap_or_default())
    }

    fn wait(&self, _pause: Duration) {
        self.ticks.set(self.ticks.get() + 1);
    }

    fn places(&self, prefix: &Path, path: &str) -> Vec<PathBuf> {
        let path = path.trim_start_matches('/');
        let mut places: Vec<PathBuf> =
            (1..=self.ticks.get()).rev().map(|tick| prefix.join(format!("later{tick}")).join(path)).collect();
        places.push(prefix.join(path));
        places
    }
}
