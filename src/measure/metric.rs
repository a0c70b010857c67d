//! Metrics as stages declare them, and their identity in a run.

use std::{collections::BTreeMap, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Unit;

/// Which way a metric gets better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither: it describes.
    Neither,
}

/// A metric that a stage declares: a constant beside the stage, the single place where its name stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Metric {
    /// The quantity, without the stage: `tokens_per_second`.
    pub name: &'static str,
    /// The unit in which every sample is given.
    pub unit: Unit,
    /// Which way it gets better.
    pub better: Better,
    /// One sentence for `planrun stages` and the reference.
    pub doc: &'static str,
}

impl Metric {
    /// Declares a metric.
    pub const fn new(name: &'static str, unit: Unit, better: Better, doc: &'static str) -> Self {
        Self { name, unit, better, doc }
    }
}

/// Labels that tell apart series of one metric, such as `gpus=8`; ordered, so that their text is an identity.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Labels(pub BTreeMap<String, String>);

impl Labels {
    /// No labels.
    pub fn none() -> Self {
        Self::default()
    }

    /// One label more.
    #[must_use]
    pub fn with(mut self, key: impl Into<String>, value: impl fmt::Display) -> Self {
        self.0.insert(key.into(), value.to_string());
        self
    }

    /// Whether every label of `self` stands in `of` with the same value: how a query selects series.
    pub fn within(&self, of: &Self) -> bool {
        self.0.iter().all(|(k, v)| of.0.get(k) == Some(v))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Labels {
    /// `{gpus=8,op=all_reduce}`, or nothing when there are none.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return Ok(());
        }
        f.write_str("{")?;
        for (i, (k, v)) in self.0.iter().enumerate() {
            write!(f, "{}{k}={v}", if i == 0 { "" } else { "," })?;
        }
        f.write_str("}")
    }
}

impl FromIterator<(String, String)> for Labels {
    fn from_iter<T: IntoIterator<Item = (String, String)>>(iter: T) -> Self {
        Self(iter.into_iter().collect())
    }
}

/// A path that names metrics in a plan: `stage.quantity{labels}`; inside a stage's `expect` the stage is left out.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MetricPath {
    /// The stage id or kind; `None` where the context gives it.
    pub stage: Option<String>,
    /// The quantity.
    pub name: String,
    /// Labels that must match; others may be there too.
    pub labels: Labels,
}

impl fmt::Display for MetricPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stage) = &self.stage {
            write!(f, "{stage}.")?;
        }
        write!(f, "{}{}", self.name, self.labels)
    }
}

impl FromStr for MetricPath {
    type Err = String;

    /// # Errors
    /// A fragment that says what is wrong with the path.
    fn from_str(s: &str) -> Result<Self, String> {
        let (path, labels) = match s.split_once('{') {
            None => (s, Labels::none()),
            Some((path, rest)) => {
                let inner = rest
                    .strip_suffix('}')
                    .ok_or_else(|| format!("`{s}` has `{{` without `}}` at its end"))?;
                let mut labels = BTreeMap::new();
                for pair in inner.split(',').map(str::trim).filter(|p| !p.is_empty()) {
                    let (k, v) = pair
                        .split_once('=')
                        .ok_or_else(|| format!("`{pair}` in `{s}` is no label: write `gpus=8`"))?;
                    if labels.insert(k.trim().to_owned(), v.trim().to_owned()).is_some() {
                        return Err(format!("label `{}` stands twice in `{s}`", k.trim()));
                    }
                }
                (path, Labels(labels))
            }
        };
        let (stage, name) = match path.split_once('.') {
            Some((stage, name)) => (Some(stage.to_owned()), name),
            None => (None, path),
        };
        if name.is_empty() || stage.as_deref() == Some("") {
            return Err(format!(
                "`{s}` names no metric: write `stage.quantity` or `stage.quantity{{gpus=8}}`"
            ));
        }
        Ok(Self { stage, name: name.to_owned(), labels })
    }
}

impl Serialize for MetricPath {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MetricPath {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl JsonSchema for MetricPath {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "MetricPath".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "stage.quantity{labels}" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_back_as_written() {
        for text in ["score", "gpt-1gpu.tokens_per_second", "scaling.speedup{gpus=8}", "a.b{c=1,d=x}"] {
            assert_eq!(text.parse::<MetricPath>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_path_without_a_quantity_is_refused() {
        for text in ["", "scaling.", ".speedup", "a.b{gpus=8", "a.b{gpus}", "a.b{g=1,g=2}"] {
            assert!(text.parse::<MetricPath>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_query_selects_series_with_more_labels() {
        let query = Labels::none().with("gpus", 8);
        assert!(query.within(&Labels::none().with("gpus", 8).with("device", "cpu")));
        assert!(!query.within(&Labels::none().with("gpus", 4)));
        assert!(Labels::none().within(&query));
    }
}
