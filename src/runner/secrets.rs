//! Values that must not be written anywhere, and how they are masked.
//!
//! Where two secrets begin alike the longer one is masked. Each character of a secret is known plain, as JSON escapes
//! it (`\\/`, `\\u00e9`) and percent-encoded as in URLs, in any mixture; a secret is also known by its lines where it
//! has several, and as a number where it is one. ssh
//! and [`printable`] show some of it otherwise, and cut long texts: so they are known, too. Other forms, such as
//! base64, are not.

use std::collections::BTreeMap;

use crate::{
    measure::{Finite, Labels, Unit},
    outcome::printable,
    record::CheckResult,
};

/// The shortest value that is masked; shorter ones would mask half of every log.
const SHORTEST: usize = 4;

/// The shortest line of a longer secret that is masked by itself.
const SHORTEST_LINE: usize = 8;

/// What stands in a secret's place.
const MASK: &str = "****";

/// The secrets of a run.
#[derive(Default)]
pub struct Secrets {
    all: Vec<Secret>,
    /// The same as plain text, the longest first.
    plain: Vec<String>,
    /// Whether a byte may begin one, by the byte: for all others there is nothing to compare.
    begins: Vec<bool>,
    /// Those that are numbers.
    numbers: Vec<f64>,
}

impl Secrets {
    /// The secrets of these values.
    pub fn new(values: &[String]) -> Self {
        let mut all = Vec::new();
        for value in values {
            all.extend([value.clone(), value.trim().to_owned()]);
            let lines = value.lines().map(str::trim).filter(|line| line.len() >= SHORTEST_LINE);
            all.extend(lines.map(str::to_owned));
            // ssh says the names of hosts in lower case.
            all.extend([printable(value), value.to_ascii_lowercase()]);
        }
        all.retain(|secret| secret.len() >= SHORTEST);
        all.sort_unstable();
        all.dedup();
        let numbers = all.iter().filter_map(|secret| secret.parse().ok()).collect();
        let mut plain = all.clone();
        plain.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        let all: Vec<Secret> = all.iter().map(|secret| Secret::new(secret)).collect();
        let mut begins = vec![false; 256];
        for form in all.iter().filter_map(|secret| secret.0.first()).flatten() {
            begins[usize::from(form.bytes[0])] = true;
        }
        Self { all, plain, begins, numbers }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// A piece of a stream with every secret masked. What may be the beginning of one is kept in `held` for the next
    /// piece, unless this is the end.
    pub(super) fn mask_stream(&self, held: &mut Vec<u8>, piece: &[u8], end: bool) -> Vec<u8> {
        let mut text = std::mem::take(held);
        text.extend_from_slice(piece);
        if self.is_empty() {
            return text;
        }
        let mut out = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            let mut longest = None;
            if self.begins[usize::from(rest[0])] {
                for secret in &self.all {
                    let fit = secret.fit(rest);
                    if fit.cut && !end {
                        held.extend_from_slice(rest);
                        return out;
                    }
                    longest = longest.max(fit.whole);
                }
            }
            if let Some(length) = longest {
                out.extend_from_slice(MASK.as_bytes());
                at += length;
            } else {
                out.push(rest[0]);
                at += 1;
            }
        }
        out
    }

    /// Whether a number is a secret.
    pub(super) fn is_secret(&self, value: Finite) -> bool {
        self.numbers.iter().any(|number| number.total_cmp(&value.get()).is_eq())
    }

    /// Text with every secret masked.
    pub(super) fn mask(&self, text: &str) -> String {
        if self.is_empty() {
            return text.to_owned();
        }
        let masked = self.mask_stream(&mut Vec::new(), text.as_bytes(), true);
        self.mask_beginnings(&String::from_utf8_lossy(&masked))
    }

