use serde_json::{Value, json};

use super::CheckOutcome::{Fail, NotObservable, Pass, Warn};
use super::*;
use crate::probe::facts::{FactsSpec, collect};
use crate::probe::root::recorded::host;

/// Facts by hand; `null` = there is none, `"!"` = unreadable.
fn facts(pairs: &Value) -> Facts {
    let mut facts = Facts::new();
    for (name, value) in pairs.as_object().unwrap() {
        if value == "!" {
            facts.set_unreadable(name, "permission denied");
        } else {
            facts.set(name, value.clone());
        }
    }
    facts
}

fn check(id: &str, pairs: &Value, promises: &Promises) -> Option<Check> {
    judge(&facts(pairs), promises).into_iter().find(|check| check.id == id)
}

fn outcome(id: &str, pairs: &Value, promises: &Promises) -> Option<CheckOutcome> {
    check(id, pairs, promises).map(|check| check.outcome)
}

fn none() -> Promises {
    Promises::default()
}

const GIB: f64 = 1_073_741_824.0;

#[test]
fn nothing_known_is_never_a_pass() {
    let all = Promises {
        gpu: Some("H100".into()),
        gpus: Some(8),
        vcpus: Some(8),
        memory_bytes: Some(GIB),
        disk_bytes: Some(GIB),
        network_bits_per_second: Some(1e9),
        bare_metal: Some(true),
        nodes: Some(2),
    };
    for promises in [all, none()] {
        for check in judge(&Facts::new(), &promises) {
            assert_eq!(check.outcome, NotObservable, "{check:?}");
            assert!(!check.reason.is_empty() && !check.id.is_empty());
        }
    }
    let asked = judge(&Facts::new(), &none());
    assert!(
        asked.iter().all(|check| !matches!(check.id.as_str(), "gpu_count" | "gpu_name" | "virtualization"))
    );
}

#[test]
fn every_unreadable_fact_alone_never_makes_a_pass_of_what_was_none() {
    // From a recording, hide one fact at a time: no check may get better by knowing less.
    let promises = Promises { gpus: Some(4), vcpus: Some(64), memory_bytes: Some(512.0 * GIB), ..none() };
    let known = collect(&host("docker-small-shm"), &FactsSpec::default());
    let before = judge(&known, &promises);
    for (name, _) in known.iter() {
        let mut less = known.clone();
        less.set_unreadable(name, "hidden");
        for after in judge(&less, &promises) {
            let was = before.iter().find(|check| check.id == after.id).map(|check| check.outcome);
            let better = after.outcome == Pass && was != Some(Pass);
            assert!(!better, "{} became a pass without {name}: {after:?}", after.id);
        }
    }
}

#[test]
fn cpu_quota() {
    let of = |pairs: Value, vcpus: Option<u32>| outcome("cpu_quota", &pairs, &Promises { vcpus, ..none() });
    let free = json!({"cpu.logical": 64, "cpu.affinity": 64, "cpu.cpuset": 64, "cpu.quota_cores": null});
    assert_eq!(of(free.clone(), None), Some(Pass));
    assert_eq!(of(free.clone(), Some(64)), Some(Pass));
    assert_eq!(of(free, Some(65)), Some(Fail));
    let quota = json!({"cpu.logical": 64, "cpu.affinity": 64, "cpu.quota_cores": 7.5});
    assert_eq!(of(quota.clone(), None), Some(Warn));
    assert_eq!(of(quota.clone(), Some(8)), Some(Fail));
    assert_eq!(of(quota, Some(7)), Some(Pass));
    let set = json!({"cpu.logical": 64, "cpu.cpuset": 16, "cpu.quota_cores": null});
    assert_eq!(of(set, Some(32)), Some(Fail));
    // The number seen is an upper bound only: it can break a promise, not keep one.
    let hidden = json!({"cpu.logical": 64, "cpu.quota_cores": "!"});
    assert_eq!(of(hidden.clone(), Some(65)), Some(Fail));
    assert_eq!(of(hidden.clone(), Some(8)), Some(NotObservable));
    assert_eq!(of(hidden, None), Some(NotObservable));
    let found = check("cpu_quota", &json!({"cpu.logical": 64, "cpu.quota_cores": 7.5}), &none()).unwrap();
    assert_eq!(found.value.as_deref(), Some("7.5"));
    assert!(found.reason.contains("64") && found.action.unwrap().contains("nproc"));
}

