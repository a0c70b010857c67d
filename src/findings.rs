//! What is wrong with a text, and where: positions, findings, their printed forms, and values that remember where
//! they stood.
//!
//! A leaf: it knows no plan, no YAML and no file. Lines and columns count from 1, columns count characters; a caret
//! stands by display width. What is printed holds no control character of the text.

use std::{
    borrow::{Borrow, Cow},
    fmt,
    hash::{Hash, Hasher},
    marker::PhantomData,
};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{SeqAccess, Visitor},
};
use unicode_width::UnicodeWidthStr;

/// A stretch of the source text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Pos {
    /// Bytes from the start of the text.
    pub offset: u32,
    /// Bytes that it covers; 0 where only the start is known.
    pub len: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// Where a value was used and where it was written: the two differ behind an alias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Place {
    /// Where it stands in the document.
    pub at: Pos,
    /// Where its text is.
    pub defined: Pos,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The plan cannot run.
    Error,
    /// The plan can run; somebody should look.
    Warning,
    /// A fact that the reader may want, such as an open question.
    Note,
}

/// One thing to say about a text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Where the text that is meant stands.
    pub pos: Pos,
    /// Where it is used, when that is elsewhere (an alias).
    pub used_at: Option<Pos>,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong, in one sentence.
    pub message: String,
    /// What to do about it, where that is not plain.
    pub help: Option<String>,
}

impl Finding {
    /// Something to say about the text at a place.
    pub fn new(severity: Severity, place: Place, message: impl Into<String>) -> Self {
        let used_at = (place.at != place.defined).then_some(place.at);
        Self { pos: place.defined, used_at, severity, message: message.into(), help: None }
    }

    /// A message quotes what it is about; a quoted block of text need not be whole.
    pub(crate) fn shorten(&mut self) {
        const MOST: usize = 600;
        for text in [Some(&mut self.message), self.help.as_mut()].into_iter().flatten() {
            if let Some((end, _)) = text.char_indices().nth(MOST) {
                text.truncate(end);
                text.push('…');
            }
        }
    }

    /// With a word on what to do.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// A text with the name that findings give it.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The file's name as the user wrote it.
    pub name: &'a str,
    /// Its text.
    pub text: &'a str,
}

/// How findings are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Form {
    /// For people: the position, the message, the line and a caret.
    #[default]
    Human,
    /// For programs: one JSON array.
    Json,
    /// For GitHub: workflow commands, one a line.
    Github,
}

/// Writes the findings of several texts; each line ends in a newline, nothing is written where there is nothing to
/// say, except that JSON is an array always.
pub fn render(form: Form, all: &[(Source<'_>, &[Finding])]) -> String {
    let each = || all.iter().flat_map(|(source, findings)| findings.iter().map(move |f| (source, f)));
    match form {
        Form::Human => {
            let mut out = String::new();
            for (source, findings) in all {
                let lines: Vec<&str> = source.text.trim_start_matches('\u{feff}').lines().collect();
                for finding in *findings {
                    human(&mut out, source.name, &lines, finding);
                }
            }
            out
        }
        Form::Json => {
            let list: Vec<serde_json::Value> = each().map(|(source, f)| json(source.name, f)).collect();
            format!("{:#}\n", serde_json::Value::Array(list))
        }
        Form::Github => each().map(|(source, f)| github(source.name, f)).collect(),
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// Text that may stand in a terminal: what would not show, or would move other text, is written as an escape.
pub fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.chars().fold(String::with_capacity(text.len()), |mut out, c| {
        push_visible(&mut out, c);
        out
    }))
}

fn push_visible(out: &mut String, c: char) {
    if is_hidden(c) { out.extend(c.escape_default()) } else { out.push(c) }
}

/// Control characters, and characters that take no or unusual space: no-break and thin spaces, zero-width and
/// bidirectional marks, line separators, the byte order mark, variation selectors and tags.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{a0}' | '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{206f}' | '\u{3000}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e01ef}')
}

/// Columns of a source line that are shown at most.
const SHOWN_WIDTH: usize = 100;
/// Columns before the caret that are kept of a line that is too long.
const KEPT_BEFORE: usize = 40;

fn human(out: &mut String, name: &str, lines: &[&str], finding: &Finding) {
    use fmt::Write as _;
    let Finding { pos, severity, message, .. } = finding;
    let used = finding.used_at.map(|at| format!(" (used at {}:{})", at.line, at.column)).unwrap_or_default();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "{}:{}:{}: {severity}: {}{used}",
        visible(name),
        pos.line,
        pos.column,
        visible(message)
    );
    if let Some(line) = pos.line.checked_sub(1).and_then(|n| lines.get(n as usize)) {
        let (line, caret) = excerpt(line, *pos);
        let _ = writeln!(out, "    {line}\n    {caret}");
    }
    if let Some(help) = &finding.help {
        let _ = writeln!(out, "    help: {}", visible(help));
    }
}

