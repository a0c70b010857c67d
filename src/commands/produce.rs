//! From a journal to the files that people read: scorecard and reports. Shared by the commands that write them.

use std::path::Path;

use crate::{
    commands::replace,
    error::{Error, Exit},
    journal,
    outcome::{Cause, Outcome, OutcomeKind},
    plan::model::{Format, Language, Report},
    record::Expectation,
    report,
    score::{Scorecard, fold::Fold, judgement::Judgement, rubric::Rubric},
};

/// A scorecard that was made from a journal.
pub struct Made {
    /// The scorecard.
    pub scorecard: Scorecard,
    outcomes: Vec<(Option<Outcome>, Vec<Expectation>)>,
}

/// Folds a journal and judges it, by the judgement part that it holds or by other ones.
///
/// # Errors
/// When the journal cannot be read or folded.
pub fn from_journal(
    path: &Path,
    judgement: Option<Judgement>,
    rubric: Option<Rubric>,
) -> Result<Made, Error> {
    let file = if path.is_dir() { path.join(journal::FILE) } else { path.to_owned() };
    let mut fold = Fold::new();
    let mut wrong = None;
    journal::read(&file, |record| {
        if wrong.is_none() {
            wrong = fold.push(&record).err();
        }
    })
    .map_err(|e| super::run::journal_error(&e, path))?;
    let folded = match wrong {
        Some(e) => Err(e),
        None => fold.finish(),
    };
    let mut seen =
        folded.map_err(|e| Error::caused(Exit::JOURNAL, format!("failed to use {}", file.display()), &e))?;
    if let Some(judgement) = judgement {
        seen.judgement = judgement;
    }
    if let Some(rubric) = rubric {
        seen.judgement.rubric = rubric;
        seen.judgement.preset = None;
    }
    let outcomes = seen.tasks.iter().map(|t| (t.outcome.clone(), t.expectations.clone())).collect();
    Ok(Made { scorecard: crate::score::scorecard(&seen), outcomes })
}

impl Made {
    /// Writes the scorecard and the reports that the plan asks for; returns their names.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, dir: &Path, asked: &Report) -> Result<Vec<String>, Error> {
        let mut written = vec![put(dir, "scorecard.json", &self.scorecard.to_json())?];
        let options = report::Options { language: language(asked.language), template: None };
        for (format, form) in [
            (Format::Md, report::Format::Markdown),
            (Format::Html, report::Format::Html),
            (Format::Csv, report::Format::Csv),
            (Format::Junit, report::Format::Junit),
        ] {
            if asked.formats.contains(&format) {
                let text = report::render(form, &self.scorecard, &options).map_err(|e| report_error(&e))?;
                written.push(put(dir, form.file_name(), &text)?);
            }
        }
        Ok(written)
    }

    /// The scorecard for a terminal.
    ///
    /// # Errors
    /// When it cannot be rendered.
    pub fn summary(&self) -> Result<String, Error> {
        let options = report::Options { language: report::Language::En, template: None };
        report::render(report::Format::Text, &self.scorecard, &options).map_err(|e| report_error(&e))
    }

    /// The exit code that the outcomes come to; the worst wins.
    pub fn exit_code(&self) -> u8 {
        let outcomes: Vec<Option<&Outcome>> = self.outcomes.iter().map(|(o, _)| o.as_ref()).collect();
        let measured = outcomes.iter().flatten().any(|o| o.kind == OutcomeKind::Ok);
        if !measured || outcomes.iter().any(|o| o.is_none_or(|o| !as_planned(o))) {
            return Exit::NOT_MEASURED;
        }
        let expectations = || self.outcomes.iter().flat_map(|(_, e)| e);
        if expectations().any(|e| e.met.is_none()) {
            return Exit::NOT_MEASURED;
        }
        if expectations().any(|e| e.met == Some(false)) { Exit::EXPECT } else { Exit::OK }
    }
}

fn put(dir: &Path, name: &str, text: &str) -> Result<String, Error> {
    let path = dir.join(name);
    replace(&path, text)?;
    Ok(path.display().to_string())
}

/// Whether an outcome is one that a plan has to reckon with: measured, left out by the user, or not offered.
fn as_planned(outcome: &Outcome) -> bool {
    match outcome.kind {
        OutcomeKind::Ok => true,
        OutcomeKind::Skipped => outcome.cause == Cause::NotSelected,
        OutcomeKind::Unsupported => [Cause::NotOffered, Cause::NotEnoughDevices].contains(&outcome.cause),
        _ => false,
    }
}

/// The report's language of a plan's.
pub fn language(language: Language) -> report::Language {
    match language {
        Language::En => report::Language::En,
        Language::Zh => report::Language::Zh,
    }
}

/// The error of a report: a template of the user's is the user's to mend.
pub fn report_error(e: &report::ReportError) -> Error {
    Error::caused(Exit::USAGE, "failed to render the report", e)
}
