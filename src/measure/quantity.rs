//! Quantities as people write them in a plan: a number with its unit, read from text and written back as text.
//!
//! A bare number is refused everywhere: what it counts would have to be guessed. `1:30` is refused as ambiguous.
//! Each type knows what it accepts ([`FromStr`]), the words for it and a pattern for the JSON Schema.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Currency, Money};

/// Serde and schema for a type that is text in a plan.
macro_rules! quantity {
    ($name:ident, $expect:literal, $pattern:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                struct Text;
                impl serde::de::Visitor<'_> for Text {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expect)
                    }
                    fn visit_str<E: serde::de::Error>(self, s: &str) -> Result<$name, E> {
                        s.trim().parse().map_err(E::custom)
                    }
                }
                d.deserialize_str(Text)
            }
        }
        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
                s.collect_str(self)
            }
        }
        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "description": $expect, "pattern": $pattern })
            }
        }
    };
}

mod bound;

pub use bound::{Bound, Comparison, Level};

/// Splits `25.8 CNY` and `5%/h` after the number.
fn split_number(s: &str) -> (&str, &str) {
    let mut end = s.find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c))).unwrap_or(s.len());
    if s[..end].ends_with(['e', 'E']) {
        end -= 1; // the `e` of a unit, not of an exponent
    }
    (&s[..end], s[end..].trim_start())
}

fn number(text: &str) -> Result<f64, String> {
    let plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b));
    match text.parse::<f64>() {
        Ok(x) if plain && x.is_finite() && x >= 0.0 && !text.starts_with(['+', '-']) => Ok(x),
        _ => Err(format!("`{text}` is no number that can stand here")),
    }
}

/// A length of time.
///
/// # Units
/// Seconds.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Default)]
pub struct Duration {
    /// Seconds.
    pub seconds: f64,
}

impl Duration {
    /// From seconds.
    pub const fn from_seconds(seconds: f64) -> Self {
        Self { seconds }
    }

    /// In hours.
    pub fn hours(self) -> f64 {
        self.seconds / 3600.0
    }

    /// As the standard library's duration.
    pub fn std(self) -> std::time::Duration {
        std::time::Duration::try_from_secs_f64(self.seconds).unwrap_or(std::time::Duration::MAX)
    }
}

const DURATION_UNITS: [(&str, f64); 6] =
    [("ms", 1e-3), ("s", 1.0), ("min", 60.0), ("m", 60.0), ("h", 3600.0), ("d", 86_400.0)];

impl FromStr for Duration {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        if s.contains(':') {
            return Err(format!("`{s}` is ambiguous as a duration: write 90s, 90m or 1h30m"));
        }
        let no_duration = || format!("`{s}` is no duration: write 90s, 20m, 1h30m or 3d");
        if s.is_empty() {
            return Err("an empty duration: write 90s, 20m, 1h30m or 3d".to_owned());
        }
        let (mut rest, mut seconds, mut last) = (s, 0.0, f64::INFINITY);
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(rest.len());
            let value = number(&rest[..digits]).map_err(|_| no_duration())?;
            rest = rest[digits..].trim_start();
            let letters = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
            let unit = &rest[..letters];
            if unit.is_empty() {
                return Err(if rest.is_empty() {
                    format!("`{s}` has no unit: write {s}s, {s}m or {s}h")
                } else {
                    no_duration()
                });
            }
            let Some(&(_, scale)) = DURATION_UNITS.iter().find(|(name, _)| *name == unit) else {
                return Err(format!("unknown unit `{unit}` in `{s}`: ms, s, m, h or d"));
            };
            if scale >= last {
                return Err(format!("the units of `{s}` are not in falling order"));
            }
            (last, seconds, rest) = (scale, seconds + value * scale, rest[letters..].trim_start());
        }
        Ok(Self { seconds })
    }
}

impl fmt::Display for Duration {
    /// The shortest exact form of whole units, else seconds: `1h30m`, `3d`, `0.25s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.seconds.fract() != 0.0 || self.seconds == 0.0 || self.seconds >= 1e15 {
            return write!(f, "{}s", self.seconds);
        }
        let mut left = self.seconds as u64;
        for (name, scale) in [("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)] {
            if left >= scale {
                write!(f, "{}{name}", left / scale)?;
                left %= scale;
            }
        }
        Ok(())
    }
}
quantity!(
    Duration,
    "a duration such as 90s, 20m, 1h30m or 3d",
    r"^(\d+(\.\d+)?\s*(ms|s|min|m|h|d)\s*)+$|\$\{"
);

/// An amount of data.
///
/// # Units
/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Bytes {
    /// Bytes.
    pub bytes: f64,
}

