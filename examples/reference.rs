//! The reference workload alone: `reference '{"world": 2, "steps": 100}'`.
//!
//! The argument is a specification as JSON, every field of it optional. `planrun probe reference`
//! does the same inside planrun; this program serves `scripts/compare_pytorch.py`.

use planrun::workload::reference::{RankLauncher, Spec, main as run, rank_main};
use std::process::ExitCode;

fn main() -> ExitCode {
    let argument = std::env::args().nth(1).unwrap_or_else(|| "{}".into());
    let code = if argument == "--rank" {
        rank_main()
    } else {
        match serde_json::from_str::<Spec>(&argument) {
            Ok(spec) => run(&spec, &RankLauncher::this_program(["--rank"])),
            Err(error) => {
                eprintln!("failed to read the specification: {error}");
                2
            }
        }
    };
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}