    /// Where [`printable`] has cut a text, a secret may have lost its end.
    fn mask_beginnings(&self, text: &str) -> String {
        let mut parts: Vec<String> = text.split('…').map(str::to_owned).collect();
        let before_cuts = parts.len() - 1;
        for part in &mut parts[..before_cuts] {
            let ends = |n: &usize| {
                self.plain.iter().any(|s| *n < s.len() && part.as_bytes().ends_with(&s.as_bytes()[..*n]))
            };
            let longest = self.plain.first().map_or(0, String::len);
            if let Some(n) = (SHORTEST..longest).rev().find(ends) {
                part.truncate(part.len() - n);
                part.push_str(MASK);
            }
        }
        parts.join("…")
    }

    /// A JSON value with every secret masked, in keys, too.
    pub(super) fn mask_value(&self, value: serde_json::Value) -> serde_json::Value {
        use serde_json::Value;
        match value {
            other if self.is_empty() => other,
            Value::String(text) => Value::String(self.mask(&text)),
            Value::Number(number) => {
                let is_secret =
                    number.as_f64().and_then(|n| Finite::new(n).ok()).is_some_and(|n| self.is_secret(n));
                if is_secret { MASK.into() } else { Value::Number(number) }
            }
            Value::Array(values) => values.into_iter().map(|v| self.mask_value(v)).collect(),
            Value::Object(map) => map.into_iter().map(|(k, v)| (self.mask(&k), self.mask_value(v))).collect(),
            other => other,
        }
    }

    /// The parts of a series with every secret masked.
    pub(super) fn mask_series(&self, name: String, labels: Labels, unit: Unit) -> (String, Labels, Unit) {
        if self.is_empty() {
            return (name, labels, unit);
        }
        let pairs: BTreeMap<String, String> =
            labels.0.into_iter().map(|(k, v)| (self.mask(&k), self.mask(&v))).collect();
        let Ok(unit) = self.mask(unit.as_str()).parse();
        (self.mask(&name), pairs.into_iter().collect(), unit)
    }

    /// A check with every secret masked.
    pub fn mask_check(&self, check: CheckResult) -> CheckResult {
        let CheckResult { id, outcome, value, promised, reason, action } = check;
        let mask = |text: Option<String>| text.map(|t| self.mask(&t));
        CheckResult {
            id,
            outcome,
            value: mask(value),
            promised: mask(promised),
            reason: self.mask(&reason),
            action: mask(action),
        }
    }
}

/// A secret, character by character.
struct Secret(Vec<Vec<Form>>);

/// One way to write a character.
struct Form {
    bytes: Vec<u8>,
    /// Hexadecimal digits are written in either case.
    any_case: bool,
}

/// How a text begins with a secret.
struct Fit {
    /// The bytes that the longest form of all of it takes.
    whole: Option<usize>,
    /// The text ends where more of the secret may follow.
    cut: bool,
}

impl Secret {
    fn new(secret: &str) -> Self {
        Self(secret.chars().map(forms).collect())
    }

    fn fit(&self, text: &[u8]) -> Fit {
        let mut cut = false;
        // Where the characters so far may end: in one place nearly always, in more where a form begins like another.
        let mut ends = vec![0];
        for forms in &self.0 {
            let mut next = Vec::new();
            for end in ends {
                for Form { bytes, any_case } in forms {
                    let shown = &text[end..text.len().min(end + bytes.len())];
                    let wanted = &bytes[..shown.len()];
                    if shown != wanted && !(*any_case && shown.eq_ignore_ascii_case(wanted)) {
                        continue;
                    }
                    if shown.len() < bytes.len() {
                        cut = true;
                    } else if !next.contains(&(end + bytes.len())) {
                        next.push(end + bytes.len());
                    }
                }
            }
            ends = next;
        }
        Fit { whole: ends.into_iter().max(), cut }
    }
}