#[test]
fn cpu_throttled() {
    let of = |pairs: Value| outcome("cpu_throttled", &pairs, &none());
    assert_eq!(of(json!({"cpu.quota_cores": null})), Some(Pass));
    let counted = |periods: u32, throttled: u32| json!({"cpu.quota_cores": 4, "cpu.periods": periods, "cpu.throttled_periods": throttled});
    assert_eq!(of(counted(100, 0)), Some(Pass));
    assert_eq!(of(counted(100, 1)), Some(Warn));
    assert_eq!(of(counted(0, 0)), Some(NotObservable));
    assert_eq!(
        of(json!({"cpu.quota_cores": 4, "cpu.periods": 9, "cpu.throttled_periods": "!"})),
        Some(NotObservable)
    );
    assert_eq!(of(json!({"cpu.quota_cores": "!"})), Some(NotObservable));
}

#[test]
fn cpu_steal() {
    let of = |pairs: Value| outcome("cpu_steal", &pairs, &none());
    assert_eq!(of(json!({"cpu.steal_share": 0.005})), Some(NotObservable), "long ago is not now");
    assert_eq!(of(json!({"cpu.steal_share": 0.01})), Some(Warn));
    assert_eq!(of(json!({"cpu.steal_share": 0.05})), Some(Fail));
    assert_eq!(of(json!({"cpu.steal_share": 0})), Some(NotObservable), "0 is no proof");
    assert_eq!(of(json!({"cpu.steal_share": 0, "machine.hypervisor": "kvm"})), Some(NotObservable));
    assert_eq!(of(json!({"cpu.steal_share": 0, "machine.hypervisor": null})), Some(Pass));
    assert_eq!(of(json!({"cpu.steal_share": "!"})), Some(NotObservable));
    let sample = |share: f64, ticks: u32| json!({"cpu.steal_share": 0.001, "cpu.steal_share_sample": share, "cpu.steal_sample_ticks": ticks});
    assert_eq!(of(sample(0.05, 40)), Some(Pass), "two ticks of forty are noise");
    assert_eq!(of(sample(0.05, 400)), Some(Warn));
}

#[test]
fn pressure() {
    let of = |pairs: Value| outcome("pressure", &pairs, &none());
    let shares = |cpu: f64, io: f64| json!({"pressure.cpu_share": cpu, "pressure.io_share": io, "pressure.memory_share": 0});
    assert_eq!(of(shares(0.01, 0.02)), Some(Pass));
    assert_eq!(of(shares(0.01, 0.10)), Some(Warn));
    let old = json!({"pressure.cpu_share": null, "pressure.io_share": null, "pressure.memory_share": null});
    assert_eq!(of(old), Some(NotObservable));
    assert_eq!(of(json!({"pressure.cpu_share": 0.01, "pressure.io_share": "!"})), Some(NotObservable));
}

#[test]
fn memory_limit() {
    let of = |pairs: Value, gib: Option<f64>| {
        outcome("memory_limit", &pairs, &Promises { memory_bytes: gib.map(|gib| gib * GIB), ..none() })
    };
    let whole = json!({"memory.total_bytes": 62.8 * GIB, "memory.effective_bytes": 62.8 * GIB, "memory.limit_bytes": null});
    assert_eq!(of(whole.clone(), None), Some(Pass));
    assert_eq!(of(whole.clone(), Some(64.0)), Some(Pass), "the kernel keeps some");
    assert_eq!(of(whole, Some(72.0)), Some(Fail));
    let limited = json!({"memory.total_bytes": 500.0 * GIB, "memory.effective_bytes": 64.0 * GIB, "memory.limit_bytes": 64.0 * GIB});
    assert_eq!(of(limited.clone(), None), Some(Warn));
    assert_eq!(of(limited.clone(), Some(64.0)), Some(Pass));
    assert_eq!(of(limited, Some(500.0)), Some(Fail));
    let hidden = json!({"memory.total_bytes": 64.0 * GIB, "memory.effective_bytes": "!"});
    assert_eq!(of(hidden.clone(), Some(32.0)), Some(NotObservable));
    assert_eq!(of(hidden, Some(128.0)), Some(Fail));
    let found = check("memory_limit", &json!({"memory.effective_bytes": 64.0 * GIB}), &none()).unwrap();
    assert_eq!(found.value.as_deref(), Some("64 GiB"));
}

