//! Makes text from the host safe to print and small enough to keep.
//!
//! Here: cleaning of values and of name parts. Not here: what the text means.
//!
//! Invariant: what leaves this file is one line of printable UTF-8 without control, direction or
//! zero-width characters, at most [`MAX_VALUE`] bytes long.

/// The longest text value, in bytes.
pub(crate) const MAX_VALUE: usize = 1024;
/// The longest part of a dotted name, in bytes.
const MAX_PART: usize = 64;

/// Turns bytes from anywhere into one printable line of at most [`MAX_VALUE`] bytes.
///
/// Invalid UTF-8 becomes U+FFFD, runs of blanks and unprintable characters become one space.
pub(crate) fn clean(raw: &[u8]) -> String {
    // Four times the limit is enough to fill it, whatever is dropped; more is never looked at.
    let head = &raw[..raw.len().min(4 * MAX_VALUE)];
    let mut text = String::new();
    for character in String::from_utf8_lossy(head).chars() {
        if is_hidden(character) || character.is_whitespace() {
            if !text.is_empty() && !text.ends_with(' ') {
                text.push(' ');
            }
        } else {
            text.push(character);
        }
    }
    text.truncate(text.trim_end().len());
    if text.len() > MAX_VALUE || raw.len() > head.len() {
        let mut end = text.len().min(MAX_VALUE - '…'.len_utf8());
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// Turns a device name or a path into a part of a dotted fact name: no dots, no blanks, ASCII.
pub(crate) fn name_part(raw: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ':' | '/');
    let part: String = raw.chars().take(MAX_PART).map(|c| if keep(c) { c } else { '_' }).collect();
    if part.is_empty() { "_".into() } else { part }
}

/// Control characters and those that reorder, hide or join what a terminal shows.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_and_bad_utf8_become_harmless() {
        assert_eq!(clean(b"  AMD\x1b[2J EPYC\r\n\t9654\x00\xff "), "AMD [2J EPYC 9654 \u{fffd}");
        assert_eq!(clean("a\u{202e}b\u{200b}c".as_bytes()), "a b c");
    }

    #[test]
    fn long_values_are_cut_at_a_character_and_say_so() {
        let long = clean("é".repeat(5_000_000).as_bytes());
        assert!(long.len() <= MAX_VALUE && long.ends_with("é…"), "{} bytes", long.len());
        assert_eq!(clean("x".repeat(MAX_VALUE).as_bytes()).len(), MAX_VALUE);
        assert!(clean(&b" ".repeat(9_000)).len() <= 3);
    }

    #[test]
    fn name_parts_hold_no_dots() {
        assert_eq!(name_part("eth0.100"), "eth0_100");
        assert_eq!(name_part("/data set"), "/data_set");
        assert_eq!(name_part(""), "_");
    }
}