/// All ways to write a character.
fn forms(c: char) -> Vec<Form> {
    let exact = |text: &str| Form { bytes: text.as_bytes().to_vec(), any_case: false };
    let any_case = |text: String| Form { bytes: text.into_bytes(), any_case: true };
    let plain = c.to_string();
    let percent: Vec<String> = plain.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let escaped: Vec<String> =
        c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect();
    let mut all = vec![exact(&plain), any_case(percent.concat()), any_case(escaped.concat())];
    all.extend(match c {
        '"' | '\\' | '/' => Some(exact(&format!("\\{c}"))),
        '\n' => Some(exact("\\n")),
        '\r' => Some(exact("\\r")),
        '\t' => Some(exact("\\t")),
        ' ' => Some(exact("+")),
        _ => None,
    });
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secrets(values: &[&str]) -> Secrets {
        Secrets::new(&values.iter().map(|v| (*v).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn the_longer_of_two_that_begin_alike_is_masked() {
        let s = secrets(&["abcd", "abcdef", "no"]);
        assert_eq!(s.mask("x abcdef abcd no abcde"), "x **** **** no ****e");
        assert_eq!(
            s.mask_value(serde_json::json!({ "abcd": ["abcdef", 1] })),
            serde_json::json!({ "****": ["****", 1] })
        );
    }

    #[test]
    fn a_mask_as_a_secret_comes_to_an_end() {
        assert_eq!(secrets(&["****"]).mask("a **** b ********"), "a **** b ********");
    }

    #[test]
    fn lines_and_json_of_a_secret_are_secret() {
        let s = secrets(&["first line\nsecond \"line\"\n"]);
        assert_eq!(s.mask("<second \"line\"> <second \\\"line\\\"> <first line>"), "<****> <****> <****>");
    }

    #[test]
    fn escapes_and_urls_hide_nothing() {
        let s = secrets(&["p/ä\"w d", "a\\\\b/c"]);
        for text in [
            "p/ä\"w d",
            r#"p\/\u00e4\"w d"#,
            r"\u0070\u002F\u00E4\u0022\u0077\u0020\u0064",
            "p%2Fä%22w+d",
            "%70%2f%c3%a4%22%77%20%64",
            r"a\\b/c",
            r"a\\\\b\/c",
            r"a%5C\\b%2fc",
        ] {
            assert_eq!(s.mask(&format!("<{text}>")), "<****>", "{text}");
        }
        assert_eq!(secrets(&["😀😀"]).mask(r"\ud83d\uDE00😀 \ud83d"), r"**** \ud83d");
        assert_eq!(s.mask("p/ä w d %2f"), "p/ä w d %2f");
    }

    #[test]
    fn a_secret_is_known_as_ssh_and_our_own_texts_show_it() {
        let s = secrets(&["Two  Words\u{7}", "abcdefgh"]);
        assert_eq!(s.mask("Two Words / two  words\u{7}"), "**** / ****");
        assert_eq!(s.mask("x abcd… abc… abcdefg… abcde"), "x ****… abc… ****… abcde");
    }

    #[test]
    fn a_number_may_be_a_secret() {
        let s = secrets(&["4711.50", "no number"]);
        let number = |n| Finite::new(n).unwrap();
        assert!(s.is_secret(number(4711.5)) && !s.is_secret(number(4711.0)));
        assert_eq!(
            s.mask_value(serde_json::json!([4711.5, 4711, "4711.50"])),
            serde_json::json!(["****", 4711, "****"])
        );
    }

    #[test]
    fn pieces_do_not_matter() {
        let s = secrets(&["abcd", "abcdef", "cdx", "u/v w"]);
        let text = b"--abcdefabcdxabcde-abc u%2Fv+w u\\/v w u\\u002";
        let whole = s.mask_stream(&mut Vec::new(), text, true);
        assert_eq!(whole, b"--********x****e-abc **** **** u\\u002");
        for cut in 0..=text.len() {
            let mut held = Vec::new();
            let mut out = s.mask_stream(&mut held, &text[..cut], false);
            out.extend(s.mask_stream(&mut held, &text[cut..], true));
            assert_eq!(out, whole, "cut at {cut}");
        }
    }
}