#[test]
fn oom_kills() {
    let of = |pairs: Value| outcome("oom_kills", &pairs, &none());
    assert_eq!(of(json!({"memory.oom_kills": 0})), Some(Pass));
    assert_eq!(of(json!({"memory.oom_kills": 2})), Some(Warn));
    assert_eq!(of(json!({"memory.oom_kills": "!"})), Some(NotObservable));
}

#[test]
fn shared_memory_of_64_mib_is_caught_before_nccl_dies() {
    // The numbers of a real report: 64 MiB in all, 4 MiB free.
    let small = json!({"shm.bytes": 67_108_864, "shm.free_bytes": 4_194_304, "container.kind": "docker"});
    let gpu = Promises { gpus: Some(4), ..none() };
    let found = check("shm", &small, &gpu).unwrap();
    assert_eq!(found.outcome, Fail);
    assert_eq!(found.value.as_deref(), Some("64 MiB, 4 MiB free"));
    let action = found.action.unwrap();
    assert!(action.contains("--shm-size") && action.contains("--ipc=host"), "{action}");
    assert!(found.reason.contains("/dev/shm") && !found.reason.contains("network"));
    assert_eq!(outcome("shm", &small, &none()), Some(Warn), "without accelerators");
    let pod = json!({"shm.bytes": 67_108_864, "container.kind": "kubernetes"});
    assert!(check("shm", &pod, &gpu).unwrap().action.unwrap().contains("emptyDir"));
}

#[test]
fn shm_sizes_between() {
    let of = |bytes: f64, memory: f64| {
        let pairs = json!({"shm.bytes": bytes, "shm.free_bytes": bytes, "memory.effective_bytes": memory});
        outcome("shm", &pairs, &Promises { gpus: Some(8), ..none() })
    };
    assert_eq!(of(4.0 * GIB, 500.0 * GIB), Some(Warn), "less than 1 GiB for each of 8");
    assert_eq!(of(8.0 * GIB, 500.0 * GIB), Some(Pass));
    assert_eq!(of(2.0 * GIB, 4.0 * GIB), Some(Pass), "half of the memory");
    let full = json!({"shm.bytes": 8.0 * GIB, "shm.free_bytes": 0.1 * GIB});
    assert_eq!(outcome("shm", &full, &none()), Some(Warn));
    assert_eq!(outcome("shm", &json!({"shm.bytes": null, "gpu.pci_count": 1}), &none()), Some(Fail));
    assert_eq!(outcome("shm", &json!({"shm.bytes": "!"}), &none()), Some(NotObservable));
}

#[test]
fn memlock() {
    let of = |pairs: Value| outcome("memlock", &pairs, &none());
    assert_eq!(of(json!({"limit.memlock_bytes": null, "rdma.count": 8})), Some(Pass));
    assert_eq!(of(json!({"limit.memlock_bytes": 65536, "rdma.count": 8})), Some(Fail));
    assert_eq!(of(json!({"limit.memlock_bytes": 65536, "rdma.count": 0})), Some(Pass));
    assert_eq!(of(json!({"limit.memlock_bytes": 65536, "rdma.count": "!"})), Some(Warn));
}

#[test]
fn open_files_and_processes() {
    assert_eq!(
        outcome("open_files", &json!({"limit.nofile": 1024, "limit.nofile_hard": 1_048_576}), &none()),
        Some(Warn)
    );
    assert_eq!(outcome("open_files", &json!({"limit.nofile": 65536}), &none()), Some(Pass));
    assert_eq!(outcome("open_files", &json!({"limit.nofile": null}), &none()), Some(Pass));
    assert_eq!(outcome("processes", &json!({"limit.pids": 512}), &none()), Some(Warn));
    assert_eq!(outcome("processes", &json!({"limit.pids": null}), &none()), Some(Pass));
    assert_eq!(outcome("processes", &json!({"limit.pids": "!"}), &none()), Some(NotObservable));
}

