//! The contract for programs: one JSON object a line on standard output, everything else is log.

use std::{collections::BTreeMap, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::Value;

use super::{Reader, Said, Step};
use crate::measure::{Finite, Labels};

/// Reads JSON lines. `{"step": …}`, `{"metric": …}`, `{"fact": …}` and `{"note": …}` say something, other lines
/// are log. A line that begins like one of these and is no JSON, or holds NaN or a negative time, is unreadable.
#[derive(Debug, Default)]
pub struct JsonLines;

#[derive(Deserialize)]
struct StepLine {
    step: u64,
    seconds: f64,
    samples: Option<f64>,
    tokens: Option<f64>,
    world: Option<u32>,
    rank: Option<u32>,
    data_seconds: Option<f64>,
    comm_seconds: Option<f64>,
}

#[derive(Deserialize)]
struct MetricLine {
    metric: String,
    value: f64,
    unit: Option<String>,
    #[serde(default, deserialize_with = "distinct")]
    labels: BTreeMap<String, Value>,
}

#[derive(Deserialize)]
struct FactLine {
    fact: String,
    value: Option<Value>,
    unreadable: Option<String>,
}

#[derive(Deserialize)]
struct NoteLine {
    note: String,
}

/// The longest name of a metric or label.
const LONGEST_NAME: usize = 128;

impl Reader for JsonLines {
    fn line(&mut self, line: &str, said: &mut Vec<Said>) {
        let line = line.trim();
        if !line.starts_with('{') {
            return;
        }
        let shown: String = line.chars().filter(|c| !c.is_control()).take(120).collect();
        let unreadable = |why: String| Said::Unreadable(format!("{why}: {shown}"));
        let first_key = line[1..].trim_start();
        let is = |key: &str| first_key.starts_with(key);
        let parsed: Value = match serde_json::from_str(line) {
            Ok(value) => value,
            Err(e) => {
                if ["\"step\"", "\"metric\"", "\"fact\""].into_iter().any(is) {
                    said.push(unreadable(format!("no JSON ({e})")));
                }
                return;
            }
        };
        let has = |key: &str| parsed.get(key).is_some();
        // From the line and not from the value, in which the last of two equal keys has won.
        let read = if has("step") {
            from_line(line).and_then(|line| step(&line))
        } else if has("metric") {
            from_line(line).and_then(metric).map(Some)
        } else if has("fact") {
            from_line(line).map(|f: FactLine| {
                Some(Said::Fact { name: f.fact, value: f.value, unreadable: f.unreadable })
            })
        } else if has("note") {
            from_line(line).map(|n: NoteLine| Some(Said::Note(n.note)))
        } else {
            Ok(None)
        };
        match read {
            Ok(Some(what)) => said.push(what),
            Ok(None) => {}
            Err(why) => said.push(unreadable(why)),
        }
    }
}

fn from_line<'l, T: Deserialize<'l>>(line: &'l str) -> Result<T, String> {
    serde_json::from_str(line).map_err(|e| e.to_string())
}

/// A map without two equal keys.
fn distinct<'de, D: Deserializer<'de>>(d: D) -> Result<BTreeMap<String, Value>, D::Error> {
    struct Distinct;
    impl<'de> Visitor<'de> for Distinct {
        type Value = BTreeMap<String, Value>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a map")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::new();
            while let Some((key, value)) = map.next_entry::<String, Value>()? {
                if all.insert(key.clone(), value).is_some() {
                    return Err(A::Error::custom(format_args!("duplicate label `{key}`")));
                }
            }
            Ok(all)
        }
    }
    d.deserialize_map(Distinct)
}

/// A step of the whole job; a line with `rank` is that rank's own and says nothing of the job.
fn step(line: &StepLine) -> Result<Option<Said>, String> {
    let times = [Some(line.seconds), line.data_seconds, line.comm_seconds, line.samples, line.tokens];
    if times.into_iter().flatten().any(|t| !t.is_finite() || t < 0.0) {
        return Err("a negative time or amount".to_owned());
    }
    if line.rank.is_some() {
        return Ok(None);
    }
    let &StepLine { step, seconds, samples, tokens, world, data_seconds, comm_seconds, .. } = line;
    Ok(Some(Said::Step(Step { step, seconds, samples, tokens, world, data_seconds, comm_seconds })))
}