/// The line as it is shown, cropped around the place, and the line with the caret below it.
fn excerpt(line: &str, pos: Pos) -> (String, String) {
    // Each character as shown, and the columns up to it; a tab is one column.
    let mut cells: Vec<String> = Vec::new();
    let mut columns = vec![0];
    // Of a very long line only the neighbourhood is looked at.
    let column = pos.column.max(1) as usize - 1;
    let skipped = column.saturating_sub(2 * KEPT_BEFORE);
    for c in line.chars().skip(skipped).take(4 * SHOWN_WIDTH) {
        let mut shown = String::new();
        if c == '\t' {
            shown.push(' ');
        } else {
            push_visible(&mut shown, c);
        }
        columns.push(columns.last().unwrap_or(&0) + UnicodeWidthStr::width(shown.as_str()));
        cells.push(shown);
    }
    let width = |from: usize, to: usize| columns[to] - columns[from];
    let start = (column - skipped).min(cells.len());
    // The length of a place is in bytes, and it may go on over further lines.
    let marked = line.chars().skip(skipped + start).take(SHOWN_WIDTH).scan(0, |taken, c| {
        let inside = *taken < pos.len as usize;
        *taken += c.len_utf8();
        inside.then_some(())
    });
    let end = (start + marked.count()).min(cells.len());

    let (mut from, mut to) = (0, cells.len());
    if skipped > 0 || width(0, to) > SHOWN_WIDTH {
        from = columns.partition_point(|c| c + KEPT_BEFORE < columns[start]);
        to = columns.partition_point(|c| *c <= columns[from] + SHOWN_WIDTH) - 1;
    }
    let shown = cells[from..to].concat();
    let (head, tail) = (if from > 0 { "…" } else { "" }, if to < cells.len() { "…" } else { "" });
    let indent = head.chars().count() + width(from, start);
    let carets = width(start, end.min(to).max(start)).max(1);
    (format!("{head}{shown}{tail}"), format!("{}{}", " ".repeat(indent), "^".repeat(carets)))
}

fn json(name: &str, finding: &Finding) -> serde_json::Value {
    let mut value = serde_json::json!({
        "file": name,
        "line": finding.pos.line,
        "column": finding.pos.column,
        "severity": finding.severity,
        "message": finding.message,
    });
    if let Some(help) = &finding.help {
        value["help"] = help.as_str().into();
    }
    if let Some(at) = finding.used_at {
        value["used_at"] = serde_json::json!({ "line": at.line, "column": at.column });
    }
    value
}

/// A workflow command: what would end it or its properties is percent-encoded.
fn github(name: &str, finding: &Finding) -> String {
    let data = |text: &str| text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A");
    let property = |text: &str| data(text).replace(':', "%3A").replace(',', "%2C");
    let command = match finding.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "notice",
    };
    let help = finding.help.as_ref().map(|help| format!(" ({help})")).unwrap_or_default();
    let message = data(&visible(&format!("{}{help}", finding.message)));
    format!(
        "::{command} file={},line={},col={}::{message}\n",
        property(name),
        finding.pos.line,
        finding.pos.column
    )
}

/// A value with the place where it stood.
///
/// Equality, order and hash look at the value alone. Written out it is the value; read by the plan reader it
/// carries its place, read by any other format the place is zero.
#[derive(Debug, Clone, Default)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it stood.
    pub place: Place,
}

impl<T> At<T> {
    /// A value that stood nowhere, for defaults and tests.
    pub fn nowhere(value: T) -> Self {
        Self { value, place: Place::default() }
    }
}

impl<T> std::ops::Deref for At<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

impl<T: PartialOrd> PartialOrd for At<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

impl<T: Ord> Ord for At<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.value.cmp(&other.value)
    }
}

impl<T: Hash> Hash for At<T> {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.value.hash(h);
    }
}

impl Borrow<str> for At<String> {
    fn borrow(&self) -> &str {
        &self.value
    }
}

