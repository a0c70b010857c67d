//! Hardware truth: is the host what was promised, and will training run on it at all?
//!
//! Here: the outcomes, the promises, the list of checks. Not here: the checks themselves (a file
//! per subject), and those that need an accelerator library or a second clock.
//!
//! Invariant: what could not be observed is never a pass, and what was not promised is never a
//! failure to keep a promise.

use serde::{Deserialize, Serialize};

use super::lines::Facts;

pub use crate::outcome::{CheckOutcome, CheckResult as Check};

#[allow(clippy::unnecessary_wraps, reason = "every check has the type of a rule")]
mod cpu;
mod gpu;
#[allow(clippy::unnecessary_wraps, reason = "every check has the type of a rule")]
mod memory;
#[allow(clippy::unnecessary_wraps, reason = "every check has the type of a rule")]
mod system;

/// What the plan says that the platform promised; `None` = it promised nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Promises {
    /// The accelerator's product name, such as `H100 80GB`.
    pub gpu: Option<String>,
    /// How many accelerators.
    pub gpus: Option<u32>,
    /// How many logical processors.
    pub vcpus: Option<u32>,
    /// Main memory, in bytes.
    pub memory_bytes: Option<f64>,
    /// Size of the disk for data, in bytes.
    pub disk_bytes: Option<f64>,
    /// Speed of the fastest network link, in bits per second.
    pub network_bits_per_second: Option<f64>,
    /// True when a whole machine without a hypervisor was promised.
    pub bare_metal: Option<bool>,
    /// How many hosts work together on one job; more than 1 makes names and RDMA matter.
    pub nodes: Option<u32>,
}

/// The share of a promised size that must be there.
///
/// Firmware and kernel keep 1 to 4 % of the memory for themselves, and a file system some of the
/// disk: 5 % less than promised is still kept; a whole step of size less never is.
const KEPT: f64 = 0.95;

/// One check: `None` where there is nothing to say, as nothing was promised and nothing is there.
type Rule = fn(&Facts, &Promises) -> Option<Check>;

/// Every check by its name, in the order of a report; a new one is a function and a line here.
const RULES: &[(&str, Rule)] = &[
    ("gpu_count", gpu::count),
    ("gpu_name", gpu::name),
    ("gpu_driver", gpu::driver),
    ("torch_cuda", gpu::torch),
    ("gpu_numa", gpu::numa),
    ("cpu_quota", cpu::quota),
    ("cpu_throttled", cpu::throttled),
    ("cpu_steal", cpu::steal),
    ("pressure", cpu::pressure),
    ("memory_limit", memory::limit),
    ("oom_kills", memory::oom_kills),
    ("shm", memory::shm),
    ("memlock", memory::memlock),
    ("open_files", system::open_files),
    ("processes", system::processes),
    ("disk_space", system::disk_space),
    ("network_speed", system::network_speed),
    ("own_name", system::own_name),
    ("virtualization", system::virtualization),
    ("clock", system::clock),
];

/// The names of all checks, in the order of a report.
pub fn check_ids() -> impl Iterator<Item = &'static str> {
    RULES.iter().map(|(id, _)| *id)
}

/// Holds the facts of a host against what was promised and against what training needs.
pub fn judge(facts: &Facts, promises: &Promises) -> Vec<Check> {
    let judged =
        RULES.iter().filter_map(|(id, rule)| Some(Check { id: (*id).into(), ..rule(facts, promises)? }));
    judged.collect()
}

impl Check {
    fn new(outcome: CheckOutcome, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        Self { id: String::new(), outcome, value: None, promised: None, reason, action: None }
    }

    fn pass(reason: impl Into<String>) -> Self {
        Self::new(CheckOutcome::Pass, reason)
    }

    fn warn(reason: impl Into<String>) -> Self {
        Self::new(CheckOutcome::Warn, reason)
    }

    fn fail(reason: impl Into<String>) -> Self {
        Self::new(CheckOutcome::Fail, reason)
    }

    /// Cannot be seen: names the fact that is missing and why.
    fn unknown(facts: &Facts, name: &str) -> Self {
        Self::new(CheckOutcome::NotObservable, facts.why_unknown(name))
    }

    fn not_observable(reason: impl Into<String>) -> Self {
        Self::new(CheckOutcome::NotObservable, reason)
    }

    fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    fn promised(mut self, promised: Option<impl Into<String>>) -> Self {
        self.promised = promised.map(Into::into);
        self
    }

    fn action(mut self, action: impl Into<String>) -> Self {
        self.action = Some(action.into());
        self
    }
}

/// A size in binary units, as memory is sold.
fn gib(bytes: f64) -> String {
    const MIB: f64 = 1_048_576.0;
    if bytes < 1024.0 * MIB { number(bytes / MIB) + " MiB" } else { number(bytes / MIB / 1024.0) + " GiB" }
}

/// A size in decimal units, as disks are sold.
fn gb(bytes: f64) -> String {
    number(bytes / 1e9) + " GB"
}

/// A share as a percentage.
fn percent(share: f64) -> String {
    number(share * 100.0) + " %"
}

/// A number with at most two decimals, without trailing zeros.
fn number(value: f64) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// True when this host has accelerators, or was to have some.
fn is_gpu_host(facts: &Facts, promises: &Promises) -> bool {
    promises.gpus.is_some_and(|count| count > 0)
        || promises.gpu.is_some()
        || facts.number("gpu.pci_count").is_some_and(|count| count > 0.0)
}

/// The values of facts named `<group>.<device>….<what>`, with the device.
fn per_device<'a>(
    facts: &'a Facts,
    group: &'a str,
    what: &'a str,
) -> impl Iterator<Item = (&'a str, &'a super::lines::Fact)> {
    facts.iter().filter_map(move |(name, fact)| {
        let rest = name.strip_prefix(group)?.strip_prefix('.')?;
        let device = rest.strip_suffix(what)?.strip_suffix('.')?;
        Some((device, fact))
    })
}

#[cfg(test)]
mod tests;
