//! Text from plans, programs and hosts made harmless for the format that it is printed in.
//!
//! Not here: numbers, words, templates.
//!
//! Invariant: whatever the text, a Markdown table keeps its columns, an HTML page its elements, a spreadsheet computes
//! nothing, and a reader sees that an empty text is empty.

use std::fmt::Write as _;

/// What stands in a table for an empty text.
pub(crate) const EMPTY: &str = "(empty)";

/// Whether a character steers the display instead of being shown: controls, and marks that turn the direction of
/// writing.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200B}' | '\u{200E}' | '\u{200F}' | '\u{2028}'..='\u{202E}' | '\u{2060}'..='\u{2069}' | '\u{FEFF}' | '\u{FFF9}'..='\u{FFFB}')
}

/// The text in one line, with everything that steers the display shown by its code point: `⟨U+202E⟩`.
pub(crate) fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut last_break = false;
    for c in text.chars() {
        let is_break = matches!(c, '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}');
        match c {
            _ if is_break && last_break => {}
            _ if is_break => out.push(' '),
            c if steers(c) => {
                let _ = write!(out, "⟨U+{:04X}⟩", u32::from(c));
            }
            c => out.push(c),
        }
        last_break = is_break;
    }
    out
}

/// A cell of a Markdown table: backslashes first, then what would end the cell or change its look.
pub(crate) fn markdown(text: &str) -> String {
    let text = plain(text);
    if text.trim().is_empty() {
        return EMPTY.to_owned();
    }
    let chars: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len() + 8);
    for (i, c) in chars.iter().enumerate() {
        match c {
            // Between letters an underscore is only itself, and names stay readable.
            '_' if i > 0
                && chars[i - 1].is_alphanumeric()
                && chars.get(i + 1).is_some_and(|n| n.is_alphanumeric()) =>
            {
                out.push('_');
            }
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '~' => {
                out.push('\\');
                out.push(*c);
            }
            // Before anything else `<` opens no tag and `&` no entity, and bounds stay readable.
            '<' if chars.get(i + 1).is_some_and(|n| n.is_ascii_alphabetic() || "/!?".contains(*n)) => {
                out.push_str("&lt;");
            }
            '&' if chars.get(i + 1).is_some_and(|n| n.is_ascii_alphanumeric() || *n == '#') => {
                out.push_str("&amp;");
            }
            c => out.push(*c),
        }
    }
    out
}

/// Text and attributes of HTML.
pub(crate) fn html(text: &str) -> String {
    let text = plain(text);
    if text.trim().is_empty() {
        return EMPTY.to_owned();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A cell of a CSV file, quoted where needed; what a spreadsheet would compute starts with an apostrophe.
pub(crate) fn csv(text: &str) -> String {
    if text.is_empty() {
        return EMPTY.to_owned();
    }
    let formula = text.trim_start().starts_with(['=', '+', '-', '@']) || text.starts_with(['\t', '\r', '\n']);
    let mut cell: String = if formula { "'".to_owned() } else { String::new() };
    for c in text.chars() {
        match c {
            '\n' | '\r' | '\t' => cell.push(' '),
            c if steers(c) => {
                let _ = write!(cell, "⟨U+{:04X}⟩", u32::from(c));
            }
            c => cell.push(c),
        }
    }
    if cell.contains([',', '"', ';', '\'']) || cell.starts_with(' ') || cell.ends_with(' ') {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell
    }
}

/// Text and attributes of XML 1.0; characters that XML does not allow at all are shown by their code point.
pub(crate) fn xml(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&apos;"),
            '\n' => out.push_str("&#10;"),
            '\r' => out.push_str("&#13;"),
            '\t' => out.push_str("&#9;"),
            c if steers(c) || matches!(c, '\u{FFFE}' | '\u{FFFF}') => {
                let _ = write!(out, "⟨U+{:04X}⟩", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn markdown_escapes_the_backslash_first() {
        assert_eq!(markdown("a\\|b"), "a\\\\\\|b");
        assert_eq!(markdown("two\nlines"), "two lines");
        assert_eq!(markdown(""), EMPTY);
        assert_eq!(markdown("tokens_per_second"), "tokens_per_second");
        assert_eq!(markdown("`tick` *star* _under_"), "\\`tick\\` \\*star\\* \\_under\\_");
        assert_eq!(markdown("<script>"), "&lt;script>");
        assert_eq!(markdown("<= 5 % & &lt;"), "<= 5 % & &amp;lt;");
        assert_eq!(markdown("é \u{202E}"), "é ⟨U+202E⟩");
    }

    #[test]
    fn spreadsheets_compute_nothing() {
        for (text, cell) in [
            ("=1+1", "\"'=1+1\""),
            ("+1", "\"'+1\""),
            ("-1", "\"'-1\""),
            ("@x", "\"'@x\""),
            ("\tx", "\"' x\""),
            ("  =x", "\"'  =x\""),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("plain", "plain"),
        ] {
            assert_eq!(csv(text), cell);
        }
    }

    proptest! {
        #[test]
        fn a_markdown_cell_never_ends_early(text in "\\PC*|[|\\\\\n`<&_]*") {
            let cell = markdown(&text);
            let mut escaped = false;
            for c in cell.chars() {
                prop_assert!(escaped || c != '|', "{}", cell);
                prop_assert!(c != '\n');
                escaped = c == '\\' && !escaped;
            }
            prop_assert!(!escaped, "a last backslash would escape the next cell's border: {}", cell);
        }

        #[test]
        fn a_csv_cell_reads_back_as_one(text in any::<String>()) {
            let line = format!("{},end\n", csv(&text));
            let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
            let rows: Vec<_> = reader.records().map(|r| r.map(|r| r.len())).collect();
            prop_assert!(matches!(rows.as_slice(), [Ok(2)]), "{:?}", rows);
        }
    }
}
