//! `report`: renders a scorecard again.

use std::path::Path;

use crate::{
    cli::{Lang, ReportArgs, ReportFormat},
    commands::{self, print, produce::report_error, read_text, replace},
    error::{Error, Exit},
    report,
    score::Scorecard,
};

/// Renders a scorecard.
///
/// # Errors
/// When it cannot be read, the template fails, or the file cannot be written.
pub fn report(args: &ReportArgs) -> commands::Result {
    let scorecard = read(&args.scorecard)?;
    let template = match &args.template {
        Some(path) => Some(report::Template { name: path.display().to_string(), text: read_text(path)? }),
        None => None,
    };
    let options = report::Options { language: language(args.lang), template };
    let format = match args.format {
        ReportFormat::Md => report::Format::Markdown,
        ReportFormat::Html => report::Format::Html,
        ReportFormat::Csv => report::Format::Csv,
        ReportFormat::Junit => report::Format::Junit,
        ReportFormat::Text => report::Format::Text,
    };
    let text = report::render(format, &scorecard, &options).map_err(|e| report_error(&e))?;
    match &args.output {
        Some(path) => replace(path, &text)?,
        None => print(&text)?,
    }
    Ok(Exit::OK)
}

/// Reads a scorecard, or that of a run's folder.
///
/// # Errors
/// When it is not there or is none.
pub fn read(path: &Path) -> Result<Scorecard, Error> {
    let file = if path.is_dir() { path.join("scorecard.json") } else { path.to_owned() };
    Scorecard::from_json(&read_text(&file)?).map_err(|e| {
        Error::caused(Exit::USAGE, format!("failed to use {} as a scorecard", file.display()), &e)
    })
}

/// The report's language of the command line's.
pub fn language(lang: Lang) -> report::Language {
    match lang {
        Lang::En => report::Language::En,
        Lang::Zh => report::Language::Zh,
    }
}