#[test]
fn disk_space() {
    let of = |pairs: Value, bytes: Option<f64>| {
        outcome("disk_space", &pairs, &Promises { disk_bytes: bytes, ..none() })
    };
    let roomy = json!({"mount./.bytes": 1e12, "mount./.free_bytes": 5e11});
    assert_eq!(of(roomy.clone(), None), Some(Pass));
    assert_eq!(of(roomy.clone(), Some(1e12)), Some(Pass));
    assert_eq!(of(roomy.clone(), Some(2e12)), Some(Fail));
    let mut with_disk = roomy;
    with_disk["disk.nvme0n1.bytes"] = json!(3.84e12);
    assert_eq!(of(with_disk, Some(3.84e12)), Some(Pass), "a disk that is not mounted yet");
    assert_eq!(of(json!({"mount./.bytes": 1e12, "mount./.free_bytes": 4e10}), Some(1e12)), Some(Warn));
    assert_eq!(of(json!({"mount./.kind": "!"}), Some(1e12)), Some(NotObservable));
}

#[test]
fn network_speed() {
    let of = |pairs: Value| {
        outcome("network_speed", &pairs, &Promises { network_bits_per_second: Some(100e9), ..none() })
    };
    assert_eq!(of(json!({"nic.eth0.speed_bits_per_second": 100e9})), Some(Pass));
    assert_eq!(of(json!({"nic.eth0.speed_bits_per_second": 25e9})), Some(Fail));
    assert_eq!(
        of(json!({"nic.eth0.speed_bits_per_second": 1e9, "rdma.mlx5_0.1.rate_bits_per_second": 400e9})),
        Some(Pass)
    );
    assert_eq!(of(json!({"nic.eth0.speed_bits_per_second": null})), Some(NotObservable));
    assert_eq!(outcome("network_speed", &json!({}), &none()), None);
}

#[test]
fn own_name() {
    let of = |pairs: Value, nodes: Option<u32>| outcome("own_name", &pairs, &Promises { nodes, ..none() });
    let lost = json!({"host.name": "box", "host.own_name_resolves": false});
    assert_eq!(of(lost.clone(), None), Some(Warn));
    assert_eq!(of(lost, Some(2)), Some(Fail));
    let inward = json!({"host.own_name_resolves": true, "host.own_name_loopback": true});
    assert_eq!(of(inward.clone(), None), Some(Pass));
    assert_eq!(of(inward, Some(2)), Some(Warn));
    assert_eq!(of(json!({"host.own_name_resolves": "!"}), Some(2)), Some(NotObservable));
}

#[test]
fn virtualization_and_clock() {
    let of = |pairs: Value, bare_metal| outcome("virtualization", &pairs, &Promises { bare_metal, ..none() });
    assert_eq!(of(json!({"machine.hypervisor": "kvm"}), Some(true)), Some(Fail));
    assert_eq!(of(json!({"machine.hypervisor": null}), Some(true)), Some(Pass));
    assert_eq!(of(json!({"machine.hypervisor": "!"}), Some(true)), Some(NotObservable));
    assert_eq!(of(json!({"machine.hypervisor": "kvm"}), None), None, "nothing promised");
    assert_eq!(outcome("clock", &json!({"os.clock_source": "tsc"}), &none()), Some(NotObservable));
}

#[test]
fn gpu_count() {
    let of = |pairs: Value, gpus| outcome("gpu_count", &pairs, &Promises { gpus, ..none() });
    assert_eq!(of(json!({"gpu.pci_count": 0}), None), None, "not promised: nothing to say");
    assert_eq!(of(json!({"gpu.pci_count": 0}), Some(1)), Some(Fail));
    assert_eq!(of(json!({"gpu.pci_count": 7}), Some(8)), Some(Fail));
    assert_eq!(of(json!({"gpu.pci_count": 8}), Some(8)), Some(Pass));
    assert_eq!(of(json!({"gpu.pci_count": 8, "torch.device_count": 1}), Some(2)), Some(Fail));
    assert_eq!(of(json!({"gpu.pci_count": 8, "gpu.driver_count": 7}), Some(8)), Some(Fail));
    assert_eq!(
        of(json!({"gpu.pci_count": 8, "torch.device_count": 1, "container.kind": "docker"}), Some(1)),
        Some(Pass)
    );
    assert_eq!(of(json!({"gpu.pci_count": "!"}), Some(1)), Some(NotObservable));
}

