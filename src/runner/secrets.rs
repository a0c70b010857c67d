//! Values that must not be written anywhere, and how they are masked.
//!
//! Where two secrets begin alike the longer one is masked. A secret is also known as JSON would write it, as ssh and
//! [`printable`] show it, and by its lines where it has several.

use std::collections::BTreeMap;

use crate::{
    measure::{Labels, Unit},
    outcome::printable,
    record::CheckResult,
};

/// The shortest value that is masked; shorter ones would mask half of every log.
const SHORTEST: usize = 4;

/// The shortest line of a longer secret that is masked by itself.
const SHORTEST_LINE: usize = 8;

/// What stands in a secret's place.
const MASK: &str = "****";

/// The secrets of a run, the longest first.
#[derive(Default)]
pub struct Secrets(Vec<Vec<u8>>);

impl Secrets {
    /// The secrets of these values.
    pub fn new(values: &[String]) -> Self {
        let mut all = Vec::new();
        for value in values {
            all.push(value.clone());
            if value.contains('\n') {
                all.extend(
                    value.lines().map(str::trim).filter(|l| l.len() >= SHORTEST_LINE).map(str::to_owned),
                );
            }
        }
        let escaped =
            |value: &String| serde_json::to_string(value).ok().map(|s| s[1..s.len() - 1].to_owned());
        // ssh says the names of hosts in lower case.
        let shown = |value: &String| [printable(value), value.to_ascii_lowercase()];
        all.extend(all.clone().iter().flat_map(shown));
        all.extend(all.clone().iter().filter_map(escaped));
        let mut all: Vec<Vec<u8>> =
            all.into_iter().map(String::into_bytes).filter(|s| s.len() >= SHORTEST).collect();
        all.sort_by(|a, b| b.len().cmp(&a.len()).then(a.cmp(b)));
        all.dedup();
        Self(all)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A piece of a stream with every secret masked. What may be the beginning of one is kept in `held` for the next
    /// piece, unless this is the end.
    pub(super) fn mask_stream(&self, held: &mut Vec<u8>, piece: &[u8], end: bool) -> Vec<u8> {
        let mut text = std::mem::take(held);
        text.extend_from_slice(piece);
        let longest = self.0.first().map_or(0, Vec::len);
        let mut out = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let rest = &text[at..];
            if !end
                && rest.len() < longest
                && self.0.iter().any(|s| s.len() > rest.len() && s.starts_with(rest))
            {
                held.extend_from_slice(rest);
                break;
            }
            if let Some(secret) = self.0.iter().find(|s| rest.starts_with(s)) {
                out.extend_from_slice(MASK.as_bytes());
                at += secret.len();
            } else {
                out.push(rest[0]);
                at += 1;
            }
        }
        out
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
            let begins = |n: usize| self.0.iter().any(|s| n < s.len() && part.as_bytes().ends_with(&s[..n]));
            let longest = self.0.first().map_or(0, Vec::len);
            if let Some(n) = (SHORTEST..longest).rev().find(|n| begins(*n)) {
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
    fn a_secret_is_known_as_ssh_and_our_own_texts_show_it() {
        let s = secrets(&["Two  Words\u{7}", "abcdefgh"]);
        assert_eq!(s.mask("Two Words / two  words\u{7}"), "**** / ****");
        assert_eq!(s.mask("x abcd… abc… abcdefg… abcde"), "x ****… abc… ****… abcde");
    }

    #[test]
    fn pieces_do_not_matter() {
        let s = secrets(&["abcd", "abcdef", "cdx"]);
        let text = b"--abcdefabcdxabcde-abc";
        let whole = s.mask_stream(&mut Vec::new(), text, true);
        assert_eq!(whole, b"--********x****e-abc");
        for cut in 0..=text.len() {
            let mut held = Vec::new();
            let mut out = s.mask_stream(&mut held, &text[..cut], false);
            out.extend(s.mask_stream(&mut held, &text[cut..], true));
            assert_eq!(out, whole, "cut at {cut}");
        }
    }
}
