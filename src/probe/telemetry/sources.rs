//! Where the counters of the `telemetry` probe stand, and one reading of all of them.
//!
//! Here: the choice between control group and host, and the parsing. Not here: any difference of
//! two readings.
//!
//! Invariant: the processor time used and the cores it is held against belong to the same group.

use std::collections::BTreeMap;

use crate::probe::facts::cgroup::{Cgroups, keyed};
use crate::probe::facts::cpu::{Throttling, Times, affinity, online, quota};
use crate::probe::facts::disk::{SECTOR, whole_devices};
use crate::probe::facts::machine::container;
use crate::probe::facts::memory::{meminfo, memory_limit};
use crate::probe::facts::net::interfaces;
use crate::probe::root::{Missing, Root};

/// Two counters of one device, in bytes: read and written, or received and sent.
pub(super) type Pair = (f64, f64);

/// A group whose processor time counts.
#[derive(Debug, Clone)]
struct CpuGroup {
    usage: Usage,
    cores: f64,
}

#[derive(Debug, Clone)]
enum Usage {
    /// `usage_usec` of this `cpu.stat`.
    Unified(String),
    /// This `cpuacct.usage`, in nanoseconds.
    Single(String),
}

#[derive(Debug, Clone)]
struct MemoryGroup {
    folder: String,
    limit: f64,
    unified: bool,
}

/// Which files are read for which metric; found once.
#[derive(Debug, Clone)]
pub(super) struct Sources {
    cpu: Option<CpuGroup>,
    /// `cpu.stat` of the group with the quota, and whether it is one of v2.
    throttling: Option<(String, bool)>,
    memory: Option<MemoryGroup>,
}

/// Memory at one moment, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Memory {
    pub(super) used: f64,
    pub(super) available: f64,
}

/// All counters at one moment; what is `None` could not be read.
#[derive(Debug, Clone, Default)]
pub(super) struct Reading {
    pub(super) times: Option<Times>,
    pub(super) cpu_seconds: Option<f64>,
    pub(super) throttling: Option<Throttling>,
    pub(super) memory: Option<Memory>,
    pub(super) disks: Option<BTreeMap<String, Pair>>,
    pub(super) networks: Option<BTreeMap<String, Pair>>,
    pub(super) load: Option<f64>,
    /// Why something is `None`.
    pub(super) unreadable: Vec<String>,
}

impl Sources {
    /// Looks for quota and limits; without either, outside of a container, the host counts.
    pub(super) fn find(root: &Root) -> Self {
        let mut sources = Self { cpu: None, throttling: None, memory: None };
        let Ok(cgroups) = Cgroups::find(root) else { return sources };
        let cpu = cgroups.controller(root, "cpu");
        let quota = quota(root, &cpu).ok().flatten();
        // The group with the quota, else in a container the own one.
        let depth = match &quota {
            Some((_, folder)) => cpu.folders.iter().position(|known| known == folder),
            None if container(root).is_ok() => {
                cpu.folders.iter().position(|folder| root.exists(&format!("{folder}/cpu.stat")))
            }
            None => None,
        };
        if let Some(depth) = depth {
            let usage = if cpu.unified {
                Some(Usage::Unified(format!("{}/cpu.stat", cpu.folders[depth])))
            } else {
                let accounts = cgroups.controller(root, "cpuacct");
                accounts.folders.get(depth).map(|folder| Usage::Single(format!("{folder}/cpuacct.usage")))
            };
            let processors = [affinity(root).ok(), online(root).ok()].into_iter().flatten().min();
            let cores = match (&quota, processors) {
                (Some((cores, _)), Some(processors)) => Some(cores.min(processors as f64)),
                (Some((cores, _)), None) => Some(*cores),
                (None, processors) => processors.map(|count| count as f64),
            };
            sources.cpu =
                usage.zip(cores.filter(|cores| *cores > 0.0)).map(|(usage, cores)| CpuGroup { usage, cores });
        }
        sources.throttling = quota.map(|(_, folder)| (format!("{folder}/cpu.stat"), cpu.unified));
        let unified = cgroups.controller(root, "memory").unified;
        sources.memory = memory_limit(root, &cgroups).ok().flatten().map(|(limit, folder)| MemoryGroup {
            folder,
            limit,
            unified,
        });
        sources
    }

    /// The cores against which the group's processor time is held; `None` when the host counts.
    pub(super) fn allowed_cores(&self) -> Option<f64> {
        self.cpu.as_ref().map(|group| group.cores)
    }

