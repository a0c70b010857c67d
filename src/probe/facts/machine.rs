//! Container, virtual machine or bare metal, by the marks that each leaves.
//!
//! Here: the marks. Not here: whether it is what was promised.
//!
//! Invariant: "no sign of a hypervisor" is said only when something was there to show one.

use super::FactsSpec;
use crate::probe::lines::Facts;
use crate::probe::root::{Missing, Root};

/// Vendor or product, as the firmware tables start, and the hypervisor behind them.
const FIRMWARE: [(&str, &str); 19] = [
    ("QEMU", "kvm"),
    ("KVM", "kvm"),
    ("Amazon EC2", "kvm"),
    ("Google", "kvm"),
    ("OpenStack", "kvm"),
    ("Alibaba Cloud", "kvm"),
    ("Tencent Cloud", "kvm"),
    ("HUAWEICLOUD", "kvm"),
    ("Huawei Cloud", "kvm"),
    ("Volcengine", "kvm"),
    ("DigitalOcean", "kvm"),
    ("Hetzner", "kvm"),
    ("Nutanix", "kvm"),
    ("VMware", "vmware"),
    ("innotek", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Xen", "xen"),
    ("Parallels", "parallels"),
    ("Virtual Machine", "hyperv"),
];

pub(super) fn read(root: &Root, _spec: &FactsSpec, facts: &mut Facts) {
    facts.put("container.kind", container(root));
    let vendor = root.line("/sys/class/dmi/id/sys_vendor");
    let product = root.line("/sys/class/dmi/id/product_name");
    facts.put("machine.hypervisor", hypervisor(root, &vendor, &product));
    facts.put("machine.vendor", vendor);
    facts.put("machine.product", product);
}

/// What kind of container this is; `NotThere` for none.
pub(crate) fn container(root: &Root) -> Result<String, Missing> {
    if root.exists("/var/run/secrets/kubernetes.io") || root.exists("/run/secrets/kubernetes.io") {
        return Ok("kubernetes".into());
    }
    if root.exists("/.dockerenv") {
        return Ok("docker".into());
    }
    if root.exists("/run/.containerenv") {
        return Ok("podman".into());
    }
    if let Ok(kind) = root.line("/run/systemd/container") {
        return Ok(kind);
    }
    let groups = root.text("/proc/self/cgroup");
    let marks = [
        ("kubepods", "kubernetes"),
        ("/docker", "docker"),
        ("libpod", "podman"),
        ("/lxc", "lxc"),
        ("containerd", "containerd"),
        ("garden", "garden"),
    ];
    if let Ok(text) = &groups
        && let Some((_, kind)) = marks.iter().find(|(mark, _)| text.contains(mark))
    {
        return Ok((*kind).into());
    }
    if root
        .text("/proc/mounts")
        .is_ok_and(|mounts| mounts.lines().any(|line| line.starts_with("overlay / overlay ")))
    {
        return Ok("unknown".into());
    }
    groups.and(Err(Missing::NotThere))
}

fn hypervisor(
    root: &Root,
    vendor: &Result<String, Missing>,
    product: &Result<String, Missing>,
) -> Result<String, Missing> {
    if let Ok(kind) = root.line("/sys/hypervisor/type") {
        return Ok(kind);
    }
    let info = root.text("/proc/cpuinfo");
    let mut flags = info.iter().flat_map(|text| text.lines()).filter_map(|line| {
        let (name, flags) = line.split_once(':')?;
        (name.trim() == "flags").then_some(flags)
    });
    // Only x86 has the flag; its absence elsewhere says nothing.
    let flagged = flags.next().map(|flags| flags.split(' ').any(|flag| flag == "hypervisor"));
    let product_name = product.as_deref().unwrap_or_default();
    let named = [vendor.as_deref().unwrap_or_default(), product_name].iter().find_map(|text| {
        FIRMWARE.iter().find(|(start, _)| text.starts_with(start)).map(|(_, kind)| (*kind).to_owned())
    });
    // Whole machines of a cloud carry the cloud's name too.
    let metal = product_name.split('.').any(|part| part == "metal" || part.starts_with("metal-"));
    match (flagged, named) {
        (Some(true), Some(kind)) => Ok(kind),
        (Some(true), None) => Ok("unknown".into()),
        (_, Some(_)) if metal => Err(Missing::NotThere),
        // Some clouds hide the flag from the guest; the firmware's name still tells.
        (_, Some(kind)) => Ok(kind),
        (Some(false), None) => Err(Missing::NotThere),
        (None, None) if vendor.is_ok() => Err(Missing::NotThere),
        (None, None) => Err(Missing::Unreadable("neither processor flags nor firmware tables tell".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said of a host with these processor flags, vendor and product.
    fn said(cpuinfo: &str, vendor: &str, product: &str) -> Result<String, Missing> {
        let folder = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("proc/cpuinfo", cpuinfo),
            ("sys/class/dmi/id/sys_vendor", vendor),
            ("sys/class/dmi/id/product_name", product),
        ] {
            let path = folder.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut facts = Facts::new();
        read(&Root::at(folder.path()), &FactsSpec::default(), &mut facts);
        match facts.get("machine.hypervisor") {
            Some(crate::probe::lines::Fact::Unreadable(reason)) => Err(Missing::Unreadable(reason.clone())),
            _ => facts.text("machine.hypervisor").map(str::to_owned).ok_or(Missing::NotThere),
        }
    }

    #[test]
    fn hypervisors_are_told_by_flag_or_firmware() {
        let (flagged, plain) = ("flags\t: fpu hypervisor avx\n", "flags\t: fpu avx\n");
        assert_eq!(said(flagged, "Microsoft Corporation", "Virtual Machine"), Ok("hyperv".into()));
        assert_eq!(said(flagged, "", ""), Ok("unknown".into()));
        assert_eq!(said(plain, "Dell Inc.", "PowerEdge XE9680"), Err(Missing::NotThere));
        assert_eq!(said(plain, "Tencent Cloud", "CVM"), Ok("kvm".into()), "a hidden flag");
        assert_eq!(said(plain, "Amazon EC2", "p4d.metal"), Err(Missing::NotThere), "a whole machine");
    }

    #[test]
    fn other_processors_have_no_flag_so_firmware_decides() {
        assert_eq!(said("CPU part\t: 0xd4f\n", "NVIDIA", "Grace"), Err(Missing::NotThere));
        assert!(matches!(said("CPU part\t: 0xd4f\n", "", ""), Err(Missing::Unreadable(_))));
    }
}
