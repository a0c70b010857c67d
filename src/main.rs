//! Reads the command line, does what it says, shows errors, gives the exit code.

use std::process::ExitCode;

use clap::Parser as _;

use planrun::{
    agent, child,
    cli::{Cli, Command, with_run},
    commands,
    error::{self, Error, Exit},
    progress::Talk,
    transport::{local, ssh::controller},
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    // Started by an agent: not a command line for people.
    if args.get(1).is_some_and(|a| a == agent::CHILD) {
        let code = agent::child(&args[2..], child::run);
        return ExitCode::from(u8::try_from(code).unwrap_or(Exit::BUG));
    }
    if args.get(1).is_some_and(|a| a == local::AGENT) {
        return match agent::main(&args[2..]) {
            Ok(()) => ExitCode::SUCCESS,
            Err(e) => {
                commands::talk(&format!("{e}\n"));
                ExitCode::from(Exit::NOT_MEASURED)
            }
        };
    }
    if args.get(1).is_some_and(|a| a == controller::GUARD) {
        args.get(2).into_iter().for_each(|dir| controller::guard(dir.as_ref()));
        return ExitCode::SUCCESS;
    }
    let cli = match Cli::try_parse_from(with_run(std::env::args_os().collect())) {
        Ok(cli) => cli,
        Err(e) => return ExitCode::from(shown(&e)),
    };
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(cli))).unwrap_or_else(|_| {
        // The panic itself has been shown where it happened.
        Err(Error::new(Exit::BUG, "planrun met a fault of its own")
            .hint("please report it with the lines above; a run goes on with `planrun resume DIR`"))
    });
    match ended {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            commands::talk(&e.render());
            ExitCode::from(e.code)
        }
    }
}

/// Help and version are data, usage errors are talk. A reader that has gone away is no error, a full disk is.
fn shown(e: &clap::Error) -> u8 {
    if e.use_stderr() {
        // It quotes arguments, and they may hold anything: it is made again from arguments that can be shown.
        let args = std::env::args_os().map(|arg| error::shown(&arg.to_string_lossy()).into());
        let again = Cli::try_parse_from(with_run(args.collect())).err();
        commands::talk(&again.as_ref().unwrap_or(e).render().to_string());
        return Exit::USAGE;
    }
    match e.print() {
        Err(io) if io.kind() != std::io::ErrorKind::BrokenPipe => {
            commands::talk(&Error::caused(Exit::NOT_MEASURED, "failed to write to stdout", &io).render());
            Exit::NOT_MEASURED
        }
        _ => Exit::OK,
    }
}

fn run(cli: Cli) -> commands::Result {
    let talk = match (cli.quiet, cli.verbose) {
        (0, 0) => Talk::Normal,
        (0, _) => Talk::Much,
        (1, _) => Talk::Little,
        _ => Talk::Silent,
    };
    let ssh = cli.ssh_config.as_deref();
    match cli.command {
        Command::Run(args) => commands::run::run(&args, ssh, talk),
        Command::Resume(args) => commands::resume::resume(&args, ssh, talk),
        Command::Doctor(args) => commands::doctor::doctor(&args, ssh),
        Command::Check(args) => commands::check::check(&args),
        Command::Score(args) => commands::score::score(&args),
        Command::Report(args) => commands::report::report(&args),
        Command::Diff(args) => commands::diff::diff(&args),
        Command::Stages(args) => commands::stages::stages(&args),
        Command::Schema(args) => commands::schema::schema(&args),
        Command::Probe(args) => commands::probe::probe(&args),
        Command::Init(args) => commands::init::init(&args, ssh),
    }
}
