//! The `facts` probe: what a host is made of, as far as it shows without an accelerator library.
//!
//! Here: the order of the groups, the probe's options and the list of fact names. Not here: how a
//! group reads (its own file), what a fact is worth ([`super::checks`]).
//!
//! Invariant: every group either sets a fact, says that there is none, or says why it could not
//! look; groups never fail.

use std::io::Write;

use serde::Deserialize;
use serde_json::Value;

use super::lines::{Facts, Lines};
use super::root::Root;
use super::{ProbeError, parse_spec};

pub(crate) mod cgroup;
pub(crate) mod cpu;
pub(crate) mod disk;
mod gpu;
pub(crate) mod machine;
pub(crate) mod memory;
pub(crate) mod net;
mod os;
mod software;

pub(crate) use gpu::NVIDIA;
pub use gpu::{Driver, GpusPresent, PciDevice, gpus_present};

/// The options of the `facts` probe.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FactsSpec {
    /// The folder below which `/proc`, `/sys` and `/etc` are read; default `/`.
    pub root: String,
    /// Paths whose file systems are described; default `/` and `/tmp`.
    pub mounts: Vec<String>,
    /// The Python interpreter that is asked for `PyTorch`; default `python3`.
    pub python: String,
    /// False to start no interpreter (an import of `PyTorch` can take 20 s of CPU time).
    pub ask_python: bool,
    /// How long the steal counters are watched, in seconds; default 0.2.
    pub sample_seconds: f64,
}

impl Default for FactsSpec {
    fn default() -> Self {
        Self {
            root: "/".into(),
            mounts: vec!["/".into(), "/tmp".into()],
            python: "python3".into(),
            ask_python: true,
            sample_seconds: 0.2,
        }
    }
}

