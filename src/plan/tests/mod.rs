//! Tests of loading as a whole: from text to findings.

#![allow(
    clippy::unwrap_used,
    clippy::float_cmp,
    clippy::format_push_string,
    reason = "a failing test may panic"
)]

mod fixtures;
mod mutants;
mod whole;

use super::*;
use crate::findings::Form;

/// An environment with one variable.
pub(super) fn env(name: &str) -> Option<String> {
    (name == "HOST").then(|| "gpu-1".to_owned())
}

/// Built-in rubrics as tests have them.
pub(super) fn builtin(name: &str) -> Option<&'static str> {
    match name {
        "quarterly-100" => Some(include_str!("rubric.yaml")),
        "asking" => Some(include_str!("asking.yaml")),
        _ => None,
    }
}

/// Options of `check`, on a fixed day.
pub(super) fn options() -> Options<'static> {
    Options {
        set: Vec::new(),
        env: &env,
        unset: Unset::Warning,
        read_file: &|name| Err(format!("{name} is not there")),
        has_file: &|name| !name.contains("missing"),
        builtin_rubric: &builtin,
        today: "2026-02-01".parse().ok(),
    }
}

/// All findings of a text as `check` prints them.
pub(super) fn findings_of(text: &str) -> String {
    load("p.yaml", text, &options()).render(Form::Human, "p.yaml", text)
}
