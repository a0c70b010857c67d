//! `diff`: what changed between two scorecards.

use crate::{
    cli::{DiffArgs, DiffFormat, FailOn},
    commands::{
        self, print,
        produce::report_error,
        report::{language, read},
        talk,
    },
    error::{Error, Exit},
    report,
    score::diff::diff as compare,
};

/// Says what changed; the difference is data and goes to stdout.
///
/// # Errors
/// When a scorecard cannot be read, or one of the two is a rehearsal.
pub fn diff(args: &DiffArgs) -> commands::Result {
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    let diff = compare(&old, &new).map_err(|e| {
        Error::caused(
            Exit::USAGE,
            format!("failed to compare {} and {}", args.old.display(), args.new.display()),
            &e,
        )
    })?;
    let options = report::Options { language: language(args.lang), template: None };
    let render = |format| report::render_diff(format, &diff, &options).map_err(|e| report_error(&e));
    let text = match args.format {
        DiffFormat::Text => render(report::DiffFormat::Text)?,
        DiffFormat::Md => render(report::DiffFormat::Markdown)?,
        DiffFormat::Html => render(report::DiffFormat::Html)?,
        DiffFormat::Json => serde_json::to_string_pretty(&diff)
            .map(|text| text + "\n")
            .map_err(|e| Error::caused(Exit::BUG, "failed to write the difference as JSON", &e))?,
    };
    print(&text)?;
    let mut code = Exit::OK;
    if args.fail_on.contains(&FailOn::Regression) && diff.has_regression() {
        talk("a headline metric got worse\n");
        code = Exit::EXPECT;
    }
    if args.fail_on.contains(&FailOn::Gate) {
        for (platform, gate) in diff.gate_failures() {
            talk(&format!("a gate rejects {platform}: {} {}\n", gate.metric, gate.bound));
            code = Exit::EXPECT;
        }
    }
    Ok(code)
}
