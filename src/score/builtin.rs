//! The rubrics that come with planrun, as text.
//!
//! They are data under `plans/rubrics/`; a plan may name one, or bring its own.

const ALL: [(&str, &str); 2] = [
    ("quarterly-100", include_str!("../../plans/rubrics/quarterly-100.yaml")),
    ("five-dimensions", include_str!("../../plans/rubrics/five-dimensions.yaml")),
];

/// The names of all built-in rubrics.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|(name, _)| *name)
}

/// The YAML text of a built-in rubric.
pub fn text(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
