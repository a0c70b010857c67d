//! Checks of accelerators as far as bus, driver files and `PyTorch` show them.
//!
//! Here: number, name, driver, whether `PyTorch` can use them, memory nodes. Not here: memory,
//! clocks and health, which need the vendor's library.
//!
//! Invariant: the bus of a container shows the host's accelerators, so more than promised is no
//! proof; fewer than promised is.

use super::{Check, Facts, Promises, number, per_device};
use crate::probe::facts::NVIDIA;
use crate::probe::lines::Fact;

/// Words in a product name that make it another, weaker product.
const TWINS: [&str; 8] = ["d", "dd", "maxq", "laptop", "mobile", "grid", "vgpu", "mig"];
/// Words that say nothing about which product it is.
const FILLERS: [&str; 6] = ["nvidia", "geforce", "amd", "instinct", "quadro", "tesla"];

pub(super) fn count(facts: &Facts, promises: &Promises) -> Option<Check> {
    let asked = promises.gpus?;
    let wanted = f64::from(asked);
    let check = match facts.number("gpu.pci_count") {
        None => Check::unknown(facts, "gpu.pci_count"),
        Some(0.0) if asked > 0 => Check::fail("there is no accelerator on the PCI bus")
            .value("0")
            .action("ask the provider; in a VM, check that the device is passed through"),
        Some(found) if found < wanted => {
            Check::fail(format!("the PCI bus shows {} accelerators", number(found)))
                .value(number(found))
                .action("reject the machine: an accelerator has fallen off the bus or was never there")
        }
        Some(found) => within_reach(facts, found, asked).value(number(found)),
    };
    Some(check.promised(Some(asked.to_string())))
}

/// On the bus is not yet within reach: driver and `PyTorch` may see fewer.
fn within_reach(facts: &Facts, on_bus: f64, asked: u32) -> Check {
    let wanted = f64::from(asked);
    let seen = [("the NVIDIA driver", "gpu.driver_count"), ("PyTorch", "torch.device_count")];
    for (who, name) in seen {
        // None at all has checks of its own: `gpu_driver` and `torch_cuda`.
        if let Some(count) = facts.number(name)
            && count < wanted
            && count > 0.0
        {
            return Check::fail(format!("{who} sees {} of {} on the bus", number(count), number(on_bus)))
                .action("check which devices are handed to the container, and the kernel log for lost ones");
        }
    }
    if on_bus > wanted {
        let whose = match facts.text("container.kind") {
            Some(_) => "the bus shows the whole host's",
            None => "more than promised are there",
        };
        return Check::pass(format!("at least as many as promised; {whose}"));
    }
    Check::pass("as many on the PCI bus as promised")
}

pub(super) fn name(facts: &Facts, promises: &Promises) -> Option<Check> {
    let asked = promises.gpu.as_deref()?;
    let names: Vec<&str> = per_device(facts, "gpu", "name")
        .filter_map(|(_, fact)| if let Fact::Value(value) = fact { value.as_str() } else { None })
        .collect();
    let check = if names.is_empty() {
        let ids = facts.text("gpu.pci_ids").map_or(String::new(), |ids| format!("; on the PCI bus: {ids}"));
        Check::not_observable(format!("no driver tells the accelerators' names{ids}"))
    } else if let Some(other) = names.iter().find(|name| !is_product(name, asked)) {
        Check::fail("another product than was promised")
            .value(*other)
            .action("reject the machine: it was substituted")
    } else if let Some(name) = names.iter().find(|name| is_unnamed_pcie(name, asked)) {
        Check::warn("the PCIe variant, which is slower than the module of the same name").value(*name)
    } else {
        Check::pass("all accelerators carry the promised name").value(names[0])
    };
    Some(check.promised(Some(asked)))
}

/// True when the name holds every word of the promised one, and none that makes it a lesser twin.
///
/// Form factor and kind of memory stand in some names and not in others (`NVIDIA H100 80GB HBM3` is
/// the SXM module), and so does the size of the memory: they count only where both names have them.
fn is_product(name: &str, promised: &str) -> bool {
    let (found, wanted) = (words(name), words(promised));
    let size = |words: &[String]| words.iter().find(|word| is_size(word)).cloned();
    if let (Some(found), Some(wanted)) = (size(&found), size(&wanted))
        && found != wanted
    {
        return false;
    }
    let loose =
        |word: &str| is_size(word) || word.starts_with("sxm") || word.starts_with("hbm") || word == "oam";
    let bare = |word: &str| word.trim_start_matches("rtx").trim_start_matches("gtx").to_owned();
    let holds =
        |word: &String| loose(word) || found.iter().any(|found| found == word || bare(found) == *word);
    let module = wanted.iter().any(|word| word.starts_with("sxm") || word == "oam");
    wanted.iter().all(holds)
        && !found.iter().any(|word| TWINS.contains(&word.as_str()) && !wanted.contains(word))
        && !(module && found.iter().any(|word| word == "pcie"))
}

