//! The lines that a probe prints, and the set of facts that they carry.
//!
//! Here: writing and reading fact, note and metric lines. Not here: where a fact comes from.
//!
//! Invariant: "there is none", "could not be read" and "was not asked" stay three different things
//! from the probe to the reader.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Map, Value, json};

use super::ProbeError;
use super::root::Missing;
use super::text::clean;

/// What is known about one property of the host.
#[derive(Debug, Clone, PartialEq)]
pub enum Fact {
    /// It was read: a text, a number or a boolean.
    Value(Value),
    /// It was looked for and there is none (no limit, no such device, not installed).
    Nothing,
    /// It could not be looked at; the reason in words.
    Unreadable(String),
}

/// Facts by dotted name, such as `cpu.model`.
///
/// # Units
/// The end of a name tells the unit: `_bytes`, `_seconds`, `_cores`, `_share` (0 to 1),
/// `_bits_per_second`; counts have none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Facts {
    by_name: BTreeMap<String, Fact>,
}

impl Facts {
    /// No facts at all.
    pub fn new() -> Self {
        Self::default()
    }

    /// Every fact, by name, in order of the names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Fact)> {
        self.by_name.iter().map(|(name, fact)| (name.as_str(), fact))
    }

    /// The fact of this name, or `None` where nobody looked.
    pub fn get(&self, name: &str) -> Option<&Fact> {
        self.by_name.get(name)
    }

    /// The number of this name, if there is one.
    pub fn number(&self, name: &str) -> Option<f64> {
        match self.get(name)? {
            Fact::Value(value) => value.as_f64(),
            _ => None,
        }
    }

    /// The text of this name, if there is one.
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.get(name)? {
            Fact::Value(value) => value.as_str(),
            _ => None,
        }
    }

    /// The boolean of this name, if there is one.
    pub fn flag(&self, name: &str) -> Option<bool> {
        match self.get(name)? {
            Fact::Value(value) => value.as_bool(),
            _ => None,
        }
    }

    /// True when it was looked for and there is none.
    pub fn is_nothing(&self, name: &str) -> bool {
        self.get(name) == Some(&Fact::Nothing)
    }

    /// Why this fact is unknown, in words; for one that is known, that it is of another kind.
    pub fn why_unknown(&self, name: &str) -> String {
        match self.get(name) {
            Some(Fact::Unreadable(reason)) => format!("{name}: {reason}"),
            Some(Fact::Nothing) => format!("{name}: there is none"),
            Some(Fact::Value(_)) => format!("{name}: has an unexpected form"),
            None => format!("{name}: was not looked at"),
        }
    }

    /// Sets a fact to a value; texts are cleaned and capped at 1 kB.
    pub fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.by_name.insert(name.into(), fact_of(value.into()));
    }

    /// Notes that it was looked for and there is none.
    pub fn set_nothing(&mut self, name: impl Into<String>) {
        self.by_name.insert(name.into(), Fact::Nothing);
    }

    /// Notes that it could not be looked at, and why.
    pub fn set_unreadable(&mut self, name: impl Into<String>, reason: impl AsRef<str>) {
        self.by_name.insert(name.into(), Fact::Unreadable(clean(reason.as_ref().as_bytes())));
    }

    /// Sets a fact from the outcome of a look: found, not there, or not readable.
    pub fn put<V: Into<Value>>(&mut self, name: impl Into<String>, found: Result<V, Missing>) {
        match found {
            Ok(value) => self.set(name, value),
            Err(Missing::NotThere) => self.set_nothing(name),
            Err(Missing::Unreadable(reason)) => self.set_unreadable(name, reason),
        }
    }

    /// Like [`Facts::put`] for what every host has: where it is not there, it is hidden.
    pub fn put_always<V: Into<Value>>(&mut self, name: impl Into<String>, found: Result<V, Missing>) {
        match found {
            Err(Missing::NotThere) => self.set_unreadable(name, "hidden: there is no such file on this host"),
            other => self.put(name, other),
        }
    }

    /// Takes in one line of a probe's output; false when it is no fact line.
    pub fn accept(&mut self, line: &Value) -> bool {
        let Some(name) = line.get("fact").and_then(Value::as_str) else { return false };
        let name = clean(name.as_bytes());
        match (line.get("unreadable").and_then(Value::as_str), line.get("value")) {
            (Some(reason), _) => self.set_unreadable(name, reason),
            (None, Some(Value::Null)) => self.set_nothing(name),
            (None, Some(value)) => self.set(name, value.clone()),
            (None, None) => return false,
        }
        true
    }

    /// Adds the facts of `other`, which win.
    pub fn extend(&mut self, other: Self) {
        self.by_name.extend(other.by_name);
    }
}