#[test]
fn gpu_name_tells_twins() {
    let of = |found: &str, promised: &str| {
        outcome(
            "gpu_name",
            &json!({ "gpu.0.name": found }),
            &Promises { gpu: Some(promised.into()), ..none() },
        )
    };
    for (found, promised, expected) in [
        ("NVIDIA H100 80GB HBM3", "H100 80GB", Pass),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB", Pass),
        ("NVIDIA H200", "H200 141GB", Pass),
        ("NVIDIA A100-SXM4-40GB", "A100 80GB", Fail),
        ("NVIDIA A800-SXM4-80GB", "A100 80GB", Fail),
        ("NVIDIA H100 PCIe", "H100", Warn),
        ("NVIDIA H100 PCIe", "H100 SXM", Fail),
        ("NVIDIA H100 PCIe", "H100 PCIe", Pass),
        ("NVIDIA GeForce RTX 4090", "RTX 4090", Pass),
        ("NVIDIA GeForce RTX 4090", "4090", Pass),
        ("NVIDIA GeForce RTX 4090 D", "RTX 4090", Fail),
        ("NVIDIA GeForce RTX 2080 with Max-Q Design", "RTX 2080", Fail),
        ("NVIDIA L40", "L40S", Fail),
    ] {
        assert_eq!(of(found, promised), Some(expected), "{found} for {promised}");
    }
    let unnamed = json!({"gpu.0.id": "10de:2330", "gpu.pci_ids": "1 x 10de:2330"});
    let promises = Promises { gpu: Some("H100".into()), ..none() };
    assert_eq!(outcome("gpu_name", &unnamed, &promises), Some(NotObservable));
    assert_eq!(outcome("gpu_name", &unnamed, &none()), None);
}

#[test]
fn gpu_driver_and_torch_must_fit_the_bus() {
    let with = |more: Value| {
        let mut pairs = json!({"gpu.0.id": "10de:2330", "gpu.pci_count": 1});
        pairs.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        pairs
    };
    let driver = |more| outcome("gpu_driver", &with(more), &none());
    assert_eq!(driver(json!({"nvidia.driver_version": "550.54.15", "gpu.driver_count": 1})), Some(Pass));
    assert_eq!(driver(json!({"nvidia.driver_version": null})), Some(Fail));
    assert_eq!(driver(json!({"nvidia.driver_version": "!"})), Some(NotObservable));
    assert_eq!(driver(json!({"nvidia.driver_version": "550", "gpu.driver_count": 0})), Some(Fail));
    assert_eq!(outcome("gpu_driver", &json!({"gpu.0.id": "1002:74a1"}), &none()), None, "not NVIDIA's");

    let torch = |more| outcome("torch_cuda", &with(more), &none());
    let built = |cuda: Value, available: Value| json!({"torch.version": "2.4.0", "torch.cuda_version": cuda, "torch.cuda_available": available});
    assert_eq!(torch(built("12.4".into(), true.into())), Some(Pass));
    assert_eq!(torch(built("12.4".into(), false.into())), Some(Fail));
    assert_eq!(torch(built(Value::Null, false.into())), Some(Warn), "a build for the CPU");
    assert_eq!(torch(built("12.4".into(), "!".into())), Some(NotObservable));
    assert_eq!(torch(json!({"torch.version": null})), Some(NotObservable));
    assert_eq!(torch(json!({"torch.version": "!"})), Some(NotObservable));
    assert_eq!(outcome("torch_cuda", &built("12.4".into(), false.into()), &none()), None, "no accelerator");
}

