//! The `clock` probe: the wall clock beside the monotonic one, so that a suspend or a correction shows.
//!
//! Here: reading both. Not here: what a jump means. Invariant: both readings of a pair are taken together.

use std::{
    io::Write,
    thread::sleep,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

use super::ProbeError;

/// How often both clocks are read.
const EVERY: Duration = Duration::from_secs(1);

/// Prints a pair of readings each second until it is ended: `monotonic` since the start, `wall` since the epoch, both
/// in seconds.
pub(super) fn run(_spec: Value, out: &mut dyn Write) -> Result<(), ProbeError> {
    let begun = Instant::now();
    loop {
        let monotonic = begun.elapsed().as_secs_f64();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        for (name, value) in [("monotonic", monotonic), ("wall", wall)] {
            writeln!(out, "{}", json!({ "metric": name, "value": value, "unit": "s" }))
                .map_err(|source| ProbeError::Output { source })?;
        }
        out.flush().map_err(|source| ProbeError::Output { source })?;
        sleep(EVERY);
    }
}