fn fact_of(value: Value) -> Fact {
    match value {
        Value::Null => Fact::Nothing,
        Value::String(text) => Fact::Value(clean(text.as_bytes()).into()),
        Value::Array(_) | Value::Object(_) => Fact::Value(clean(value.to_string().as_bytes()).into()),
        Value::Number(number) => Fact::Value(whole(number)),
        Value::Bool(flag) => Fact::Value(flag.into()),
    }
}

/// Writes a whole number without a point, whichever type it was computed in.
fn whole(number: serde_json::Number) -> Value {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match number.as_f64() {
        Some(float) if number.is_f64() && float.fract() == 0.0 && float.abs() < EXACT => {
            Value::from(float as i64)
        }
        _ => Value::Number(number),
    }
}

/// Writes a probe's JSON lines.
pub struct Lines<'a> {
    out: &'a mut dyn Write,
}

impl std::fmt::Debug for Lines<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lines").finish_non_exhaustive()
    }
}

impl<'a> Lines<'a> {
    /// Lines that go to `out`.
    pub fn new(out: &'a mut dyn Write) -> Self {
        Self { out }
    }

    /// Writes every fact of a set and flushes.
    pub fn facts(&mut self, facts: &Facts) -> Result<(), ProbeError> {
        for (name, fact) in facts.iter() {
            self.line(&match fact {
                Fact::Value(value) => json!({"fact": name, "value": value}),
                Fact::Nothing => json!({"fact": name, "value": null}),
                Fact::Unreadable(reason) => json!({"fact": name, "unreadable": reason}),
            })?;
        }
        self.flush()
    }

    /// Writes a remark for people.
    pub fn note(&mut self, note: &str) -> Result<(), ProbeError> {
        self.line(&json!({"note": clean(note.as_bytes())}))
    }

    /// Writes one number; one that is not finite is left out, since it measures nothing.
    pub fn metric(
        &mut self,
        name: &str,
        value: f64,
        unit: &str,
        labels: &[(&str, &str)],
    ) -> Result<(), ProbeError> {
        if !value.is_finite() {
            return Ok(());
        }
        let mut line = Map::new();
        line.insert("metric".into(), name.into());
        line.insert("value".into(), value.into());
        line.insert("unit".into(), unit.into());
        if !labels.is_empty() {
            let labels = labels.iter().map(|(key, label)| ((*key).to_owned(), Value::from(*label))).collect();
            line.insert("labels".into(), Value::Object(labels));
        }
        self.line(&Value::Object(line))
    }

    /// Hands what was written to the reader.
    pub fn flush(&mut self) -> Result<(), ProbeError> {
        self.out.flush().map_err(|source| ProbeError::Output { source })
    }

    fn line(&mut self, line: &Value) -> Result<(), ProbeError> {
        writeln!(self.out, "{line}").map_err(|source| ProbeError::Output { source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_kinds_of_knowing_survive_the_wire() {
        let mut facts = Facts::new();
        facts.set("cpu.model", "AMD\x1b EPYC");
        facts.set("cpu.quota_cores", 7.5);
        facts.set_nothing("memory.limit_bytes");
        facts.set_unreadable("virt.vendor", "permission denied");
        let mut out = Vec::new();
        Lines::new(&mut out).facts(&facts).unwrap();
        let mut back = Facts::new();
        for line in String::from_utf8(out).unwrap().lines() {
            assert!(back.accept(&serde_json::from_str(line).unwrap()));
        }
        assert_eq!(back, facts);
        assert_eq!(back.text("cpu.model"), Some("AMD EPYC"));
        assert!(back.is_nothing("memory.limit_bytes"));
        assert!(!back.is_nothing("virt.vendor") && back.get("nobody.looked").is_none());
        assert!(back.why_unknown("virt.vendor").contains("permission denied"));
    }

    #[test]
    fn other_lines_are_no_facts() {
        let mut facts = Facts::new();
        for line in [json!({"note": "x"}), json!({"fact": 3}), json!({"fact": "a"}), json!([1])] {
            assert!(!facts.accept(&line), "{line}");
        }
    }

    #[test]
    fn a_number_that_is_none_is_not_printed() {
        let mut out = Vec::new();
        let mut lines = Lines::new(&mut out);
        lines.metric("a", f64::NAN, "1", &[]).unwrap();
        lines.metric("b", 0.5, "1", &[("scope", "host")]).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text, "{\"metric\":\"b\",\"value\":0.5,\"unit\":\"1\",\"labels\":{\"scope\":\"host\"}}\n");
    }
}