#[test]
fn gpu_numa() {
    let of = |pairs: Value, nodes| outcome("gpu_numa", &pairs, &Promises { nodes, ..none() });
    let two = |gpu: Value, rdma: Value| json!({"numa.nodes": 2, "gpu.0.numa_node": gpu, "rdma.mlx5_0.numa_node": rdma});
    assert_eq!(of(two(0.into(), 0.into()), Some(2)), Some(Pass));
    assert_eq!(of(two(0.into(), 1.into()), Some(2)), Some(Warn));
    assert_eq!(of(two(0.into(), 1.into()), None), Some(Pass), "one host alone needs no RDMA");
    assert_eq!(of(two(Value::Null, 0.into()), None), Some(NotObservable));
    assert_eq!(of(json!({"numa.nodes": 1, "gpu.0.numa_node": null}), None), Some(Pass));
    assert_eq!(of(json!({"numa.nodes": 2}), None), None, "no accelerator");
}

/// The outcomes of a recording, other than pass.
fn remarks(case: &str, promises: &Promises) -> Vec<(String, CheckOutcome)> {
    let facts = collect(&host(case), &FactsSpec::default());
    let all = judge(&facts, promises);
    all.into_iter().filter(|check| check.outcome != Pass).map(|check| (check.id, check.outcome)).collect()
}

fn list(expected: &[(&str, CheckOutcome)]) -> Vec<(String, CheckOutcome)> {
    expected.iter().map(|(id, outcome)| ((*id).to_owned(), *outcome)).collect()
}

#[test]
fn recorded_bare_metal_keeps_its_promises() {
    let promises = Promises {
        gpu: Some("H100 80GB".into()),
        gpus: Some(8),
        vcpus: Some(128),
        memory_bytes: Some(2048.0 * GIB),
        disk_bytes: Some(3.84e12),
        network_bits_per_second: Some(400e9),
        bare_metal: Some(true),
        nodes: Some(2),
    };
    assert_eq!(remarks("bare-metal", &promises), list(&[("clock", NotObservable)]));
}

#[test]
fn recorded_container_shows_what_is_wrong() {
    let promises = Promises { gpu: Some("A100 80GB".into()), gpus: Some(4), vcpus: Some(64), ..none() };
    assert_eq!(
        remarks("docker-small-shm", &promises),
        list(&[
            ("torch_cuda", Warn),
            ("cpu_quota", Fail),
            ("cpu_throttled", Warn),
            ("cpu_steal", Warn),
            ("memory_limit", Warn),
            ("oom_kills", Warn),
            ("shm", Fail),
            ("open_files", Warn),
            ("processes", Warn),
            ("disk_space", Warn),
            ("own_name", Warn),
            ("clock", NotObservable),
        ])
    );
}

#[test]
fn recorded_groups_and_machines() {
    assert_eq!(
        remarks("v1-quota", &Promises { vcpus: Some(8), memory_bytes: Some(64.0 * GIB), ..none() }),
        list(&[
            ("cpu_quota", Fail),
            ("cpu_steal", Fail),
            ("pressure", NotObservable),
            ("oom_kills", NotObservable),
            ("clock", NotObservable),
        ])
    );
    assert_eq!(
        remarks("v2-nested", &none()),
        list(&[
            ("cpu_quota", Warn),
            ("cpu_throttled", Warn),
            ("memory_limit", Warn),
            ("open_files", Warn),
            ("clock", NotObservable)
        ])
    );
    assert_eq!(
        remarks("vm", &Promises { gpus: Some(1), bare_metal: Some(true), ..none() }),
        list(&[
            ("gpu_driver", Fail),
            ("torch_cuda", NotObservable),
            ("open_files", Warn),
            ("virtualization", Fail),
            ("clock", NotObservable),
        ])
    );
}

#[test]
fn checks_are_plain_data() {
    let found = check("shm", &json!({"shm.bytes": 67_108_864}), &none()).unwrap();
    let text = serde_json::to_string(&found).unwrap();
    assert!(text.starts_with(r#"{"id":"shm","outcome":"warn","value":"64 MiB","reason":"#), "{text}");
    assert_eq!(serde_json::from_str::<Check>(&text).unwrap(), found);
    let mut ids: Vec<_> = check_ids().collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), check_ids().count());
}