fn metric(line: MetricLine) -> Result<Said, String> {
    let value = Finite::new(line.value).map_err(|e| e.to_string())?;
    let name_ok = |name: &str| {
        !name.is_empty()
            && name.len() <= LONGEST_NAME
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-:/".contains(c))
    };
    if !name_ok(&line.metric) {
        return Err("a metric's name is made of letters, digits and _-:/".to_owned());
    }
    let mut labels = Labels::none();
    for (key, value) in line.labels {
        let text = match value {
            Value::String(text) => text,
            Value::Null | Value::Array(_) | Value::Object(_) => {
                return Err(format!("label `{key}` is no plain value"));
            }
            plain => plain.to_string(),
        };
        let plain = text.chars().all(|c| !c.is_control() && !"{},=".contains(c));
        if !name_ok(&key) || text.len() > LONGEST_NAME || !plain {
            return Err("a label's value is plain text without {},=".to_owned());
        }
        labels = labels.with(key, text);
    }
    let unit = line.unit.map(|unit| {
        let Ok(unit) = unit.chars().filter(|c| !c.is_control()).take(32).collect::<String>().parse();
        unit
    });
    Ok(Said::Number { name: line.metric, value, unit, labels, better: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Unit;

    fn read(line: &str) -> Vec<Said> {
        let mut said = Vec::new();
        JsonLines.line(line, &mut said);
        said
    }

    #[test]
    fn a_step_of_the_job() {
        let said = read(r#"{"step": 7, "seconds": 0.41, "samples": 256, "later": {"x": 1}}"#);
        let step = Step {
            step: 7,
            seconds: 0.41,
            samples: Some(256.0),
            tokens: None,
            world: None,
            data_seconds: None,
            comm_seconds: None,
        };
        assert_eq!(said, [Said::Step(step)]);
        assert!(read(r#"{"step": 7, "seconds": 0.41, "rank": 1}"#).is_empty(), "one rank's own");
    }

    #[test]
    fn a_number_with_labels() {
        let said = read(r#"{"metric": "loss", "value": 2.1, "unit": "1", "labels": {"step": 50}}"#);
        let [Said::Number { name, value, unit, labels, .. }] = said.as_slice() else { panic!("{said:?}") };
        assert_eq!((name.as_str(), value.get(), unit), ("loss", 2.1, &Some(Unit::RATIO)));
        assert_eq!(labels.to_string(), "{step=50}");
    }

    #[test]
    fn log_lines_say_nothing() {
        for line in ["", "step 7", "[1, 2]", "{}", r#"{"epoch": 3}"#, "{half", "Loading {x}"] {
            assert!(read(line).is_empty(), "{line}");
        }
    }

    #[test]
    fn numbers_that_are_none_do_not_enter() {
        for line in [
            r#"{"metric": "loss", "value": NaN}"#,
            r#"{"metric": "loss", "value": Infinity}"#,
            r#"{"metric": "loss", "value": 1e999}"#,
            r#"{"metric": "loss", "value": null}"#,
            r#"{"metric": "", "value": 1}"#,
            r#"{"metric": "a b", "value": 1}"#,
            r#"{"metric": "a", "value": 1, "labels": {"x": "{"}}"#,
            r#"{"step": 1, "seconds": -0.5}"#,
            r#"{"step": -1, "seconds": 0.5}"#,
            r#"{"step": 1}"#,
            r#"{"metric": "a", "value": 1, "value": 2}"#,
            r#"{"metric": "a", "metric": "b", "value": 2}"#,
            r#"{"metric": "a", "value": 2, "labels": {"x": 1, "x": 1}}"#,
            r#"{"step": 1, "seconds": 1, "seconds": 0.1}"#,
            r#"{"fact": "a", "value": 1, "value": 2}"#,
            r#"{"step": 1, "seconds": 0.5"#,
        ] {
            let said = read(line);
            assert!(matches!(said.as_slice(), [Said::Unreadable(_)]), "{line}: {said:?}");
        }
    }
}