/// Every fact name with what it means; `<…>` stands for a device, a path or a PCI address.
///
/// A device's name is part of the fact's name, with anything but letters, digits, `_ - : /`
/// written as `_`.
pub const FACTS: &[(&str, &str)] = &[
    ("cgroup.path", "control group of the probe, as it sees it itself"),
    (
        "cgroup.version",
        "`v1`, `v2`, or `hybrid` (v1 controllers beside a v2 tree); none without control groups",
    ),
    ("container.kind", "`docker`, `podman`, `kubernetes`, `lxc`, … or none"),
    ("cpu.affinity", "logical processors that this process may run on"),
    ("cpu.cpuset", "logical processors that the control group allows"),
    ("cpu.logical", "logical processors online (what `nproc --all` shows)"),
    ("cpu.model", "processor model as the kernel names it"),
    ("cpu.periods", "quota periods that the control group has seen since it began"),
    ("cpu.quota_cores", "tightest quota of the control group and its parents, in cores; none = no quota"),
    ("cpu.quota_from", "control group that sets the tightest quota"),
    ("cpu.sockets", "physical processor packages"),
    ("cpu.steal_sample_ticks", "clock ticks of all processors together within the steal sample"),
    ("cpu.steal_share", "share of processor time that the hypervisor took since boot (0 to 1)"),
    ("cpu.steal_share_sample", "the same within a short sample"),
    ("cpu.throttled_periods", "quota periods in which the control group was throttled since it began"),
    ("cpu.throttled_seconds", "time that the control group was throttled since it began, in seconds"),
    ("cuda.toolkit_version", "CUDA toolkit on the host"),
    ("disk.<name>.bytes", "size of a block device"),
    ("disk.<name>.model", "model of a block device"),
    ("disk.<name>.rotational", "true for a spinning disk, as the kernel believes"),
    ("disk.count", "whole block devices without loop, RAM and mapped ones"),
    ("disk.limit", "I/O limits that the control group sets (`io.max`); none = no limit"),
    ("docker.present", "true when a `docker` program is on the search path"),
    ("gpu.<address>.id", "vendor and device of an accelerator on the PCI bus, such as `10de:2330`"),
    ("gpu.<address>.name", "its name as the NVIDIA driver tells it"),
    ("gpu.<address>.numa_node", "its memory node; none = the firmware does not tell"),
    ("gpu.<address>.pcie_link", "its PCIe link now; many devices slow it down while idle"),
    ("gpu.<address>.pcie_link_max", "its PCIe link at best, such as `32.0 GT/s PCIe x16`"),
    ("gpu.<address>.uuid", "its identity as the NVIDIA driver tells it"),
    ("gpu.driver_count", "accelerators that the NVIDIA driver lists; none = no driver loaded"),
    ("gpu.pci_count", "accelerators on the PCI bus, without consoles and emulated displays"),
    ("gpu.pci_ids", "the ids of all accelerators with their number"),
    ("host.boot_id", "random identity of this boot"),
    ("host.machine_digest", "first 16 hex digits of the SHA-256 of the machine id"),
    ("host.name", "hostname"),
    ("host.own_name_loopback", "true when the hostname leads to a loopback address"),
    ("host.own_name_resolves", "true when the hostname leads to an address"),
    ("host.uptime_seconds", "time since boot"),
    ("limit.memlock_bytes", "soft limit of locked memory; none = unlimited"),
    ("limit.memlock_hard_bytes", "hard limit of locked memory; none = unlimited"),
    ("limit.nofile", "soft limit of open files; none = unlimited"),
    ("limit.nofile_hard", "hard limit of open files; none = unlimited"),
    ("limit.pids", "tightest limit of processes in the control group; none = unlimited"),
    ("limit.stack_bytes", "soft limit of a stack; none = unlimited"),
    ("machine.hypervisor", "`kvm`, `xen`, `vmware`, `hyperv`, … or `unknown`; none = no sign of one"),
    ("machine.product", "product name in the firmware tables"),
    ("machine.vendor", "vendor in the firmware tables"),
    ("memory.available_bytes", "memory that programs can still get, by the kernel's estimate"),
    ("memory.effective_bytes", "the smaller of total memory and the control group's limit"),
    ("memory.huge_pages", "mode of transparent huge pages"),
    ("memory.limit_bytes", "tightest limit of the control group and its parents; none = no limit"),
    (
        "memory.oom_kills",
        "processes killed for lack of memory: in the control group, else on the host since boot",
    ),
    ("memory.swap_bytes", "swap space"),
    ("memory.total_bytes", "memory of the machine as the kernel counts it"),
    ("mount.<path>.bytes", "size of the file system that holds the path"),
    ("mount.<path>.free_bytes", "what an ordinary user may still fill of it"),
    ("mount.<path>.kind", "type of that file system"),
    ("nic.<name>.driver", "driver of a network interface; none = a virtual one"),
    ("nic.<name>.mtu_bytes", "largest packet"),
    ("nic.<name>.numa_node", "its memory node; none = the firmware does not tell"),
    ("nic.<name>.speed_bits_per_second", "link speed as the driver tells it; none = it does not"),
    ("nic.<name>.state", "`up`, `down` or `unknown`"),
    ("nic.count", "network interfaces without loopback"),
    ("numa.<node>.cpus", "logical processors of a memory node, as a list of ranges"),
    ("numa.nodes", "memory nodes"),
    ("nvidia.driver_version", "version of the loaded NVIDIA kernel driver; none = not loaded"),
    (
        "nvidia.peermem",
        "true when the module for RDMA into accelerator memory is loaded; use is another matter",
    ),
    ("os.arch", "architecture as the kernel names it"),
    ("os.clock_source", "clock source of the kernel"),
    ("os.kernel", "kernel release"),
    ("os.libc", "C library with version, such as `glibc 2.35` or `musl 1.2.4`"),
    ("os.name", "name of the operating system"),
    ("os.timezone", "time zone of the host"),
    ("podman.present", "true when a `podman` program is on the search path"),
    ("pressure.cpu_share", "share of the last 10 s in which some task waited for a processor (0 to 1)"),
    ("pressure.io_share", "the same for block devices"),
    ("pressure.memory_share", "the same for memory"),
    ("python.version", "version of the Python interpreter; none = no interpreter"),
    ("rdma.<device>.<port>.link_layer", "`InfiniBand` or `Ethernet`"),
    ("rdma.<device>.<port>.rate_bits_per_second", "rate of a port"),
    ("rdma.<device>.<port>.state", "`ACTIVE`, `DOWN`, …"),
    ("rdma.<device>.numa_node", "its memory node; none = the firmware does not tell"),
    ("rdma.count", "RDMA devices"),
    ("shm.bytes", "size of `/dev/shm`; none = there is no `/dev/shm`"),
    ("shm.free_bytes", "free space of `/dev/shm`"),
    ("torch.cuda_available", "what `torch.cuda.is_available()` says"),
    (
        "torch.cuda_version",
        "CUDA version that PyTorch was built for; none = built for CPU only or another platform",
    ),
    ("torch.device_count", "accelerators that PyTorch sees"),
    ("torch.version", "version of PyTorch; none = not installed"),
];

/// The `facts` probe: writes one line per fact, group by group.
pub(super) fn run(spec: Value, out: &mut dyn Write) -> Result<(), ProbeError> {
    let spec: FactsSpec = parse_spec(spec)?;
    if !(spec.sample_seconds.is_finite() && (0.0..=60.0).contains(&spec.sample_seconds)) {
        return Err(ProbeError::BadSpec { reason: "sample_seconds must lie between 0 and 60".into() });
    }
    let root = Root::at(spec.root.as_str());
    let mut lines = Lines::new(out);
    for group in groups(&root, &spec) {
        lines.facts(&group)?;
    }
    Ok(())
}

/// Every fact of a host; takes as long as the steal sample and the import of `PyTorch`.
pub fn collect(root: &Root, spec: &FactsSpec) -> Facts {
    let mut all = Facts::new();
    for group in groups(root, spec) {
        all.extend(group);
    }
    all
}

/// The groups, read one by one as they are asked for, the slow ones last.
fn groups<'a>(root: &'a Root, spec: &'a FactsSpec) -> impl Iterator<Item = Facts> + 'a {
    type Group = fn(&Root, &FactsSpec, &mut Facts);
    let all: [Group; 9] = [
        os::read,
        cpu::read,
        memory::read,
        disk::read,
        net::read,
        machine::read,
        gpu::read,
        cpu::read_steal_sample,
        software::read,
    ];
    all.into_iter().map(move |group| {
        let mut facts = Facts::new();
        group(root, spec, &mut facts);
        facts
    })
}

#[cfg(test)]
mod tests;
