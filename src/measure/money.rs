//! Money: whole micro-units of one currency. Adding two currencies is an error, never a number.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A currency code of three capital letters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Currency(String);

impl Currency {
    /// The code, such as `CNY`.
    pub fn code(&self) -> &str {
        &self.0
    }
}

impl FromStr for Currency {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        if s.len() == 3 && s.bytes().all(|b| b.is_ascii_uppercase()) {
            Ok(Self(s.to_owned()))
        } else {
            Err(format!("`{s}` is no currency code such as CNY or USD"))
        }
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An amount of one currency, in whole millionths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Money {
    /// Millionths of the currency's unit.
    pub micros: i128,
    /// The currency.
    pub currency: Currency,
}

/// Two amounts that are of different currencies.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} and {1} are different currencies: give a rate under `rates`")]
pub struct MixedCurrencies(pub Currency, pub Currency);

impl Money {
    /// Nothing, of a currency.
    pub fn zero(currency: Currency) -> Self {
        Self { micros: 0, currency }
    }

    /// The sum.
    ///
    /// # Errors
    /// When the currencies differ.
    pub fn add(&self, other: &Self) -> Result<Self, MixedCurrencies> {
        if self.currency == other.currency {
            Ok(Self { micros: self.micros + other.micros, currency: self.currency.clone() })
        } else {
            Err(MixedCurrencies(self.currency.clone(), other.currency.clone()))
        }
    }

    /// The amount times a factor, rounded half away from zero to a millionth; `None` for a factor that is not finite.
    pub fn times(&self, factor: f64) -> Option<Self> {
        let product = self.micros as f64 * factor;
        (product.is_finite() && product.abs() < 1e30)
            .then(|| Self { micros: product.round() as i128, currency: self.currency.clone() })
    }

    /// The amount in the currency's unit, for ratios and charts.
    pub fn amount(&self) -> f64 {
        self.micros as f64 / 1e6
    }

    /// The amount as a decimal string with all its millionths that matter and at least two decimals: `7.68`.
    pub fn decimal(&self) -> String {
        let sign = if self.micros < 0 { "-" } else { "" };
        let micros = self.micros.unsigned_abs();
        let fraction = format!("{:06}", micros % 1_000_000);
        let fraction = fraction.trim_end_matches('0');
        format!("{sign}{}.{fraction:0<2}", micros / 1_000_000)
    }

    /// The amount rounded half up to cents, as a person reads it.
    pub fn rounded(&self) -> String {
        let sign = if self.micros < 0 { "-" } else { "" };
        let cents = (self.micros.unsigned_abs() + 5_000) / 10_000;
        format!("{sign}{}.{:02}", cents / 100, cents % 100)
    }
}

impl fmt::Display for Money {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.decimal(), self.currency)
    }
}

impl FromStr for Money {
    type Err = String;

    /// Reads `2000 CNY`.
    ///
    /// # Errors
    /// A fragment that says what is missing.
    fn from_str(s: &str) -> Result<Self, String> {
        if s.contains('/') {
            return Err(format!("`{s}` is a rate; an amount such as 2000 CNY is wanted"));
        }
        let Some((number, code)) = s.split_once(char::is_whitespace) else {
            return Err(format!("`{s}` has no currency: write {s} CNY, with a space"));
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let digits = |t: &str| t.bytes().all(|b| b.is_ascii_digit());
        if whole.is_empty()
            || fraction.len() > 6
            || !digits(whole)
            || !digits(fraction)
            || number.ends_with('.')
        {
            return Err(format!("`{number}` is no amount: digits and at most 6 decimals"));
        }
        let micros = format!("{whole}{fraction:0<6}").parse().ok().filter(|m: &i128| *m < 10_i128.pow(24));
        let micros = micros.ok_or_else(|| format!("`{number}` is too large an amount"))?;
        Ok(Self { micros, currency: code.trim().parse()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn money(s: &str) -> Money {
        s.parse().unwrap()
    }

    #[test]
    fn amounts_read_back() {
        assert_eq!(money("2000 CNY").to_string(), "2000.00 CNY");
        assert_eq!(money("0.04947 USD").to_string(), "0.04947 USD");
        assert_eq!(money("6.80736 USD").rounded(), "6.81");
        for bad in [
            "2000",
            "2000CNY",
            "1. CNY",
            "1,000 CNY",
            "1.1234567 CNY",
            "2 cny",
            "-1 CNY",
            "1/h CNY",
            "1e3 CNY",
        ] {
            assert!(bad.parse::<Money>().is_err(), "{bad}");
        }
    }

    #[test]
    fn two_currencies_do_not_add() {
        assert!(money("1 CNY").add(&money("1 USD")).is_err());
        assert_eq!(money("1.5 CNY").add(&money("2 CNY")).unwrap(), money("3.5 CNY"));
        assert_eq!(money("1 CNY").times(f64::NAN), None);
    }
}
