//! What to say about a text that is no YAML document.
//!
//! The parser's own words speak of its options and end in a position; people get the position in front and words
//! about their file. A text that the parser refuses gives exactly one finding.

use serde_yaml::Error;

use super::tree::pos;
use crate::findings::{Finding, Place, Pos, Severity};

/// The parser's words that mean little to the author of a plan, and ours.
const REWORDED: [(&str, &str, &str); 13] = [
    (
        "multiple YAML documents",
        "a second document begins here",
        "a plan is one document: drop `---` or `...`",
    ),
    ("recursive references", "an anchor that contains itself", ""),
    ("replay", "aliases expand to more than a plan can hold", "write the parts out, or nest fewer anchors"),
    (
        "expansion",
        "aliases expand to more than a plan can hold",
        "write the parts out, or nest fewer anchors",
    ),
    ("budget", "the text is nested too deeply or has too many parts", ""),
    ("recursion", "the text is nested too deeply", ""),
    ("depth", "the text is nested too deeply", ""),
    ("expected string scalar", "a list or a map cannot be a key", ""),
    (
        "mapping values are not allowed",
        "a `:` that cannot stand here",
        "put the value in quotes, or line the key up with its neighbours",
    ),
    ("simple key expected ':'", "a line without `:`", "write `key: value`"),
    (
        "did not find expected key",
        "indented differently from the lines before",
        "line it up with its neighbours",
    ),
    ("a BOM must not appear", "a byte order mark inside the text", "drop it"),
    (
        "did not find expected '-'",
        "expected another item of the list that begins above",
        "line keys up with their neighbours",
    ),
];

/// The one finding for a text that the parser refused; `mark` is the length of the byte order mark before it.
pub(super) fn finding(body: &str, mark: u32, error: &Error) -> Finding {
    let at = error.location().map_or(START, |l| pos(&l, mark));
    if let Some(tab) = tab_in_indentation(body, mark, at.line) {
        return at_pos(tab, "a tab in the indentation").with_help("indent with spaces");
    }
    let text = error.without_snippet().to_string();
    let text = text.rsplit_once(" at line ").map_or(text.as_str(), |(words, _)| words);
    // The parser's errors have lines and columns, but not always offsets.
    let line = body.lines().nth(at.line.saturating_sub(1) as usize).unwrap_or("");
    let start = line.char_indices().nth(at.column.saturating_sub(1) as usize).map_or(line.len(), |(i, _)| i);
    let rest = &line[start..];

    if text.contains("unknown anchor") {
        let name = rest.split(|c: char| c.is_whitespace() || ",]}".contains(c)).next().unwrap_or("");
        return at_pos(at, format!("`{name}` names no anchor above it"));
    }
    if text.contains("block scalar") && rest.starts_with(['>', '|']) {
        let help = "put the bound in quotes: \">= 7\"";
        return at_pos(at, format!("`{}` begins a block of text", &rest[..1])).with_help(help);
    }
    if text.contains("did not find expected ',' or") && line.contains("${") {
        let help = "inside `{…}` and `[…]` put `${…}` in quotes";
        return at_pos(at, "a brace that cannot stand here").with_help(help);
    }
    if let Some(rest) = text.strip_prefix("unexpected character: `") {
        let character = rest.trim_end_matches('\'');
        return at_pos(at, format!("a value cannot begin with `{character}`")).with_help("put it in quotes");
    }
    match REWORDED.iter().find(|(theirs, ..)| text.contains(theirs)) {
        Some((_, ours, "")) => at_pos(at, *ours),
        Some((_, ours, help)) => at_pos(at, *ours).with_help(*help),
        None => at_pos(at, text),
    }
}

const START: Pos = Pos { offset: 0, len: 0, line: 1, column: 1 };

fn at_pos(pos: Pos, message: impl Into<String>) -> Finding {
    let pos = if pos.line == 0 { START } else { pos };
    Finding::new(Severity::Error, Place { at: pos, defined: pos }, message)
}

/// A tab before the first word of the failing line or of the one after it: the parser often names the line before.
fn tab_in_indentation(body: &str, mark: u32, failing: u32) -> Option<Pos> {
    let mut offset = mark;
    for (line, number) in body.split_inclusive('\n').zip(1_u32..) {
        if number > failing + 1 {
            break;
        }
        let indentation = line.len() - line.trim_start_matches([' ', '\t']).len();
        if number >= failing
            && let Some(tab) = line[..indentation].find('\t')
        {
            let tab = u32::try_from(tab).ok()?;
            return Some(Pos { offset: offset + tab, len: 1, line: number, column: tab + 1 });
        }
        offset += u32::try_from(line.len()).ok()?;
    }
    None
}
