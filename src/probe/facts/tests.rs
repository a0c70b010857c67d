use super::*;
use crate::probe::lines::Fact;
use crate::probe::root::recorded::host;
use crate::probe::text::MAX_VALUE;

fn facts_of(case: &str) -> Facts {
    collect(&host(case), &FactsSpec::default())
}

fn unreadable(facts: &Facts, name: &str) -> bool {
    matches!(facts.get(name), Some(Fact::Unreadable(_)))
}

#[test]
fn bare_metal_shows_its_hardware() {
    let facts = facts_of("bare-metal");
    assert_eq!(facts.text("cpu.model"), Some("AMD EPYC 9654 96-Core Processor"));
    assert_eq!(facts.number("cpu.sockets"), Some(2.0));
    assert_eq!(facts.number("cpu.logical"), Some(128.0));
    assert_eq!(facts.text("cgroup.version"), Some("v2"));
    assert!(facts.is_nothing("cpu.quota_cores") && facts.is_nothing("memory.limit_bytes"));
    assert_eq!(facts.number("memory.effective_bytes"), Some(2_113_462_272.0 * 1024.0));
    assert!(facts.is_nothing("limit.memlock_bytes"));
    assert_eq!(facts.number("limit.pids"), Some(67584.0), "the limit stands one level up");
    assert_eq!(facts.number("numa.nodes"), Some(2.0), "has_cpu is no node");
    assert!(facts.is_nothing("container.kind") && facts.is_nothing("machine.hypervisor"));
    assert_eq!(facts.text("os.timezone"), Some("Asia/Shanghai"));
    assert_eq!(facts.flag("host.own_name_resolves"), Some(true));
    assert_eq!(facts.flag("host.own_name_loopback"), Some(false));
}

#[test]
fn bare_metal_counts_each_device_once() {
    let facts = facts_of("bare-metal");
    assert_eq!(facts.number("gpu.pci_count"), Some(8.0), "no console, no NIC, no switch");
    assert_eq!(facts.text("gpu.pci_ids"), Some("8 x 10de:2330"));
    assert_eq!(facts.number("gpu.driver_count"), Some(8.0));
    assert_eq!(facts.text("gpu.0000:1b:00_0.name"), Some("NVIDIA H100 80GB HBM3"));
    assert_eq!(facts.text("gpu.0000:1b:00_0.pcie_link"), Some("2.5 GT/s PCIe x16"), "idle");
    assert_eq!(facts.text("gpu.0000:1b:00_0.pcie_link_max"), Some("32.0 GT/s PCIe x16"));
    assert_eq!(facts.flag("nvidia.peermem"), Some(true));
    assert!(facts.is_nothing("disk.limit"));
    assert_eq!(facts.text("nvidia.driver_version"), Some("550.54.15"));
    assert_eq!(facts.text("cuda.toolkit_version"), Some("12.4.20240320"));
    assert_eq!(facts.number("disk.count"), Some(2.0), "no loop, no md, no hidden path");
    assert_eq!(facts.number("disk.nvme0n1.bytes"), Some(7_501_476_528.0 * 512.0));
    assert_eq!(facts.number("nic.count"), Some(3.0));
    assert_eq!(facts.number("nic.eno1.speed_bits_per_second"), Some(25e9));
    assert_eq!(facts.text("nic.eno1.driver"), Some("mlx5_core"));
    assert!(facts.is_nothing("nic.docker0.speed_bits_per_second") && facts.is_nothing("nic.docker0.driver"));
    assert_eq!(facts.number("rdma.count"), Some(8.0));
    assert_eq!(facts.text("rdma.mlx5_0.1.state"), Some("ACTIVE"));
    assert_eq!(facts.number("rdma.mlx5_7.1.rate_bits_per_second"), Some(400e9));
    assert_eq!(facts.text("torch.cuda_version"), Some("12.4"));
    assert_eq!(facts.number("torch.device_count"), Some(8.0));
}

#[test]
fn the_machine_id_is_only_shown_as_a_digest() {
    let mut out = Vec::new();
    Lines::new(&mut out).facts(&facts_of("bare-metal")).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(!text.contains("4c4c4544004a4d10805ac7c04f5a3033"));
    // printf %s 4c4c4544004a4d10805ac7c04f5a3033 | sha256sum
    assert_eq!(facts_of("bare-metal").text("host.machine_digest"), Some("df7a7b5bb5e3c179"));
    assert!(facts_of("v1-quota").is_nothing("host.machine_digest"), "`uninitialized` is no identity");
}

