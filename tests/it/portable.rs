//! The agent that `scripts/build_agent` makes runs on old hosts.

use std::process::Command;

use crate::support::portable_agent;

/// The newest version of the GNU C library that it may ask for: that of 2012.
const NEWEST: (u32, u32) = (2, 17);

#[test]
fn the_portable_agent_asks_for_no_newer_c_library_and_answers() {
    let (_, file) = portable_agent();
    let output = Command::new("readelf").arg("--version-info").arg("--wide").arg(&file).output();
    let output = output.expect("no readelf: install binutils (tests/run.sh does)");
    let text = String::from_utf8(output.stdout).unwrap();
    let versions: Vec<&str> = text.split_whitespace().filter_map(|w| w.strip_prefix("GLIBC_")).collect();
    assert!(!versions.is_empty(), "{text}");
    for version in versions {
        let numbers: Vec<u32> = version.split('.').map(|n| n.parse().expect(version)).collect();
        assert!((numbers[0], numbers[1]) <= NEWEST, "it asks for GLIBC_{version}");
    }
    let ready = Command::new(&file).args(["agent", "ready"]).status().unwrap();
    assert_eq!(ready.code(), Some(0));
}