    pub(super) fn cpu_scope(&self) -> &'static str {
        if self.cpu.is_some() { "cgroup" } else { "host" }
    }

    pub(super) fn memory_scope(&self) -> &'static str {
        if self.memory.is_some() { "cgroup" } else { "host" }
    }

    /// What counts as what, for people.
    pub(super) fn describe(&self) -> String {
        let cpu = match &self.cpu {
            Some(group) => format!("cpu_use is the control group's, of {} cores", group.cores),
            None => "cpu_use is the host's, of all its processors".into(),
        };
        let memory = match &self.memory {
            Some(group) => format!("memory is the control group's, of {} B", group.limit),
            None => "memory is the host's".into(),
        };
        format!("{cpu}; {memory}")
    }

    /// Reads every counter once.
    pub(super) fn read(&self, root: &Root) -> Reading {
        let mut unreadable = Vec::new();
        let mut reading = Reading {
            times: keep(&mut unreadable, "/proc/stat", Times::read(root)),
            memory: keep(&mut unreadable, "memory", self.memory(root)),
            disks: keep(&mut unreadable, "disks", disks(root)),
            networks: keep(&mut unreadable, "network", networks(root)),
            load: keep(&mut unreadable, "load", load(root)),
            ..Reading::default()
        };
        if let Some(group) = &self.cpu {
            reading.cpu_seconds = keep(&mut unreadable, "processor time", group.usage.read(root));
        }
        if let Some((path, unified)) = &self.throttling {
            let stat = root.text(path).map(|stat| Throttling::parse(&stat, *unified));
            reading.throttling = keep(&mut unreadable, "throttling", stat);
        }
        reading.unreadable = unreadable;
        reading
    }

    fn memory(&self, root: &Root) -> Result<Memory, Missing> {
        let available = meminfo(root, "MemAvailable");
        let Some(group) = &self.memory else {
            let available = available?;
            return Ok(Memory { used: (meminfo(root, "MemTotal")? - available).max(0.0), available });
        };
        let (current, cache) = if group.unified {
            ("memory.current", "inactive_file")
        } else {
            ("memory.usage_in_bytes", "total_inactive_file")
        };
        let current: u64 = root.number(&format!("{}/{current}", group.folder))?;
        // Pages of files that nobody used lately go first when memory runs short.
        let cache =
            root.text(&format!("{}/memory.stat", group.folder)).ok().and_then(|stat| keyed(&stat, cache));
        let used = (current as f64 - cache.unwrap_or(0.0)).max(0.0);
        let left = (group.limit - used).max(0.0);
        Ok(Memory { used, available: available.map_or(left, |host| host.min(left)) })
    }
}

impl Usage {
    /// The processor time used so far, in seconds.
    fn read(&self, root: &Root) -> Result<f64, Missing> {
        match self {
            Self::Unified(path) => keyed(&root.text(path)?, "usage_usec")
                .map(|time| time / 1e6)
                .ok_or_else(|| Missing::Unreadable(format!("{path} tells no usage"))),
            Self::Single(path) => root.number::<u64>(path).map(|time| time as f64 / 1e9),
        }
    }
}

fn keep<T>(unreadable: &mut Vec<String>, what: &str, found: Result<T, Missing>) -> Option<T> {
    let reason = match found {
        Ok(value) => return Some(value),
        Err(Missing::NotThere) => format!("{what}: there is no such file"),
        Err(Missing::Unreadable(reason)) => format!("{what}: {reason}"),
    };
    unreadable.push(reason);
    None
}

/// Bytes read and written, per whole device: partitions and mapped devices would count twice.
fn disks(root: &Root) -> Result<BTreeMap<String, Pair>, Missing> {
    let whole = whole_devices(root)?;
    let text = root.text("/proc/diskstats")?;
    let counters = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let name = *fields.get(2)?;
        // major minor name reads merged sectors ms writes merged sectors …
        let read: u64 = fields.get(5)?.parse().ok()?;
        let written: u64 = fields.get(9)?.parse().ok()?;
        // A device's name in /sys writes `!` for `/`.
        whole
            .iter()
            .any(|known| known.replace('!', "/") == name)
            .then(|| (name.to_owned(), (read as f64 * SECTOR, written as f64 * SECTOR)))
    });
    Ok(counters.collect())
}

/// Bytes received and sent, per interface; a bridge or a bond repeats what its real ones carry.
fn networks(root: &Root) -> Result<BTreeMap<String, Pair>, Missing> {
    let text = root.text("/proc/net/dev")?;
    let mut all: BTreeMap<String, Pair> = text
        .lines()
        .filter_map(|line| {
            let (name, counters) = line.split_once(':')?;
            let fields: Vec<u64> =
                counters.split_ascii_whitespace().map_while(|field| field.parse().ok()).collect();
            let name = name.trim();
            (name != "lo").then_some((name.to_owned(), (*fields.first()? as f64, *fields.get(8)? as f64)))
        })
        .collect();
    let is_real = |name: &String| root.exists(&format!("/sys/class/net/{name}/device"));
    if interfaces(root).is_ok_and(|names| names.iter().any(is_real)) {
        all.retain(|name, _| is_real(name));
    }
    Ok(all)
}

fn load(root: &Root) -> Result<f64, Missing> {
    let line = root.line("/proc/loadavg")?;
    let load = line.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    load.filter(|load| load.is_finite() && *load >= 0.0)
        .ok_or_else(|| Missing::Unreadable(format!("`{line}` is no load")))
}
