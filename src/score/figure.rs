//! Numbers as people read them: few digits, a unit of fitting size, the same text on every machine.
//!
//! Used where a sentence of the score holds a number, and by reports. It never decides anything: bounds and rules
//! compare the unrounded value.

use crate::measure::Unit;

/// The number with at most four significant digits, never cutting digits before the point, without an exponent
/// where a reader would not expect one.
pub fn number(value: f64) -> String {
    digits(value, 4)
}

/// The number with at most `significant` digits.
pub fn digits(value: f64, significant: usize) -> String {
    if !value.is_finite() {
        return "n/a".to_owned();
    }
    if value == 0.0 {
        return "0".to_owned();
    }
    let size = value.abs().log10().floor();
    if !(-6.0..15.0).contains(&size) {
        let text = format!("{value:.*e}", significant.saturating_sub(1));
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        return format!("{}e{exponent}", trim(mantissa));
    }
    let decimals = (significant as f64 - 1.0 - size).max(0.0) as usize;
    trim(&format!("{value:.decimals$}")).to_owned()
}

fn trim(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

const LARGE: [(f64, &str); 6] =
    [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (f64::NEG_INFINITY, "")];
const TIME: [(f64, f64, &str); 7] = [
    (259_200.0, 86_400.0, "d"),
    (3600.0, 3600.0, "h"),
    (600.0, 60.0, "min"),
    (1.0, 1.0, "s"),
    (1e-3, 1e-3, "ms"),
    (1e-6, 1e-6, "us"),
    (0.0, 1e-9, "ns"),
];

/// The factor and the unit in which `value` reads best: bytes per second as `MB/s`, seconds as `ms`, shares as `%`.
pub fn scale(value: f64, unit: &Unit) -> (f64, String) {
    let size = value.abs();
    let prefixed = |base: &str| {
        let (factor, prefix) = LARGE.iter().find(|(from, _)| size >= *from).unwrap_or(&(1.0, ""));
        (if factor.is_finite() { *factor } else { 1.0 }, format!("{prefix}{base}"))
    };
    match unit.as_str() {
        "s" if value == 0.0 => (1.0, "s".to_owned()),
        "s" => {
            let (_, factor, name) = TIME.iter().find(|(from, ..)| size >= *from).unwrap_or(&TIME[3]);
            (*factor, (*name).to_owned())
        }
        "1" => (0.01, "%".to_owned()),
        base @ ("B" | "B/s" | "FLOP/s" | "FLOP") => prefixed(base),
        "count" => (1.0, String::new()),
        other => (1.0, other.to_owned()),
    }
}

/// The number with its unit, scaled: `509.9 MB/s`, `12.3 ms`, `41.2 %`, `7.1x`.
pub fn with_unit(value: f64, unit: &Unit) -> String {
    let (factor, name) = scale(value, unit);
    join(&number(value / factor), &name)
}

/// A number's text and its unit with the space that belongs between.
pub fn join(number: &str, unit: &str) -> String {
    match unit {
        "" => number.to_owned(),
        "x" => format!("{number}x"),
        unit => format!("{number} {unit}"),
    }
}

/// Points with at most two decimals.
pub fn points(value: f64) -> String {
    trim(&format!("{value:.2}")).to_owned()
}

/// A range: one number where both ends read the same.
pub fn range(low: f64, high: f64) -> String {
    let (low, high) = (points(low), points(high));
    if low == high { low } else { format!("{low}–{high}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_their_digits() {
        for (value, text) in [
            (0.0, "0"),
            (12_345.678, "12346"),
            (0.412_345, "0.4123"),
            (7.0, "7"),
            (1_280_000_000.0, "1280000000"),
            (9.999_96, "10"),
            (-0.000_012_34, "-0.00001234"),
            (1.5e-9, "1.5e-9"),
            (2.5e18, "2.5e18"),
            (f64::NAN, "n/a"),
        ] {
            assert_eq!(number(value), text, "{value}");
        }
    }

    #[test]
    fn units_are_scaled() {
        for (value, unit, text) in [
            (509_930_000.0, "B/s", "509.9 MB/s"),
            (0.0123, "s", "12.3 ms"),
            (185.0, "s", "185 s"),
            (5400.0, "s", "1.5 h"),
            (259_200.0, "s", "3 d"),
            (0.412, "1", "41.2 %"),
            (7.1, "x", "7.1x"),
            (3.0, "count", "3"),
            (989e12, "FLOP/s", "989 TFLOP/s"),
            (182.25, "tokens/s", "182.2 tokens/s"),
            (0.0, "s", "0 s"),
            (0.0, "B", "0 B"),
        ] {
            assert_eq!(with_unit(value, &Unit::new(unit)), text);
        }
    }

    #[test]
    fn ranges_collapse() {
        assert_eq!((range(12.0, 12.0), range(0.0, 20.0)), ("12".to_owned(), "0–20".to_owned()));
        assert_eq!(range(3.333_333, 3.333_4), "3.33");
    }
}
