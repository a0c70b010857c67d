//! The command line, and nothing but it.

use std::path::PathBuf;

use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueEnum};

use crate::error::EXIT_CODES;

/// Runs declarative test plans on GPU platforms and fills a scorecard that can be priced, judged and diffed.
#[derive(Debug, Parser)]
#[command(name = "planrun", version, after_help = EXIT_CODES, arg_required_else_help = true)]
#[command(
    override_usage = "planrun [OPTIONS] COMMAND …\n       planrun [OPTIONS] PLAN …   (the same as `planrun run PLAN …`)"
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// Say less on stderr; twice: only errors.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub quiet: u8,
    /// Say more on stderr.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Settings for ssh in place of your own `ssh_config`; `none`: no settings at all.
    #[arg(long, global = true, value_name = "FILE", env = "PLANRUN_SSH_CONFIG")]
    pub ssh_config: Option<PathBuf>,
}

/// The words of a command line with `run` put in where it names a plan in place of a command.
pub fn with_run(mut args: Vec<std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    let is_option = |i: usize| args[i].as_encoded_bytes().starts_with(b"-");
    let takes_value = |i: usize| args[i].to_str() == Some("--ssh-config");
    let first = (1..args.len()).find(|i| !is_option(*i) && !takes_value(i - 1));
    if let Some(first) = first {
        let known = Cli::command();
        let is = |name: &str| args[first].to_str() == Some(name);
        if !is("help") && !known.get_subcommands().any(|c| is(c.get_name())) {
            args.insert(first, "run".into());
        }
    }
    args
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a plan and write a scorecard
    #[command(after_help = EXIT_CODES)]
    Run(RunArgs),
    /// Go on where a run stopped, crashed or was interrupted
    Resume(ResumeArgs),
    /// Say everything that is wrong with plans, touching no machine
    Check(CheckArgs),
    /// Look at every host of a plan before anything is measured; spends nothing
    Doctor(DoctorArgs),
    /// Judge a run again, by another rubric, other prices or jobs; touches no machine
    Score(ScoreArgs),
    /// Render a scorecard again
    Report(ReportArgs),
    /// Say what changed between two scorecards
    Diff(DiffArgs),
    /// Say what can be measured: stages, their options and metrics
    Stages(StagesArgs),
    /// Print the JSON Schema of a plan, a scorecard or a rubric
    Schema(SchemaArgs),
    /// Run one probe on this machine
    Probe(ProbeArgs),
    /// Write a first plan
    Init(InitArgs),
}

/// `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// The plan; without one: the built-in plan that compares two candidates on this machine.
    pub plan: Option<PathBuf>,
    /// The folder to write to; default `runs/<period>-<name>-<UTC time>`.
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Run only this: PLATFORM, PLATFORM/STAGE or */STAGE; may be given several times.
    #[arg(long, value_name = "PLATFORM[/STAGE]")]
    pub only: Vec<String>,
    /// Leave this out; may be given several times.
    #[arg(long, value_name = "PLATFORM[/STAGE]")]
    pub skip: Vec<String>,
    /// Change a value of the plan, such as `limits.stop_after=2h` or `stages.gpt.repeat=3`; may be given several times.
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// Print what would be done, with an estimate of time and cost, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Rehearse: a few steps of everything; the scorecard is stamped and never compared.
    #[arg(long)]
    pub quick: bool,
}

/// `resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    /// The folder of the run.
    pub dir: PathBuf,
}

/// `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The plans.
    #[arg(required = true)]
    pub plans: Vec<PathBuf>,
    /// Change a value of the plans before they are checked.
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// How findings are written.
    #[arg(long, value_enum, default_value_t)]
    pub format: FindingFormat,
}

/// How findings are written.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum FindingFormat {
    /// For people.
    #[default]
    Human,
    /// One JSON array.
    Json,
    /// GitHub workflow commands.
    Github,
}

/// `score`.
#[derive(Debug, Args)]
pub struct ScoreArgs {
    /// The folder of a run, or its journal.
    pub run: PathBuf,
    /// Judge by this rubric: a file or the name of a built-in one.
    #[arg(long, value_name = "FILE")]
    pub rubric: Option<String>,
    /// Take prices, jobs, scenarios, rubric and what people declared from this plan.
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// The folder to write to; default the run's, or that of the journal.
    #[arg(short = 'o', long = "output", value_name = "DIR")]
    pub output: Option<PathBuf>,
}

/// `report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// The scorecard, a `scorecard.json`, or the folder of a run.
    pub scorecard: PathBuf,
    /// The form.
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
    /// A template of one's own in place of the built-in one.
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,
    /// The language.
    #[arg(long, value_enum, default_value_t)]
    pub lang: Lang,
    /// The file to write; default stdout.
    #[arg(short = 'o', long = "output", value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Forms of a scorecard.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ReportFormat {
    /// Markdown.
    #[default]
    Md,
    /// One HTML page.
    Html,
    /// All metrics as CSV.
    Csv,
    /// `JUnit` XML.
    Junit,
    /// One screen for a terminal.
    Text,
}

/// Languages of reports.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum Lang {
    /// English.
    #[default]
    En,
    /// Chinese.
    Zh,
}

/// `diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The older scorecard, or the folder of its run.
    pub old: PathBuf,
    /// The newer scorecard, or the folder of its run.
    pub new: PathBuf,
    /// The form.
    #[arg(long, value_enum, default_value_t)]
    pub format: DiffFormat,
    /// Exit with 1 on this; may be given several times.
    #[arg(long, value_enum)]
    pub fail_on: Vec<FailOn>,
    /// The language.
    #[arg(long, value_enum, default_value_t)]
    pub lang: Lang,
}

/// Forms of a difference.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum DiffFormat {
    /// Plain text.
    #[default]
    Text,
    /// Markdown.
    Md,
    /// One HTML page.
    Html,
    /// Data.
    Json,
}

/// What `diff` may fail on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// A headline metric got worse by a test (four runs or more on each side); `likely` does not count.
    Regression,
    /// A gate of the new scorecard rejects a platform.
    Gate,
}

/// `stages`.
#[derive(Debug, Args)]
pub struct StagesArgs {
    /// Only this kind.
    pub kind: Option<String>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Of what.
    #[arg(value_enum)]
    pub of: SchemaOf,
}

/// What has a JSON Schema.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SchemaOf {
    /// A plan.
    Plan,
    /// A scorecard.
    Scorecard,
    /// A rubric.
    Rubric,
}

/// `probe`.
#[derive(Debug, Args)]
pub struct ProbeArgs {
    /// Which one.
    pub kind: String,
    /// Its options, as JSON.
    #[arg(long, value_name = "JSON")]
    pub options: Option<String>,
    /// Its JSON lines as they are.
    #[arg(long)]
    pub json: bool,
}

/// `doctor`.
#[derive(Debug, Clone, Args)]
pub struct DoctorArgs {
    /// The plan; without one: the built-in plan for this machine.
    pub plan: Option<PathBuf>,
    /// Change a value of the plan: dotted path and value; may be given several times.
    #[arg(long, value_name = "PATH=VALUE")]
    pub set: Vec<String>,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
}

/// `init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// The folder to write `plan.yaml` to.
    #[arg(default_value = ".")]
    pub dir: PathBuf,
    /// Fill the plan from what this host reports: a name of your `ssh_config`, `host` or `user@host:port`.
    #[arg(long, value_name = "SSH")]
    pub from_host: Option<String>,
}