const BYTE_UNITS: [(&str, f64); 9] = [
    ("TiB", 1_099_511_627_776.0),
    ("GiB", 1_073_741_824.0),
    ("MiB", 1_048_576.0),
    ("KiB", 1_024.0),
    ("TB", 1e12),
    ("GB", 1e9),
    ("MB", 1e6),
    ("kB", 1e3),
    ("B", 1.0),
];

impl FromStr for Bytes {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let (n, unit) = split_number(s);
        if unit.is_empty() {
            return Err(format!("`{s}` has no unit: write {s} GB or {s} GiB"));
        }
        match BYTE_UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, scale)) => Ok(Self { bytes: number(n)? * scale }),
            None => Err(format!("unknown unit `{unit}` in `{s}`: B, kB, MB, GB, TB, KiB, MiB, GiB or TiB")),
        }
    }
}

impl fmt::Display for Bytes {
    /// In the unit that gives the smallest whole number: `256 MiB`, `80 GB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = BYTE_UNITS.iter().filter(|(_, scale)| self.bytes >= *scale && self.bytes % scale == 0.0);
        let (name, scale) = whole.max_by(|a, b| a.1.total_cmp(&b.1)).copied().unwrap_or(("B", 1.0));
        write!(f, "{} {name}", self.bytes / scale)
    }
}
quantity!(Bytes, "a size such as 256 MiB or 80 GB", r"^\d+(\.\d+)?\s*([kMGT]?B|[KMGT]iB)$|\$\{");

quantity!(Money, "an amount such as 2000 CNY", r"^\d+(\.\d{1,6})? [A-Z]{3}$|\$\{");

/// A price: an amount per unit of something.
macro_rules! price {
    ($(#[$doc:meta])* $name:ident, $per:ident, $expect:literal, $pattern:literal, { $($(#[$vdoc:meta])* $variant:ident = $text:literal),+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $name {
            /// The amount.
            pub money: Money,
            /// What it is paid per.
            pub per: $per,
        }
        #[doc = concat!("What a [`", stringify!($name), "`] is paid per.")]
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $per { $($(#[$vdoc])* $variant),+ }
        impl fmt::Display for $per {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text),+ })
            }
        }
        impl FromStr for $name {
            type Err = String;
            fn from_str(s: &str) -> Result<Self, String> {
                let Some((money, per)) = s.split_once('/') else {
                    let forms = [$(format!("{s}/{}", $text)),+].join(" or ");
                    return Err(format!("`{s}` is a price without a per-unit: write {forms}"));
                };
                let money = money.trim_end().parse()?;
                match per.trim() {
                    $($text => Ok(Self { money, per: $per::$variant }),)+
                    other => Err(format!("unknown per-unit `{other}` in `{s}`: {}", [$($text),+].join(" or "))),
                }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.money, self.per)
            }
        }
        quantity!($name, $expect, $pattern);
    };
}

price! {
    /// What an hour of compute costs.
    Rate, RatePer, "a price such as 25.8 CNY/gpu-hour or 40 CNY/instance-hour",
    r"^\d+(\.\d{1,6})? [A-Z]{3}/(gpu|instance)-hour$|\$\{",
    { /// Each accelerator of the instance.
      GpuHour = "gpu-hour", /// The whole instance.
      InstanceHour = "instance-hour" }
}
price! {
    /// What it costs to keep data for a month.
    StoragePrice, StoragePer, "a price such as 0.7 CNY/GB-month",
    r"^\d+(\.\d{1,6})? [A-Z]{3}/G(i)?B-month$|\$\{",
    { /// 10^9 bytes for a month.
      GbMonth = "GB-month", /// 2^30 bytes for a month.
      GibMonth = "GiB-month" }
}
price! {
    /// What it costs to move data.
    TrafficPrice, TrafficPer, "a price such as 0.8 CNY/GB", r"^\d+(\.\d{1,6})? [A-Z]{3}/G(i)?B$|\$\{",
    { /// 10^9 bytes.
      Gb = "GB", /// 2^30 bytes.
      Gib = "GiB" }
}
price! {
    /// What an hour of a person costs.
    LabourPrice, LabourPer, "a price such as 400 CNY/hour", r"^\d+(\.\d{1,6})? [A-Z]{3}/hour$|\$\{",
    { /// An hour of work.
      Hour = "hour" }
}

/// How likely an interruption is within an hour.
///
/// # Units
/// A probability per hour, 0 to below 1: `5%/h` is 0.05. A Poisson rate follows as `-ln(1 - p)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PerHour {
    /// The share that is interrupted within an hour.
    pub probability: f64,
}

impl FromStr for PerHour {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let (n, unit) = split_number(s);
        let probability = match unit.replace(' ', "").as_str() {
            "%/h" => number(n)? / 100.0,
            "/h" => number(n)?,
            _ => return Err(format!("`{s}` is no rate per hour: write 5%/h or 0.05/h")),
        };
        if probability < 1.0 {
            Ok(Self { probability })
        } else {
            Err(format!(
                "`{s}` is not below 100 %/h: it is the share of instances interrupted within an hour"
            ))
        }
    }
}

