//! Values that look like keys. A plan is checked into git and holds no secret; the value is never shown.

use super::Check;
use crate::plan::tree::{Node, Value};

/// Beginnings of well-known tokens, and how long such a token is at least.
const BEGINNINGS: [(&str, usize); 14] = [
    ("AKIA", 20),
    ("ASIA", 20),
    ("LTAI", 16),
    ("AKID", 20),
    ("AIza", 30),
    ("ghp_", 30),
    ("gho_", 30),
    ("github_pat_", 30),
    ("glpat-", 20),
    ("xoxb-", 20),
    ("xoxp-", 20),
    ("sk-", 24),
    ("hf_", 24),
    ("eyJ", 60),
];

/// The shortest of them.
const SHORTEST: usize = 16;

/// Names of keys whose values are secrets.
const SECRET_NAMES: [&str; 9] =
    ["token", "secret", "password", "passwd", "passphrase", "apikey", "credential", "credentials", "key"];

impl Check<'_> {
    pub(super) fn key_like_values(&self) {
        for (key, node) in self.root.entries() {
            // These are names of variables, checked as such.
            if key.text != "secrets" {
                self.look(&key.text, node);
            }
        }
    }

    fn look(&self, key: &str, node: &Node) {
        match &node.value {
            Value::Map(entries) => entries.iter().for_each(|(key, node)| self.look(&key.text, node)),
            Value::Seq(items) => items.iter().for_each(|item| self.look(key, item)),
            Value::Scalar { text, .. }
                if is_known_token(text) || (is_random(text) && is_secret_name(key)) =>
            {
                let help =
                    "take it from the environment: \"${NAME}\", and list the name under `secrets`".to_owned();
                self.context.warning_with(
                    node.place,
                    "this looks like a key, and a plan is no place for one",
                    Some(help),
                );
            }
            Value::Scalar { .. } | Value::Null => {}
        }
    }
}

/// A private key, or a word with the form of a well-known token.
fn is_known_token(text: &str) -> bool {
    // Most values of a plan are shorter than any token.
    text.len() >= SHORTEST && is_long_token(text)
}

fn is_long_token(text: &str) -> bool {
    text.contains("-----BEGIN ")
        || text.split(|c: char| c.is_whitespace() || "\"'=:,;".contains(c)).any(|word| {
            BEGINNINGS.iter().any(|(beginning, least)| {
                word.len() >= *least
                    && word.starts_with(beginning)
                    && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
                    && word.bytes().any(|b| b.is_ascii_digit())
            })
        })
}

fn is_secret_name(key: &str) -> bool {
    let key = key.to_ascii_lowercase().replace('-', "_");
    key.split('_').any(|part| SECRET_NAMES.contains(&part)) || key.contains("api_key")
}

/// Long, in one word, of letters and digits as base64 or hexadecimal have them.
fn is_random(text: &str) -> bool {
    text.len() >= 16
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=_-".contains(&b))
        && text.bytes().any(|b| b.is_ascii_digit())
        && text.bytes().any(|b| b.is_ascii_alphabetic())
}
