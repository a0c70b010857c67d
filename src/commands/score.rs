//! `score`: judges a run again, offline.

use std::path::Path;

use crate::{
    cli::ScoreArgs,
    commands::{self, print, produce, source, source::Source, talk},
    error::{Error, Exit},
    plan::{Unset, model::Report},
};

/// Judges a run again and writes its scorecard.
///
/// # Errors
/// When the journal, the plan or the rubric cannot be used.
pub fn score(args: &ScoreArgs) -> commands::Result {
    let (mut judgement, mut asked) = (None, Report::default());
    if let Some(path) = &args.plan {
        let source = Source::open(Some(path))?;
        let loaded = source.load(&[], Unset::Warning);
        talk(&loaded.render(
            crate::findings::Form::Human,
            &source.name,
            &String::from_utf8_lossy(&source.bytes),
        ));
        let (false, Some(plan), Some(rubric)) = (loaded.has_errors(), loaded.plan, loaded.rubric) else {
            return Err(Error::new(Exit::USAGE, format!("{} cannot be used", source.name)));
        };
        asked = plan.report.clone();
        judgement = Some(plan.judgement(rubric));
    }
    let rubric = args.rubric.as_deref().map(source::rubric).transpose()?;
    let made = produce::from_journal(&args.run, judgement, rubric)?;
    let beside =
        if args.run.is_dir() { args.run.as_path() } else { args.run.parent().unwrap_or(Path::new(".")) };
    let dir = args.output.as_deref().unwrap_or(beside);
    std::fs::create_dir_all(dir).map_err(|e| {
        Error::caused(Exit::USAGE, format!("failed to make the folder {}", dir.display()), &e)
    })?;
    let written = made.write(dir, &asked)?;
    talk(&format!("wrote {}\n\n", written.join(", ")));
    print(&made.summary()?)?;
    Ok(Exit::OK)
}
