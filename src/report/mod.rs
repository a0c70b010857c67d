//! Scorecards and comparisons as people and tools read them: Markdown, HTML, CSV, `JUnit`, through templates.
//!
//! Not here: how a number was made. A report formats; it never computes.
//!
//! Invariant: text is escaped for its format without the template asking for it, so that a template of the user's
//! cannot forget it; the same input gives the same bytes.

mod escape;
mod filters;
mod language;
mod svg;
#[cfg(test)]
mod tests;

use minijinja::{
    AutoEscape, Environment, Error, UndefinedBehavior, Value, escape_formatter, syntax::SyntaxConfig,
    value::Serde,
};

pub use language::Language;

use crate::score::{Scorecard, diff::Diff};

/// How a scorecard is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// For a repository and a chat.
    Markdown,
    /// One self-contained page.
    Html,
    /// For a spreadsheet.
    Csv,
    /// For a CI server.
    Junit,
    /// For a terminal: the outcome on one screen.
    Text,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Markdown, Self::Html, Self::Csv, Self::Junit, Self::Text];

    /// The name of the file beside the scorecard.
    pub const fn file_name(self) -> &'static str {
        match self {
            Self::Markdown => "scorecard.md",
            Self::Html => "scorecard.html",
            Self::Csv => "scorecard.csv",
            Self::Junit => "junit.xml",
            Self::Text => "scorecard.text",
        }
    }

    const fn template(self) -> &'static str {
        match self {
            Self::Markdown => include_str!("../../templates/scorecard.md.j2"),
            Self::Html => include_str!("../../templates/scorecard.html.j2"),
            Self::Csv => include_str!("../../templates/scorecard.csv.j2"),
            Self::Junit => include_str!("../../templates/junit.xml.j2"),
            Self::Text => include_str!("../../templates/scorecard.text.j2"),
        }
    }
}

/// How a comparison is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DiffFormat {
    /// For a terminal.
    Text,
    /// For a repository and a chat.
    Markdown,
    /// One self-contained page.
    Html,
}

impl DiffFormat {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Text, Self::Markdown, Self::Html];

    /// The name of its template, which tells how text is escaped.
    pub const fn template_name(self) -> &'static str {
        match self {
            Self::Text => "diff.text",
            Self::Markdown => "diff.md",
            Self::Html => "diff.html",
        }
    }

    const fn template(self) -> &'static str {
        match self {
            Self::Text => include_str!("../../templates/diff.text.j2"),
            Self::Markdown => include_str!("../../templates/diff.md.j2"),
            Self::Html => include_str!("../../templates/diff.html.j2"),
        }
    }
}

/// A template of the user's in place of a built-in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// Its name, for messages; what it ends with (before a `.j2`) tells how text is escaped.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// How to render.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    /// The language of the fixed words.
    pub language: Language,
    /// In place of the built-in template.
    pub template: Option<Template>,
}

/// Why a report cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("render {template}{}{}", .line.map_or(String::new(), |l| format!(", line {l}")), source_line(.text.as_deref()))]
pub struct ReportError {
    /// The template's name.
    pub template: String,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The line's text.
    pub text: Option<String>,
    /// What is wrong with it.
    #[source]
    pub source: TemplateFault,
}

fn source_line(text: Option<&str>) -> String {
    text.map_or_else(String::new, |t| format!(" (`{}`)", t.trim()))
}

/// What a template did wrong, without the values it was given.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct TemplateFault(String);

/// Renders a scorecard.
///
/// # Errors
/// When the user's template is no template, uses what is not there, or never ends.
pub fn render(format: Format, card: &Scorecard, options: &Options) -> Result<String, ReportError> {
    let rows: usize = card.platforms.iter().map(|p| p.metrics.len() + p.tasks.len() + p.checks.len()).sum();
    let text = run(format.file_name(), format.template(), "card", Value::from(Serde(card)), rows, options)?;
    Ok(if format == Format::Text && options.template.is_none() { tidy(&text) } else { text })
}

/// Renders a comparison.
///
/// # Errors
/// As [`render`].
pub fn render_diff(format: DiffFormat, diff: &Diff, options: &Options) -> Result<String, ReportError> {
    let rows = diff.platforms.iter().map(|p| p.metrics.len() + p.costs.len() + p.checks.len()).sum();
    let text =
        run(format.template_name(), format.template(), "diff", Value::from(Serde(diff)), rows, options)?;
    Ok(if format == DiffFormat::Text && options.template.is_none() { tidy(&text) } else { text })
}

/// Text for a terminal without what padding and empty parts leave behind: no blanks at the end of a line, one empty
/// line at most between others, none at either end.
fn tidy(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut gap = false;
    for line in text.lines().map(str::trim_end) {
        if line.is_empty() {
            gap = !out.is_empty();
            continue;
        }
        if gap {
            out.push('\n');
        }
        gap = false;
        out.push_str(line);
        out.push('\n');
    }
    out
}

/// Renders one template over one value.
fn run(
    name: &str,
    builtin: &str,
    variable: &'static str,
    value: Value,
    rows: usize,
    options: &Options,
) -> Result<String, ReportError> {
    let (name, text) = match &options.template {
        Some(template) => (template.name.as_str(), template.text.as_str()),
        None => (name, builtin),
    };
    let mut env = environment(options.language);
    // Far more than any honest template needs, so that an endless one ends.
    env.set_fuel(Some(2_000_000 + 5_000 * rows as u64));
    let words = language::words(options.language);
    let context = Value::from_pairs([
        (variable, value),
        ("t", words),
        ("language", Value::from(options.language.code())),
    ]);
    let result = env.render_named_str(name, text, context);
    result.map_err(|e| fault(name, text, &e))
}

fn environment(language: Language) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    if let Ok(syntax) = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build() {
        env.set_syntax(syntax);
    }
    env.set_auto_escape_callback(|name| match kind(name) {
        Kind::Html | Kind::Xml => AutoEscape::Html,
        Kind::Markdown | Kind::Csv | Kind::Text => AutoEscape::None,
    });
    env.set_formatter(|out, state, value| {
        let (Some(text), false) = (value.as_str(), value.is_safe()) else {
            return escape_formatter(out, state, value);
        };
        let text = match kind(state.name()) {
            Kind::Markdown => escape::markdown(text),
            Kind::Html => escape::html(text),
            Kind::Xml => escape::xml(text),
            Kind::Csv => escape::csv(text),
            Kind::Text => escape::plain(text),
        };
        out.write_str(&text).map_err(Error::from)
    });
    filters::install(&mut env);
    env.add_function("word", move |group: &str, key: &Value| language::word(language, group, key));
    env
}

enum Kind {
    Markdown,
    Html,
    Xml,
    Csv,
    Text,
}

fn kind(name: &str) -> Kind {
    let name = name.strip_suffix(".j2").unwrap_or(name);
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("md" | "markdown") => Kind::Markdown,
        Some("html" | "htm") => Kind::Html,
        Some("xml") => Kind::Xml,
        Some("csv") => Kind::Csv,
        _ => Kind::Text,
    }
}

fn fault(name: &str, text: &str, e: &Error) -> ReportError {
    let line = e.line();
    let detail = e.detail().map_or_else(|| e.kind().to_string(), |d| format!("{}: {d}", e.kind()));
    ReportError {
        template: e.name().unwrap_or(name).to_owned(),
        line,
        text: line.and_then(|l| text.lines().nth(l - 1)).map(str::to_owned),
        source: TemplateFault(detail),
    }
}
