//! Units of metrics, and which of them may be compared.
//!
//! A unit is the text that a reader sees (`s`, `B/s`, `tokens/s`). Known units have a dimension and a scale, so
//! that `486 MiB/s` meets `>= 500 MB/s` in bytes per second and never by its label. Programs may bring units of
//! their own: these compare only with themselves. No unit ever turns into another one silently.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The unit of a metric, as printed.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Unit(Cow<'static, str>);

/// Known units: text, dimension, scale to the dimension's base unit.
const KNOWN: &[(&str, &str, f64)] = &[
    ("ns", "time", 1e-9),
    ("us", "time", 1e-6),
    ("ms", "time", 1e-3),
    ("s", "time", 1.0),
    ("m", "time", 60.0),
    ("min", "time", 60.0),
    ("h", "time", 3600.0),
    ("d", "time", 86_400.0),
    ("B", "data", 1.0),
    ("kB", "data", 1e3),
    ("MB", "data", 1e6),
    ("GB", "data", 1e9),
    ("TB", "data", 1e12),
    ("KiB", "data", 1_024.0),
    ("MiB", "data", 1_048_576.0),
    ("GiB", "data", 1_073_741_824.0),
    ("TiB", "data", 1_099_511_627_776.0),
    ("B/s", "data rate", 1.0),
    ("kB/s", "data rate", 1e3),
    ("MB/s", "data rate", 1e6),
    ("GB/s", "data rate", 1e9),
    ("KiB/s", "data rate", 1_024.0),
    ("MiB/s", "data rate", 1_048_576.0),
    ("GiB/s", "data rate", 1_073_741_824.0),
    ("kb/s", "data rate", 125.0),
    ("Mb/s", "data rate", 1.25e5),
    ("Gb/s", "data rate", 1.25e8),
    ("Kbit/s", "data rate", 125.0),
    ("Mbit/s", "data rate", 1.25e5),
    ("Gbit/s", "data rate", 1.25e8),
    ("1", "ratio", 1.0),
    ("%", "ratio", 0.01),
    ("x", "times", 1.0),
    ("FLOP/s", "compute", 1.0),
    ("GFLOP/s", "compute", 1e9),
    ("TFLOP/s", "compute", 1e12),
    ("1/s", "rate", 1.0),
    ("W", "power", 1.0),
    ("kW", "power", 1e3),
    ("J", "energy", 1.0),
    ("C", "temperature", 1.0),
    ("Hz", "frequency", 1.0),
    ("MHz", "frequency", 1e6),
    ("GHz", "frequency", 1e9),
];

impl Unit {
    /// Seconds.
    pub const SECONDS: Self = Self::known("s");
    /// Bytes.
    pub const BYTES: Self = Self::known("B");
    /// Bytes per second.
    pub const BYTES_PER_SECOND: Self = Self::known("B/s");
    /// A share of a whole, 1 = all of it.
    pub const RATIO: Self = Self::known("1");
    /// A multiple of a baseline, such as a speedup.
    pub const TIMES: Self = Self::known("x");
    /// A number of things.
    pub const COUNT: Self = Self::known("count");
    /// Operations per second.
    pub const PER_SECOND: Self = Self::known("1/s");
    /// Training or inference samples per second.
    pub const SAMPLES_PER_SECOND: Self = Self::known("samples/s");
    /// Tokens per second.
    pub const TOKENS_PER_SECOND: Self = Self::known("tokens/s");
    /// Steps per second.
    pub const STEPS_PER_SECOND: Self = Self::known("steps/s");
    /// Floating-point operations per second.
    pub const FLOPS: Self = Self::known("FLOP/s");
    /// Natural units of information, as a cross-entropy loss has them.
    pub const NATS: Self = Self::known("nat");
    /// Watts.
    pub const WATTS: Self = Self::known("W");

    const fn known(text: &'static str) -> Self {
        Self(Cow::Borrowed(text))
    }

    /// A unit by its text, known or a program's own.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Cow::Owned(text.into()))
    }

    /// The text as printed.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How many of the dimension's base unit one of this is; `None` for a program's own unit.
    fn scale(&self) -> Option<(&'static str, f64)> {
        KNOWN.iter().find(|(text, ..)| *text == self.0).map(|(_, dimension, scale)| (*dimension, *scale))
    }

    /// Converts `value` from this unit into `other`; `None` when they measure different things.
    ///
    /// # Units
    /// `value` in `self`, the result in `other`. The conversion does not round.
    pub fn convert(&self, value: f64, other: &Self) -> Option<f64> {
        if self == other {
            return Some(value);
        }
        let ((from, a), (to, b)) = (self.scale()?, other.scale()?);
        (from == to).then(|| value * a / b)
    }

    /// Whether values of the two units may be compared.
    pub fn compatible(&self, other: &Self) -> bool {
        self.convert(1.0, other).is_some()
    }

    /// Units that a bound on this one may be written in, for messages.
    pub fn alternatives(&self) -> Vec<&'static str> {
        match self.scale() {
            Some((dimension, _)) => KNOWN.iter().filter(|k| k.1 == dimension).map(|k| k.0).collect(),
            None => Vec::new(),
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Unit {
    type Err = std::convert::Infallible;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        Ok(KNOWN.iter().find(|k| k.0 == s).map_or_else(|| Self::new(s), |k| Self::known(k.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn convert(value: f64, from: &str, to: &str) -> Option<f64> {
        Unit::new(from).convert(value, &Unit::new(to))
    }

    /// 50,993,000,000 B in 100 s, the figures of a public bug report about MB against MiB.
    #[test]
    fn data_rates_meet_in_bytes_per_second() {
        let measured = 509_930_000.0;
        assert_eq!(convert(measured, "B/s", "MB/s"), Some(509.93));
        assert!((convert(measured, "B/s", "MiB/s").unwrap() - 486.31).abs() < 0.01);
        assert!((convert(measured, "B/s", "Gb/s").unwrap() - 4.079).abs() < 0.001);
    }

    #[test]
    fn what_does_not_measure_the_same_is_not_converted() {
        assert_eq!(convert(1.0, "s", "B"), None);
        assert_eq!(convert(1.0, "x", "1"), None, "a speedup is no share");
        assert_eq!(convert(1.0, "points", "marks"), None);
        assert_eq!(convert(3.0, "points", "points"), Some(3.0));
        assert_eq!(convert(2.0, "%", "1"), Some(0.02));
    }
}
