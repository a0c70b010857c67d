//! The operating system: names, identities, clock, and whether the host knows its own name.
//!
//! Here: kernel, distribution, C library, boot and machine identity. Not here: Python and CUDA.
//!
//! Invariant: the machine id itself is never shown, only a short digest of it.

use std::time::Duration;

use sha2::{Digest as _, Sha256};

use super::FactsSpec;
use crate::probe::lines::Facts;
use crate::probe::root::{Missing, Root};
use crate::probe::text::clean;

/// How long the resolver may take for the host's own name.
const RESOLVE_LIMIT: Duration = Duration::from_secs(5);
/// How long a small helper program may take.
const HELPER_LIMIT: Duration = Duration::from_secs(5);

pub(super) fn read(root: &Root, _spec: &FactsSpec, facts: &mut Facts) {
    facts.put_always("os.kernel", root.line("/proc/sys/kernel/osrelease"));
    facts.set("os.arch", root.system().arch());
    facts.put("os.name", pretty_name(root));
    facts.put("os.libc", libc(root));
    facts.put("os.timezone", timezone(root));
    facts.put(
        "os.clock_source",
        root.line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
    );
    facts.put_always("host.boot_id", root.line("/proc/sys/kernel/random/boot_id"));
    facts.put("host.machine_digest", machine_digest(root));
    facts.put_always("host.uptime_seconds", uptime(root));
    read_own_name(root, facts);
}

fn pretty_name(root: &Root) -> Result<String, Missing> {
    let text = root.text("/etc/os-release").or_else(|_| root.text("/usr/lib/os-release"))?;
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let value = value.ok_or_else(|| Missing::Unreadable("os-release has no PRETTY_NAME".into()))?;
    Ok(value.trim().trim_matches(['"', '\'']).to_owned())
}

fn libc(root: &Root) -> Result<String, Missing> {
    if let Ok(output) = root.system().run(&["getconf", "GNU_LIBC_VERSION"], HELPER_LIMIT)
        && output.success
    {
        return Ok(clean(&output.stdout));
    }
    let output = root.system().run(&["ldd", "--version"], HELPER_LIMIT)?;
    // glibc answers on stdout, musl with an error on stderr.
    let text =
        String::from_utf8_lossy(if output.stdout.is_empty() { &output.stderr } else { &output.stdout })
            .into_owned();
    let first = text.lines().next().unwrap_or_default();
    if first.starts_with("musl") {
        let version = text.lines().find_map(|line| line.strip_prefix("Version "));
        return Ok(format!("musl {}", version.unwrap_or("of unknown version")));
    }
    match first.rsplit_once(' ') {
        Some((_, version)) if first.starts_with("ldd ") => Ok(format!("glibc {version}")),
        _ => Err(Missing::Unreadable("neither getconf nor ldd tells".into())),
    }
}

fn timezone(root: &Root) -> Result<String, Missing> {
    if let Ok(target) = root.link("/etc/localtime")
        && let Some((_, zone)) = target.split_once("zoneinfo/")
    {
        return Ok(zone.to_owned());
    }
    match root.line("/etc/timezone") {
        // Without either, the C library takes UTC.
        Err(Missing::NotThere) if !root.exists("/etc/localtime") => Ok("UTC".into()),
        other => other,
    }
}

fn machine_digest(root: &Root) -> Result<String, Missing> {
    let id = root.line("/etc/machine-id").or_else(|_| root.line("/var/lib/dbus/machine-id"))?;
    if id == "uninitialized" {
        return Err(Missing::NotThere);
    }
    let digest = Sha256::digest(id.as_bytes());
    let head = digest.iter().take(8).fold(0_u64, |head, byte| head << 8 | u64::from(*byte));
    Ok(format!("{head:016x}"))
}

fn uptime(root: &Root) -> Result<f64, Missing> {
    let line = root.line("/proc/uptime")?;
    let seconds = line.split(' ').next().and_then(|word| word.parse::<f64>().ok());
    seconds
        .filter(|seconds| seconds.is_finite())
        .ok_or_else(|| Missing::Unreadable(format!("`{line}` is no uptime")))
}

/// The launcher of a distributed job compares its own name's address with the one it was given:
/// a name that leads nowhere makes it wait until its timeout, or never start.
fn read_own_name(root: &Root, facts: &mut Facts) {
    let name = root.line("/proc/sys/kernel/hostname").or_else(|_| root.line("/etc/hostname"));
    facts.put_always("host.name", name.clone());
    let addresses = name.and_then(|name| root.system().resolve(&name, RESOLVE_LIMIT));
    facts.put_always("host.own_name_resolves", addresses.clone().map(|all| !all.is_empty()));
    if let Ok(all) = addresses
        && !all.is_empty()
    {
        facts.set("host.own_name_loopback", all.iter().all(std::net::IpAddr::is_loopback));
    }
}
