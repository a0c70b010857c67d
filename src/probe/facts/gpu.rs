//! Accelerators as the PCI bus and the driver's files show them, without any vendor library.
//!
//! Here: which devices sit on the bus, what the NVIDIA driver lists in `/proc`. Not here: memory,
//! clocks, health (they need the vendor's library).
//!
//! Invariant: consoles of management controllers and emulated displays are not accelerators.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::FactsSpec;
use super::net::numa_node;
use crate::probe::lines::Facts;
use crate::probe::root::{Missing, Root};
use crate::probe::text::{clean, name_part};

/// The most devices that are described one by one.
const MAX_DEVICES: usize = 64;
/// NVIDIA's vendor number.
pub(crate) const NVIDIA: u16 = 0x10de;
/// Vendors whose displays are consoles or emulated: ASPEED, Matrox, QEMU, Cirrus, `VMware`, virtio,
/// Hyper-V, QXL, `VirtualBox`.
const CONSOLES: [u16; 9] = [0x1a03, 0x102b, 0x1234, 0x1013, 0x15ad, 0x1af4, 0x1414, 0x1b36, 0x80ee];
/// Intel's vendor number; what it puts on the root bus is the graphics of the processor.
const INTEL: u16 = 0x8086;

/// An accelerator on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciDevice {
    /// Its address, such as `0000:3b:00.0`.
    pub address: String,
    /// The vendor's number, such as `0x10de` for NVIDIA.
    pub vendor: u16,
    /// The device's number within the vendor's.
    pub device: u16,
    /// Class and subclass: `0x0300` VGA, `0x0302` 3D, `0x0380` other display, `0x1200` accelerator.
    pub class: u16,
    /// The memory node that it is attached to, where the firmware tells.
    pub numa_node: Option<u32>,
}

/// An accelerator that the NVIDIA kernel driver lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Driver {
    /// Its PCI address, such as `0000:3b:00.0`.
    pub address: String,
    /// Its name, such as `NVIDIA H100 80GB HBM3`.
    pub name: Option<String>,
    /// Its identity, such as `GPU-…`; the driver writes `?` for a device that it has not started.
    pub uuid: Option<String>,
}

/// What can be said about accelerators without a vendor's library.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GpusPresent {
    /// Accelerators on the PCI bus, by address; in a container usually all of the host's.
    pub on_bus: Vec<PciDevice>,
    /// Accelerators that the NVIDIA driver lists; `None` when no driver is loaded.
    pub by_driver: Option<Vec<Driver>>,
}

/// Looks at the PCI bus and at the NVIDIA driver's files.
///
/// # Errors
/// When the bus cannot be listed at all: then nothing is known about it.
pub fn gpus_present(root: &Root) -> Result<GpusPresent, Missing> {
    let names = match root.list("/sys/bus/pci/devices") {
        Ok(names) => names,
        // A machine without a PCI bus has none on it; a host that hides /sys says nothing.
        Err(Missing::NotThere) if root.exists("/sys/bus") => Vec::new(),
        Err(Missing::NotThere) => return Err(Missing::Unreadable("there is no /sys/bus".into())),
        Err(unreadable) => return Err(unreadable),
    };
    if names.is_empty() && root.exists("/dev/dxg") {
        return Err(Missing::Unreadable("accelerators of a Windows host are not on a PCI bus".into()));
    }
    let on_bus = names.iter().filter_map(|name| pci_device(root, name)).collect();
    Ok(GpusPresent { on_bus, by_driver: by_driver(root) })
}

fn pci_device(root: &Root, address: &str) -> Option<PciDevice> {
    let folder = format!("/sys/bus/pci/devices/{address}");
    let hex = |file: &str| {
        let line = root.line(&format!("{folder}/{file}")).ok()?;
        u32::from_str_radix(line.strip_prefix("0x")?, 16).ok()
    };
    let class = u16::try_from(hex("class")? >> 8).ok()?;
    let vendor = u16::try_from(hex("vendor")?).ok()?;
    let device = u16::try_from(hex("device")?).ok()?;
    let built_in = vendor == INTEL && address.starts_with("0000:00:");
    if !matches!(class, 0x0300 | 0x0302 | 0x0380 | 0x1200) || CONSOLES.contains(&vendor) || built_in {
        return None;
    }
    let numa_node = numa_node(root, &folder).ok();
    Some(PciDevice { address: clean(address.as_bytes()), vendor, device, class, numa_node })
}

