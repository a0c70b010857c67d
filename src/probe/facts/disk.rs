//! Disks and mounts: what there is to write to.
//!
//! Here: whole block devices, and the file systems of given paths. Not here: how fast they are
//! (the `storage` probe).
//!
//! Invariant: a device counts once; partitions, loops, RAM disks and mapped devices do not count.

use super::FactsSpec;
use super::cgroup::Cgroups;
use crate::probe::lines::Facts;
use crate::probe::root::{Missing, Root};
use crate::probe::text::name_part;

/// The most devices that are described one by one.
const MAX_DISKS: usize = 64;
/// A sector in `/sys/block/*/size` and `/proc/diskstats`, in bytes, whatever the device uses.
pub(crate) const SECTOR: f64 = 512.0;

pub(super) fn read(root: &Root, spec: &FactsSpec, facts: &mut Facts) {
    match whole_devices(root) {
        Ok(names) => {
            facts.set("disk.count", names.len());
            for name in names.iter().take(MAX_DISKS) {
                read_device(root, name, facts);
            }
        }
        Err(missing) => facts.put_always("disk.count", Err::<u64, _>(missing)),
    }
    facts.put("disk.limit", io_limit(root));
    for path in &spec.mounts {
        let name = format!("mount.{}", name_part(path));
        match root.volume(path) {
            Ok(volume) => {
                facts.set(format!("{name}.kind"), volume.kind);
                facts.set(format!("{name}.bytes"), volume.bytes);
                facts.set(format!("{name}.free_bytes"), volume.free_bytes);
            }
            Err(missing) => facts.put(format!("{name}.kind"), Err::<String, _>(missing)),
        }
    }
}

/// The innermost I/O limits of the control group; the older version keeps them elsewhere.
fn io_limit(root: &Root) -> Result<String, Missing> {
    let io = Cgroups::find(root)?.controller(root, "io");
    if !io.unified {
        return Err(Missing::Unreadable("not read from control groups of version 1".into()));
    }
    for folder in &io.folders {
        match root.line(&format!("{folder}/io.max")) {
            Err(Missing::NotThere) => {}
            other => return other,
        }
    }
    Err(Missing::NotThere)
}

fn read_device(root: &Root, name: &str, facts: &mut Facts) {
    let folder = format!("/sys/block/{name}");
    let fact = format!("disk.{}", name_part(name));
    facts.put(
        format!("{fact}.bytes"),
        root.number::<u64>(&format!("{folder}/size")).map(|sectors| sectors as f64 * SECTOR),
    );
    let rotational = root.number::<u8>(&format!("{folder}/queue/rotational")).map(|flag| flag != 0);
    facts.put(format!("{fact}.rotational"), rotational);
    facts.put(format!("{fact}.model"), root.line(&format!("{folder}/device/model")));
}

/// The names of the block devices that are devices of their own.
pub(crate) fn whole_devices(root: &Root) -> Result<Vec<String>, Missing> {
    let mut names = root.list("/sys/block")?;
    names.retain(|name| {
        let folder = format!("/sys/block/{name}");
        // Mapped, striped, loop and RAM devices have no device behind them; a hidden one is a
        // path to a device that is listed by itself; optical drives are not for data.
        root.exists(&format!("{folder}/device"))
            && !name.starts_with("sr")
            && !root.number::<u8>(&format!("{folder}/hidden")).is_ok_and(|hidden| hidden != 0)
    });
    Ok(names)
}
