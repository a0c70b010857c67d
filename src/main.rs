//! Reads the command line, does what it says, shows errors, gives the exit code.

use std::process::ExitCode;

use clap::Parser as _;

use planrun::{
    agent, child,
    cli::{Cli, Command},
    commands,
    error::{Error, Exit},
    progress::Talk,
};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    // Started by an agent: not a command line for people.
    if args.get(1).is_some_and(|a| a == agent::CHILD) {
        let code = agent::child(&args[2..], child::run);
        return ExitCode::from(u8::try_from(code).unwrap_or(Exit::BUG));
    }
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) => {
            // Help and version are data, usage errors are talk; a closed pipe is no error.
            let _ = e.print();
            return ExitCode::from(if e.use_stderr() { Exit::USAGE } else { Exit::OK });
        }
    };
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(e) => {
            commands::talk(&e.render());
            ExitCode::from(e.code)
        }
    }
}

fn run(cli: Cli) -> commands::Result {
    let talk = match (cli.quiet, cli.verbose) {
        (0, 0) => Talk::Normal,
        (0, _) => Talk::Much,
        (1, _) => Talk::Little,
        _ => Talk::Silent,
    };
    match cli.command.unwrap_or(Command::Run(cli.run)) {
        Command::Run(args) => commands::run::run(&args, talk),
        Command::Resume(args) => commands::resume::resume(&args, talk),
        Command::Check(args) => commands::check::check(&args),
        Command::Score(args) => commands::score::score(&args),
        Command::Report(args) => commands::report::report(&args),
        Command::Diff(args) => commands::diff::diff(&args),
        Command::Stages(args) => commands::stages::stages(&args),
        Command::Schema(args) => commands::schema::schema(&args),
        Command::Probe(args) => commands::probe::probe(&args),
        Command::Init(args) => commands::init::init(&args),
        Command::Agent => agent::main(std::io::stdin(), std::io::stdout())
            .map(|()| Exit::OK)
            .map_err(|e| Error::new(Exit::NOT_MEASURED, e)),
    }
}