impl<T: fmt::Display> fmt::Display for At<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: Serialize> Serialize for At<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(s)
    }
}

/// The name under which [`At`] asks a deserializer for a place. One that knows it answers with a sequence of the
/// eight numbers of a [`Place`] and then the value; all others hand on the value.
pub const AT: &str = "$at";

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct AtVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for AtVisitor<T> {
            type Value = At<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_newtype_struct<D: Deserializer<'de>>(self, d: D) -> Result<At<T>, D::Error> {
                T::deserialize(d).map(At::nowhere)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut a: A) -> Result<At<T>, A::Error> {
                let mut w = [0_u32; 8];
                for x in &mut w {
                    *x = a.next_element()?.unwrap_or_default();
                }
                let pos = |i: usize| Pos { offset: w[i], len: w[i + 1], line: w[i + 2], column: w[i + 3] };
                let value = a.next_element()?.ok_or_else(|| serde::de::Error::custom("no value"))?;
                Ok(At { value, place: Place { at: pos(0), defined: pos(4) } })
            }
        }
        d.deserialize_newtype_struct(AT, AtVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        T::json_schema(g)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_does_not_reach_other_formats() {
        let at: At<String> = serde_json::from_str("\"x\"").unwrap();
        assert_eq!((at.as_str(), at.place), ("x", Place::default()));
        assert_eq!(serde_json::to_string(&at).unwrap(), "\"x\"");
    }

    fn at(line: u32, column: u32, len: u32) -> Finding {
        let pos = Pos { offset: 0, len, line, column };
        Finding::new(Severity::Error, Place { at: pos, defined: pos }, "wrong")
    }

    fn human_text(text: &str, finding: Finding) -> String {
        render(Form::Human, &[(Source { name: "p.yaml", text }, &[finding])])
    }

    #[test]
    fn a_caret_stands_below_what_is_meant() {
        assert_eq!(
            human_text("a: 1\nbb: ccc\n", at(2, 5, 3)),
            "p.yaml:2:5: error: wrong\n    bb: ccc\n        ^^^\n"
        );
        // Two columns for each of the two characters before it.
        assert_eq!(
            human_text("平台: x", at(1, 5, 1)),
            "p.yaml:1:5: error: wrong\n    平台: x\n          ^\n"
        );
        assert_eq!(
            human_text("\u{feff}a:\tb", at(1, 4, 1)),
            "p.yaml:1:4: error: wrong\n    a: b\n       ^\n"
        );
        assert_eq!(human_text("", at(1, 1, 0)), "p.yaml:1:1: error: wrong\n");
        assert_eq!(human_text("ab", at(1, 9, 4)), "p.yaml:1:9: error: wrong\n    ab\n      ^\n");
    }

    #[test]
    fn hidden_characters_show_and_cannot_act() {
        let text = human_text("a\u{a0}b: \u{1b}[31m", at(1, 6, 1));
        assert_eq!(text, "p.yaml:1:6: error: wrong\n    a\\u{a0}b: \\u{1b}[31m\n              ^^^^^^\n");
        assert_eq!(visible("a\u{202e}\nb"), "a\\u{202e}\\nb");
    }

    #[test]
    fn a_long_line_is_cropped_around_the_place() {
        let line = format!("{}key{}", "x".repeat(500), "y".repeat(500));
        let text = human_text(&line, at(1, 501, 3));
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].len() < 120 && lines[1].contains("xkeyy"), "{text}");
        assert_eq!(lines[1].chars().position(|c| c == 'k'), lines[2].find('^'));
        assert!(lines[2].ends_with("^^^"));
    }

    #[test]
    fn programs_get_json_and_github_its_commands() {
        let mut finding = at(3, 7, 1).with_help("do");
        finding.message = "100 %\nfoo".to_owned();
        let source = Source { name: "a,b:c.yaml", text: "" };
        let github = render(Form::Github, &[(source, std::slice::from_ref(&finding))]);
        assert_eq!(github, "::error file=a%2Cb%3Ac.yaml,line=3,col=7::100 %25\\nfoo (do)\n");
        let json: serde_json::Value =
            serde_json::from_str(&render(Form::Json, &[(source, &[finding])])).unwrap();
        assert_eq!(json[0]["line"], 3);
        assert_eq!(json[0]["severity"], "error");
        assert_eq!(json[0]["help"], "do");
        assert_eq!(render(Form::Json, &[]), "[]\n");
    }
}