/// The words of a product name that tell it from others, in lower case.
fn words(name: &str) -> Vec<String> {
    let lower = name.to_lowercase().replace("rtx ", "rtx").replace("gtx ", "gtx").replace("max-q", "maxq");
    let parts = lower.split([' ', '_', '-', '(', ')', ',']);
    parts.filter(|word| !word.is_empty() && !FILLERS.contains(word)).map(str::to_owned).collect()
}

fn is_unnamed_pcie(name: &str, promised: &str) -> bool {
    let says = |name: &str| words(name).iter().any(|word| word == "pcie");
    says(name) && !says(promised)
}

fn is_size(word: &str) -> bool {
    word.strip_suffix("gb").is_some_and(|number| number.parse::<u32>().is_ok())
}

pub(super) fn driver(facts: &Facts, _: &Promises) -> Option<Check> {
    let on_bus = nvidia_on_bus(facts);
    if on_bus == 0 {
        return None;
    }
    let action = "install or load the NVIDIA driver on the host; in a container, use the NVIDIA runtime";
    Some(match facts.text("nvidia.driver_version") {
        Some(version) => match facts.number("gpu.driver_count") {
            Some(0.0) => Check::fail("the driver is loaded but lists no accelerator")
                .action("look at the kernel log for its errors"),
            _ => Check::pass("the driver is loaded"),
        }
        .value(version),
        None if facts.is_nothing("nvidia.driver_version") => {
            Check::fail(format!("{on_bus} NVIDIA devices are on the PCI bus, but no driver is loaded"))
                .action(action)
        }
        None => Check::unknown(facts, "nvidia.driver_version"),
    })
}

fn nvidia_on_bus(facts: &Facts) -> usize {
    let vendor = format!("{NVIDIA:04x}:");
    per_device(facts, "gpu", "id")
        .filter(|(_, fact)| matches!(fact, Fact::Value(id) if id.as_str().is_some_and(|id| id.starts_with(&vendor))))
        .count()
}

pub(super) fn torch(facts: &Facts, _: &Promises) -> Option<Check> {
    if nvidia_on_bus(facts) == 0 {
        return None;
    }
    if facts.is_nothing("torch.version") {
        return Some(Check::not_observable("PyTorch is not installed"));
    }
    let Some(version) = facts.text("torch.version") else {
        return Some(Check::unknown(facts, "torch.version"));
    };
    let built = facts.text("torch.cuda_version");
    let check = match facts.flag("torch.cuda_available") {
        Some(true) => Check::pass("PyTorch can use the accelerators"),
        _ if facts.is_nothing("torch.cuda_version") => {
            Check::warn("this build of PyTorch has no CUDA: it runs on the CPU")
                .action("install a CUDA build of PyTorch that fits the driver")
        }
        Some(false) => Check::fail("PyTorch was built for CUDA but cannot use the accelerators on the bus")
            .action(
                "compare the driver with PyTorch's CUDA version; on HGX machines, start the fabric manager",
            ),
        None => Check::unknown(facts, "torch.cuda_available"),
    };
    let cuda = built.map_or("no CUDA".into(), |cuda| format!("CUDA {cuda}"));
    Some(check.value(format!("PyTorch {version}, {cuda}")))
}

pub(super) fn numa(facts: &Facts, promises: &Promises) -> Option<Check> {
    let gpus: Vec<Option<f64>> = nodes(facts, "gpu");
    if gpus.is_empty() {
        return None;
    }
    let Some(count) = facts.number("numa.nodes") else { return Some(Check::unknown(facts, "numa.nodes")) };
    let value = format!("{} memory nodes", number(count));
    if count <= 1.0 {
        return Some(Check::pass("there is one memory node only").value(value));
    }
    let rdma = nodes(facts, "rdma");
    let alone = |node: &f64| !rdma.contains(&Some(*node));
    let check = if gpus.contains(&None) {
        Check::not_observable(
            "the firmware does not tell which memory node an accelerator belongs to (usual in VMs)",
        )
    } else if promises.nodes.is_some_and(|nodes| nodes > 1)
        && !rdma.is_empty()
        && gpus.iter().flatten().any(alone)
    {
        Check::warn("some accelerators have no RDMA device on their memory node")
            .action("expect slower collectives from them, or map them by hand")
    } else {
        Check::pass("each accelerator's memory node is known: workers can be pinned to it")
    };
    Some(check.value(value))
}

/// The memory node of each device of a group.
fn nodes(facts: &Facts, group: &str) -> Vec<Option<f64>> {
    let node = |(_, fact): (_, &Fact)| if let Fact::Value(value) = fact { value.as_f64() } else { None };
    per_device(facts, group, "numa_node").map(node).collect()
}
