//! What numbers are held against: bounds of expectations, gates and requirements, and levels of rules.
//!
//! Unlike a quantity of a plan, either takes the unit of the metric that it meets, and may leave it out where the
//! metric has none that could be mistaken.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{number, split_number};
use crate::measure::Unit;

/// How a bound compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    /// At least.
    AtLeast,
    /// At most.
    AtMost,
    /// More than.
    Above,
    /// Less than.
    Below,
    /// Exactly.
    Equal,
}

impl Comparison {
    const ALL: [(&'static str, Self); 5] = [
        (">=", Self::AtLeast),
        ("<=", Self::AtMost),
        ("==", Self::Equal),
        (">", Self::Above),
        ("<", Self::Below),
    ];

    /// Whether `value` meets the bound `limit`, both in one unit, unrounded.
    #[expect(clippy::float_cmp, reason = "`==` in a plan means exactly that number")]
    pub fn holds(self, value: f64, limit: f64) -> bool {
        match self {
            Self::AtLeast => value >= limit,
            Self::AtMost => value <= limit,
            Self::Above => value > limit,
            Self::Below => value < limit,
            Self::Equal => value == limit,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(_, c)| c == self).map_or("", |(text, _)| text))
    }
}

/// A bound on a metric or on a property: `>= 0.35`, `<= 2 %`, `< 180 s`, or a word.
#[derive(Debug, Clone, PartialEq)]
pub enum Bound {
    /// A limit with its comparison; `unit` is `None` where the plan left it out.
    Number {
        /// The comparison.
        comparison: Comparison,
        /// The limit, in `unit`.
        limit: f64,
        /// The unit as written.
        unit: Option<Unit>,
    },
    /// Equality with a word.
    Word(String),
}

impl FromStr for Bound {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        for (text, comparison) in Comparison::ALL {
            let Some(rest) = s.strip_prefix(text) else { continue };
            let rest = rest.trim();
            let (sign, rest) = rest.strip_prefix('-').map_or((1.0, rest), |r| (-1.0, r));
            let (n, unit) = split_number(rest);
            let limit = number(n).map_err(|_| format!("`{s}` is no bound: write \"{text} 7\""))? * sign;
            let unit = (!unit.is_empty()).then(|| unit.parse::<Unit>()).transpose().unwrap_or_default();
            return Ok(Self::Number { comparison, limit, unit });
        }
        if s.is_empty() {
            return Err("an empty bound: write \">= 7\", \"<= 2 %\" or a word".to_owned());
        }
        if s.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
            return Err(format!("`{s}` has no comparison: write \">= {s}\", \"<= {s}\" or \"== {s}\""));
        }
        Ok(Self::Word(s.to_owned()))
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number { comparison, limit, unit: Some(unit) } => write!(f, "{comparison} {limit} {unit}"),
            Self::Number { comparison, limit, unit: None } => write!(f, "{comparison} {limit}"),
            Self::Word(word) => f.write_str(word),
        }
    }
}
quantity!(
    Bound,
    "a bound such as \">= 7\", \"<= 2 %\" or a word",
    r"^((>=|<=|==|>|<)\s*-?[0-9.eE+]+(\s*\S+)?|[^\d<>=-].*)$"
);

impl Bound {
    /// The limit in the unit of the metric, or why the bound cannot be compared with it.
    ///
    /// A bound without a unit is accepted only where the metric has none that could be mistaken (a share, a
    /// multiple, a count); `500` against bytes per second is refused.
    ///
    /// # Errors
    /// A fragment that names the units that would do.
    pub fn limit_in(&self, metric: &Unit) -> Result<(Comparison, f64), String> {
        let Self::Number { comparison, limit, unit } = self else {
            return Err(format!("`{self}` is a word; a number with `{metric}` is wanted"));
        };
        match unit {
            None if [Unit::RATIO, Unit::TIMES, Unit::COUNT].contains(metric) => Ok((*comparison, *limit)),
            None => {
                Err(format!("`{self}` has no unit: the metric is in {metric}, write \"{self} {metric}\""))
            }
            Some(unit) => {
                if let Some(limit) = unit.convert(*limit, metric) {
                    Ok((*comparison, limit))
                } else {
                    let others = metric.alternatives();
                    let others = if others.is_empty() { metric.to_string() } else { others.join(", ") };
                    Err(format!("`{unit}` in `{self}` does not fit a metric in {metric}: write {others}"))
                }
            }
        }
    }
}

