//! The small binary that goes to a host: agent and probes only.

use std::{io::Write as _, process::ExitCode};

use planrun::{agent, child};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    if args.get(1).is_some_and(|a| a == agent::CHILD) {
        let code = agent::child(&args[2..], child::run);
        return ExitCode::from(u8::try_from(code).unwrap_or(70));
    }
    let own = args.iter().skip(1).skip_while(|a| *a == "agent").cloned().collect::<Vec<_>>();
    match agent::main(&own) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            let _ = writeln!(std::io::stderr(), "{e}");
            ExitCode::FAILURE
        }
    }
}