#[test]
fn a_container_shows_its_limits_not_the_hosts() {
    let facts = facts_of("docker-small-shm");
    assert_eq!(facts.text("container.kind"), Some("docker"));
    assert_eq!(facts.text("machine.hypervisor"), Some("kvm"));
    assert_eq!(facts.number("cpu.logical"), Some(64.0));
    assert_eq!(facts.number("cpu.quota_cores"), Some(16.0));
    assert_eq!(facts.number("cpu.throttled_periods"), Some(250.0));
    assert_eq!(facts.number("cpu.throttled_seconds"), Some(5.0));
    assert_eq!(facts.number("memory.limit_bytes"), Some(128.0 * 1024.0 * 1024.0 * 1024.0));
    assert_eq!(facts.number("memory.effective_bytes"), facts.number("memory.limit_bytes"));
    assert_eq!(facts.number("memory.oom_kills"), Some(2.0));
    assert_eq!(facts.number("shm.bytes"), Some(67_108_864.0));
    assert_eq!(facts.number("shm.free_bytes"), Some(4_194_304.0));
    assert_eq!(facts.text("os.libc"), Some("glibc 2.31"), "from ldd");
    assert_eq!(facts.flag("host.own_name_resolves"), Some(false));
    assert!(facts.get("host.own_name_loopback").is_none());
    assert_eq!(facts.text("disk.limit"), Some("253:0 rbps=max wbps=104857600 riops=max wiops=max"));
    assert_eq!(facts.text("torch.version"), Some("2.1.0+cpu"));
    assert!(facts.is_nothing("torch.cuda_version"));
    assert_eq!(facts.text("nvidia.driver_version"), Some("535.129.03"));
    assert!(facts.is_nothing("gpu.0000:1b:00_0.numa_node"), "-1 is no node");
}

#[test]
fn steal_is_a_share_of_all_ticks() {
    let facts = facts_of("docker-small-shm");
    // 90000 of 1000000 + 500000 + 8000000 + 10000 + 5000 + 90000.
    assert!((facts.number("cpu.steal_share").unwrap() - 90_000.0 / 9_605_000.0).abs() < 1e-12);
    // 1200 idle, 700 user, 1009 stolen in the sample.
    assert!((facts.number("cpu.steal_share_sample").unwrap() - 1009.0 / 2909.0).abs() < 1e-12);
    assert_eq!(facts.number("cpu.steal_sample_ticks"), Some(2909.0));
    assert!(unreadable(&facts_of("v1-quota"), "cpu.steal_share_sample"), "the counter stepped back");
}

#[test]
fn v1_limits_are_found_in_the_own_group() {
    let facts = facts_of("v1-quota");
    assert_eq!(facts.text("cgroup.version"), Some("v1"));
    assert_eq!(facts.text("cgroup.path"), Some("/kubepods/pod1/c1"));
    assert_eq!(facts.number("cpu.quota_cores"), Some(7.5));
    assert_eq!(facts.number("cpu.cpuset"), Some(16.0));
    assert_eq!(facts.number("memory.limit_bytes"), Some(68_719_476_736.0));
    assert!(facts.is_nothing("limit.pids"));
    assert_eq!(facts.text("container.kind"), Some("kubernetes"));
    assert!(facts.is_nothing("pressure.cpu_share"), "an old kernel has none");
    assert!(unreadable(&facts, "memory.oom_kills"), "nothing here counts them: not 0");
    assert_eq!(facts.number("gpu.pci_count"), Some(0.0), "an emulated display");
    assert_eq!(facts.flag("host.own_name_loopback"), Some(true));
    assert!(facts.is_nothing("python.version") && facts.is_nothing("torch.version"));
}

