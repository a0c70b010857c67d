//! Network interfaces and RDMA devices, as the kernel lists them.
//!
//! Here: names, speeds, states. Not here: anything that sends a packet.
//!
//! Invariant: a speed that the driver does not tell (many virtual ones) is "none", never 0 or -1.

use super::FactsSpec;
use crate::probe::lines::Facts;
use crate::probe::root::{Missing, Root};
use crate::probe::text::name_part;

/// The most interfaces and the most RDMA devices that are described one by one.
const MAX_DEVICES: usize = 64;

pub(super) fn read(root: &Root, _spec: &FactsSpec, facts: &mut Facts) {
    match interfaces(root) {
        Ok(names) => {
            facts.set("nic.count", names.len());
            for name in names.iter().take(MAX_DEVICES) {
                read_interface(root, name, facts);
            }
        }
        Err(missing) => facts.put_always("nic.count", Err::<u64, _>(missing)),
    }
    match root.list("/sys/class/infiniband") {
        Ok(names) => {
            facts.set("rdma.count", names.len());
            for name in names.iter().take(MAX_DEVICES) {
                read_rdma(root, name, facts);
            }
        }
        // Without the RDMA core there is no such folder, and no such device.
        Err(Missing::NotThere) if root.exists("/sys/class") => facts.set("rdma.count", 0),
        Err(Missing::NotThere) => facts.set_unreadable("rdma.count", "there is no /sys"),
        Err(missing) => facts.put("rdma.count", Err::<u64, _>(missing)),
    }
}

/// The names of the network interfaces without loopback.
pub(crate) fn interfaces(root: &Root) -> Result<Vec<String>, Missing> {
    let mut names = root.list("/sys/class/net")?;
    // `bonding_masters` is a file among the folders.
    names.retain(|name| name != "lo" && name != "bonding_masters");
    Ok(names)
}

fn read_interface(root: &Root, name: &str, facts: &mut Facts) {
    let folder = format!("/sys/class/net/{name}");
    let fact = format!("nic.{}", name_part(name));
    let speed = match root.line(&format!("{folder}/speed")) {
        Ok(line) => match line.parse::<i64>() {
            Ok(megabits) if megabits > 0 && megabits < i64::from(u32::MAX) => Ok(megabits as f64 * 1e6),
            _ => Err(Missing::NotThere),
        },
        // A link that is down, or a driver without the notion, answers with an error.
        Err(_) => Err(Missing::NotThere),
    };
    facts.put(format!("{fact}.speed_bits_per_second"), speed);
    facts.put(format!("{fact}.mtu_bytes"), root.number::<u64>(&format!("{folder}/mtu")));
    facts.put(format!("{fact}.state"), root.line(&format!("{folder}/operstate")));
    facts.put(format!("{fact}.driver"), root.link_name(&format!("{folder}/device/driver")));
    if root.exists(&format!("{folder}/device")) {
        facts.put(format!("{fact}.numa_node"), numa_node(root, &format!("{folder}/device")));
    }
}

fn read_rdma(root: &Root, name: &str, facts: &mut Facts) {
    let folder = format!("/sys/class/infiniband/{name}");
    let fact = format!("rdma.{}", name_part(name));
    facts.put(format!("{fact}.numa_node"), numa_node(root, &format!("{folder}/device")));
    for port in root.list(&format!("{folder}/ports")).unwrap_or_default().iter().take(MAX_DEVICES) {
        let folder = format!("{folder}/ports/{port}");
        let fact = format!("{fact}.{}", name_part(port));
        // `4: ACTIVE`
        let state = root.line(&format!("{folder}/state"));
        let word = state.map(|line| line.rsplit(": ").next().unwrap_or(&line).to_owned());
        facts.put(format!("{fact}.state"), word);
        facts.put(format!("{fact}.link_layer"), root.line(&format!("{folder}/link_layer")));
        // `400 Gb/sec (4X NDR)`
        let rate = root.line(&format!("{folder}/rate")).and_then(|line| {
            let gigabits = line.split_once(" Gb/sec").and_then(|(number, _)| number.parse::<f64>().ok());
            let bits = gigabits.filter(|rate| rate.is_finite() && *rate > 0.0).map(|rate| rate * 1e9);
            bits.ok_or_else(|| Missing::Unreadable(format!("`{line}` is no rate")))
        });
        facts.put(format!("{fact}.rate_bits_per_second"), rate);
    }
}

/// The memory node of a device; the firmware's -1 is "none".
pub(super) fn numa_node(root: &Root, folder: &str) -> Result<u32, Missing> {
    let node: i64 = root.number(&format!("{folder}/numa_node"))?;
    u32::try_from(node).map_err(|_| Missing::NotThere)
}
