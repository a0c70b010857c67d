//! What a child of the agent does: one probe, or a part of the reference workload. Both binaries' mains come here.
//!
//! It is small on purpose: whatever it names is linked into the agent, which is sent to every host.

use std::io::{BufReader, Write as _};

use crate::{
    agent::CHILD,
    probe,
    workload::reference::{self, RankLauncher, Spec},
};

/// The probe that trains the reference workload.
pub const REFERENCE: &str = "reference";

/// The probe that is one rank of it.
const RANK: &str = "reference-rank";

/// Runs a probe: options on stdin, JSON lines on stdout. Returns the exit code.
pub fn run(kind: &str) -> i32 {
    if kind == RANK {
        return reference::rank_main();
    }
    let options = match probe::read_spec(&mut BufReader::new(std::io::stdin())) {
        Ok(options) => options,
        Err(e) => return complain(&e),
    };
    if kind == REFERENCE {
        return match spec(options) {
            // The link, not the path: the file may have been replaced since this process started.
            Ok(spec) => {
                let ranks = RankLauncher::this_program([CHILD, "probe", RANK]);
                reference::main(&spec, &RankLauncher { program: Some("/proc/self/exe".into()), ..ranks })
            }
            Err(e) => complain(&e),
        };
    }
    match probe::main(kind, options, &mut std::io::stdout()) {
        Ok(()) => 0,
        Err(e) => {
            complain(&e);
            e.exit_code()
        }
    }
}

/// The job that options of the reference workload mean; none at all are all defaults.
///
/// # Errors
/// When they are of another shape.
pub fn spec(options: serde_json::Value) -> serde_json::Result<Spec> {
    if options.is_null() { Ok(Spec::default()) } else { serde_json::from_value(options) }
}

fn complain(e: &dyn std::error::Error) -> i32 {
    let chain: Vec<String> =
        std::iter::successors(Some(e), |e| e.source()).map(ToString::to_string).collect();
    let _ = writeln!(std::io::stderr(), "{}", chain.join(": "));
    probe::EXIT_FAILED
}