impl fmt::Display for PerHour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/h", self.probability)
    }
}
quantity!(PerHour, "a rate per hour such as 5%/h", r"^\d+(\.\d+)?\s*%?\s*/h$|\$\{");

/// An amount of work, such as the tokens of a training job.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// How much.
    pub amount: f64,
    /// Of what: tokens, samples, steps, jobs or requests.
    pub unit: String,
}

/// What work can be counted in.
pub const WORK_UNITS: [&str; 5] = ["tokens", "samples", "steps", "jobs", "requests"];

impl FromStr for Work {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let (n, unit) = split_number(s);
        if unit.is_empty() {
            return Err(format!("`{s}` has no unit: write {s} {}", WORK_UNITS.join(", ")));
        }
        if !WORK_UNITS.contains(&unit) {
            return Err(format!("unknown unit `{unit}` in `{s}`: {}", WORK_UNITS.join(", ")));
        }
        match number(n)? {
            amount if amount > 0.0 => Ok(Self { amount, unit: unit.to_owned() }),
            _ => Err(format!("`{s}` is no work at all")),
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.amount, self.unit)
    }
}
quantity!(
    Work,
    "an amount of work such as 1.2e9 tokens",
    r"^[0-9.eE+]+ (tokens|samples|steps|jobs|requests)$|\$\{"
);

/// A calendar date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date(pub jiff::civil::Date);

impl FromStr for Date {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let shape = s.len() == 10
            && s.bytes()
                .enumerate()
                .all(|(i, b)| if i == 4 || i == 7 { b == b'-' } else { b.is_ascii_digit() });
        if !shape {
            return Err(format!("`{s}` is no date: write 2026-01-31"));
        }
        s.parse().map(Self).map_err(|_| format!("`{s}` is no day of the calendar"))
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
quantity!(Date, "a date such as 2026-01-31", r"^\d{4}-\d{2}-\d{2}$|\$\{");

/// A currency is text in a plan, too.
impl Currency {
    /// What the plan reader expects, for messages.
    pub const EXPECT: &'static str = "a currency code such as CNY";
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "what is read from text must be exactly the number")]
mod tests {
    use super::*;

    fn seconds(s: &str) -> Result<f64, String> {
        s.parse::<Duration>().map(|d| d.seconds)
    }

    #[test]
    fn durations_carry_units_in_falling_order() {
        assert_eq!(seconds("90s"), Ok(90.0));
        assert_eq!(seconds("1h30m"), Ok(5400.0));
        assert_eq!(seconds("3d"), Ok(259_200.0));
        assert_eq!(seconds("1min"), Ok(60.0));
        assert_eq!(seconds("1.5 h"), Ok(5400.0));
        for bad in ["", "90", "1:30", "1m1h", "5 weeks", "-5s", "s", "1..5s", "1e3s", "5s5"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }

    /// What YAML 1.1 reads as base 60 stays text and is ambiguous as a duration.
    #[test]
    fn base_60_is_ambiguous() {
        for text in ["1:30", "14:30", "09:30", "1:30:00"] {
            let message = seconds(text).unwrap_err();
            assert!(message.contains("write 90s, 90m or 1h30m"), "{message}");
        }
    }

    #[test]
    fn sizes_tell_binary_from_decimal() {
        assert_eq!("256 MiB".parse::<Bytes>().unwrap().bytes, 268_435_456.0);
        assert_eq!("80GB".parse::<Bytes>().unwrap().bytes, 80e9);
        for bad in ["80", "80 gb", "80 Gb", "80 mb", "GB", "1_000 GB"] {
            assert!(bad.parse::<Bytes>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_price_without_a_per_unit_is_refused() {
        let message = "1.28 CNY".parse::<Rate>().unwrap_err();
        assert!(message.contains("1.28 CNY/gpu-hour or 1.28 CNY/instance-hour"), "{message}");
        assert_eq!("25.8 CNY/gpu-hour".parse::<Rate>().unwrap().per, RatePer::GpuHour);
        assert!("40 CNY/hour".parse::<Rate>().is_err());
    }

    #[test]
    fn quantities_read_back_as_written() {
        for text in ["1h30m", "3d", "0.25s", "20m"] {
            assert_eq!(text.parse::<Duration>().unwrap().to_string(), text);
        }
        for text in ["256 MiB", "80 GB", "1.5 B", "64 GiB"] {
            assert_eq!(text.parse::<Bytes>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn an_hourly_probability_is_below_one() {
        assert_eq!("5%/h".parse::<PerHour>().unwrap().probability, 0.05);
        assert!("100%/h".parse::<PerHour>().is_err());
        assert!("5%".parse::<PerHour>().is_err());
    }
}
