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
    score::diff::{Call, diff as compare},
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
    if args.fail_on.contains(&FailOn::Regression) {
        for (platform, m) in diff.worse(Call::Worse) {
            talk(&format!("{} of {platform} is worse: {}\n", m.id, m.why));
            code = Exit::EXPECT;
        }
        for (platform, m) in diff.worse(Call::Likely) {
            talk(&format!("{} of {platform} is likely worse, which does not count: {}\n", m.id, m.why));
        }
    }
    if args.fail_on.contains(&FailOn::Gate) {
        for (platform, gate) in diff.gate_failures() {
            talk(&format!("a gate rejects {platform}: {} {}\n", gate.metric, gate.bound));
            code = Exit::EXPECT;
        }
    }
    Ok(code)
}