/// A level of a metric in a rule: a bare number, or text with a unit such as `70 %` or `180 s`.
#[derive(Debug, Clone, PartialEq)]
pub struct Level {
    /// The number, in `unit`.
    pub value: f64,
    /// The unit as written; `None`: the metric's own, which must be one that cannot be mistaken.
    pub unit: Option<Unit>,
}

impl Level {
    /// The level in the unit of the metric.
    ///
    /// # Errors
    /// As [`Bound::limit_in`].
    pub fn value_in(&self, metric: &Unit) -> Result<f64, String> {
        let bound =
            Bound::Number { comparison: Comparison::Equal, limit: self.value, unit: self.unit.clone() };
        bound.limit_in(metric).map(|(_, value)| value).map_err(|message| message.replace("== ", ""))
    }
}

impl FromStr for Level {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let (sign, rest) = s.strip_prefix('-').map_or((1.0, s), |rest| (-1.0, rest));
        let (n, unit) = split_number(rest);
        let value =
            number(n).map_err(|_| format!("`{s}` is no level: write 7, \"70 %\" or \"180 s\""))? * sign;
        let Ok(unit) = unit.parse::<Unit>();
        Ok(Self { value, unit: (!unit.as_str().is_empty()).then_some(unit) })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.unit {
            Some(unit) => write!(f, "{} {unit}", self.value),
            None => write!(f, "{}", self.value),
        }
    }
}

impl<'de> Deserialize<'de> for Level {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct LevelVisitor;
        impl serde::de::Visitor<'_> for LevelVisitor {
            type Value = Level;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or text with a unit such as 70 % or 180 s")
            }
            fn visit_i64<E>(self, v: i64) -> Result<Level, E> {
                Ok(Level { value: v as f64, unit: None })
            }
            fn visit_u64<E>(self, v: u64) -> Result<Level, E> {
                Ok(Level { value: v as f64, unit: None })
            }
            fn visit_f64<E>(self, v: f64) -> Result<Level, E> {
                Ok(Level { value: v, unit: None })
            }
            fn visit_str<E: serde::de::Error>(self, s: &str) -> Result<Level, E> {
                s.trim().parse().map_err(E::custom)
            }
        }
        d.deserialize_any(LevelVisitor)
    }
}

impl Serialize for Level {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self.unit {
            Some(_) => s.collect_str(self),
            None => s.serialize_f64(self.value),
        }
    }
}

impl JsonSchema for Level {
    fn schema_name() -> Cow<'static, str> {
        "Level".into()
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["number", "string"], "description": "a number, or text with a unit" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_read_back_as_written() {
        for text in [">= 0.35", "<= 2 %", "< 180 s", "nvlink"] {
            assert_eq!(text.parse::<Bound>().unwrap().to_string(), text);
        }
    }

    /// `500` against a bandwidth, and `500 mb/s` (milli? bit?), are refused; MB/s and MiB/s differ.
    #[test]
    fn bounds_meet_metrics_in_units() {
        let limit = |s: &str| s.parse::<Bound>().unwrap().limit_in(&Unit::BYTES_PER_SECOND);
        assert_eq!(limit(">= 500 MB/s"), Ok((Comparison::AtLeast, 5e8)));
        assert_eq!(limit(">= 500 MiB/s"), Ok((Comparison::AtLeast, 524_288_000.0)));
        assert_eq!(limit(">= 4 Gb/s"), Ok((Comparison::AtLeast, 5e8)));
        for refused in [">= 500 MBps", ">= 500", ">= 500 mb/s", "nvlink"] {
            assert!(limit(refused).is_err(), "{refused}");
        }
    }

    #[test]
    fn bounds_need_a_comparison() {
        assert!("7".parse::<Bound>().is_err());
        assert!("".parse::<Bound>().is_err());
        assert!(">= x".parse::<Bound>().is_err());
    }
}