#[test]
fn the_tightest_limit_on_the_way_up_counts() {
    let facts = facts_of("v2-nested");
    assert_eq!(facts.number("cpu.quota_cores"), Some(4.0));
    assert_eq!(facts.text("cpu.quota_from"), Some("/sys/fs/cgroup/team.slice"));
    assert_eq!(facts.number("cpu.throttled_periods"), Some(3.0), "of the group with the quota");
    assert_eq!(facts.number("memory.limit_bytes"), Some(17_179_869_184.0));
    assert_eq!(facts.number("gpu.pci_count"), Some(0.0), "no PCI bus, so none on it");
    assert_eq!(facts.text("python.version"), Some("3.11.2"));
    for name in ["torch.version", "torch.cuda_available"] {
        assert!(unreadable(&facts, name), "{name}: PyTorch did not answer in time");
    }
}

#[test]
fn a_virtual_machine_is_told_from_its_firmware() {
    let facts = facts_of("vm");
    assert_eq!(facts.text("machine.hypervisor"), Some("kvm"));
    assert!(facts.is_nothing("container.kind"));
    assert_eq!(facts.number("gpu.pci_count"), Some(1.0));
    assert!(facts.is_nothing("gpu.driver_count") && facts.is_nothing("nvidia.driver_version"));
    assert!(facts.is_nothing("torch.version"));
    assert_eq!(facts.text("python.version"), Some("3.10.12"));
}

#[test]
fn hostile_content_stays_harmless() {
    let facts = facts_of("hostile");
    for (name, fact) in facts.iter() {
        let (Fact::Value(Value::String(text)) | Fact::Unreadable(text)) = fact else { continue };
        assert!(text.len() <= MAX_VALUE, "{name}");
        assert!(!text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{name}: {text:?}");
    }
    assert!(facts.text("cpu.model").is_some_and(|model| model.contains("AMD")));
    assert!(facts.text("os.name").is_some_and(|name| name.len() == MAX_VALUE));
    for name in ["memory.total_bytes", "cpu.steal_share", "cpu.quota_cores", "memory.effective_bytes"] {
        assert!(unreadable(&facts, name), "{name} {:?}", facts.get(name));
    }
    assert!(unreadable(&facts, "gpu.pci_count"), "a host that hides /sys says nothing");
    assert!(unreadable(&facts, "torch.version"), "a line without the mark is no answer");
}

#[test]
fn every_fact_is_documented_and_every_documented_fact_is_seen() {
    let pattern = |name: &str| {
        let parts: Vec<&str> = name.split('.').collect();
        let plain = |n: usize| FACTS.iter().any(|(known, _)| *known == parts[..n].join("."));
        if plain(parts.len()) {
            return name.to_owned();
        }
        match parts[..] {
            ["disk", _, what] => format!("disk.<name>.{what}"),
            ["gpu", _, what] => format!("gpu.<address>.{what}"),
            ["mount", _, what] => format!("mount.<path>.{what}"),
            ["nic", _, what] => format!("nic.<name>.{what}"),
            ["numa", _, what] => format!("numa.<node>.{what}"),
            ["rdma", _, what] => format!("rdma.<device>.{what}"),
            ["rdma", _, _, what] => format!("rdma.<device>.<port>.{what}"),
            _ => name.to_owned(),
        }
    };
    let mut seen = std::collections::BTreeSet::new();
    for case in ["bare-metal", "docker-small-shm", "v1-quota", "v2-nested", "vm", "hostile"] {
        seen.extend(facts_of(case).iter().map(|(name, _)| pattern(name)));
    }
    let known = FACTS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(seen, known);
    assert!(FACTS.is_sorted(), "the list is in order of names");
}

#[test]
fn a_bad_spec_is_refused() {
    for spec in [serde_json::json!({"mount": []}), serde_json::json!({"sample_seconds": -1})] {
        assert_eq!(run(spec, &mut Vec::new()).unwrap_err().cause(), "bad_spec");
    }
}

#[test]
fn this_very_host_can_be_read() {
    let mut out = Vec::new();
    run(serde_json::json!({"ask_python": false, "sample_seconds": 0.0}), &mut out).unwrap();
    let mut facts = Facts::new();
    for line in String::from_utf8(out).unwrap().lines() {
        assert!(facts.accept(&serde_json::from_str(line).unwrap()), "{line}");
    }
    assert!(facts.number("cpu.logical").is_some_and(|count| count >= 1.0));
    assert!(facts.number("memory.total_bytes").is_some_and(|bytes| bytes > 0.0));
    assert!(facts.get("torch.version").is_none(), "nobody asked");
}