fn by_driver(root: &Root) -> Option<Vec<Driver>> {
    let folder = "/proc/driver/nvidia/gpus";
    let addresses = root.list(folder).ok()?;
    let known = |text: &str, key: &str| {
        let value = text.lines().find_map(|line| line.strip_prefix(key)?.trim_start().strip_prefix(':'))?;
        let value = clean(value.as_bytes());
        (!value.is_empty() && !value.contains('?')).then_some(value)
    };
    let of = |address: &String| {
        let text = root.text(&format!("{folder}/{address}/information")).unwrap_or_default();
        Driver {
            address: clean(address.as_bytes()),
            name: known(&text, "Model"),
            uuid: known(&text, "GPU UUID"),
        }
    };
    Some(addresses.iter().map(of).collect())
}

pub(super) fn read(root: &Root, _spec: &FactsSpec, facts: &mut Facts) {
    facts.put("nvidia.driver_version", driver_version(root));
    facts.set("nvidia.peermem", root.exists("/sys/module/nvidia_peermem"));
    let present = match gpus_present(root) {
        Ok(present) => present,
        Err(missing) => return facts.put("gpu.pci_count", Err::<u64, _>(missing)),
    };
    facts.set("gpu.pci_count", present.on_bus.len());
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for gpu in present.on_bus.iter().take(MAX_DEVICES) {
        let id = format!("{:04x}:{:04x}", gpu.vendor, gpu.device);
        *kinds.entry(id.clone()).or_default() += 1;
        let fact = format!("gpu.{}", name_part(&gpu.address));
        facts.set(format!("{fact}.id"), id);
        let folder = format!("/sys/bus/pci/devices/{}", gpu.address);
        facts.put(format!("{fact}.pcie_link"), pcie_link(root, &folder, "current"));
        facts.put(format!("{fact}.pcie_link_max"), pcie_link(root, &folder, "max"));
        facts.put(format!("{fact}.numa_node"), gpu.numa_node.ok_or(Missing::NotThere));
    }
    if !kinds.is_empty() {
        let mut all = String::new();
        for (id, count) in kinds {
            let separator = if all.is_empty() { "" } else { ", " };
            let _ = write!(all, "{separator}{count} x {id}");
        }
        facts.set("gpu.pci_ids", all);
    }
    let Some(listed) = present.by_driver else { return facts.set_nothing("gpu.driver_count") };
    facts.set("gpu.driver_count", listed.len());
    for gpu in listed.into_iter().take(MAX_DEVICES) {
        let fact = format!("gpu.{}", name_part(&gpu.address));
        let told = |value: Option<String>| {
            value.ok_or_else(|| Missing::Unreadable("the driver does not tell".into()))
        };
        facts.put(format!("{fact}.name"), told(gpu.name));
        facts.put(format!("{fact}.uuid"), told(gpu.uuid));
    }
}

/// Speed and width of a device's link; a VM may show none.
fn pcie_link(root: &Root, folder: &str, which: &str) -> Result<String, Missing> {
    let speed = root.line(&format!("{folder}/{which}_link_speed"))?;
    let width = root.line(&format!("{folder}/{which}_link_width"))?;
    Ok(format!("{speed} x{width}"))
}

/// The version of the loaded kernel driver.
fn driver_version(root: &Root) -> Result<String, Missing> {
    if let Ok(version) = root.line("/sys/module/nvidia/version") {
        return Ok(version);
    }
    // `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar …`
    let text = root.text("/proc/driver/nvidia/version")?;
    let line = text.lines().next().unwrap_or_default();
    let is_version = |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    let version = line.split_ascii_whitespace().find(is_version).map(str::to_owned);
    version.ok_or_else(|| Missing::Unreadable("/proc/driver/nvidia/version has no version".into()))
}
