//! The formulas behind a cost: prices for an hour, billed time, expected rework, what it comes to for a million.
//!
//! Not here: which of them a job needs and what they are called (`super`).
//!
//! Invariant: pure arithmetic; what cannot be known is an error or `None`, never 0.

use crate::measure::{
    Currency, Money,
    quantity::{Bytes, Rate, RatePer, StoragePer, StoragePrice, TrafficPer, TrafficPrice},
};

/// The month by which storage prices are turned into hours.
///
/// # Units
/// Hours.
pub const MONTH_HOURS: f64 = 730.0;

/// What an instance costs for an hour.
///
/// # Errors
/// For a price per GPU of a machine that has none.
pub fn hourly(rate: &Rate, gpus: Option<u32>) -> Result<Money, String> {
    let times = match (rate.per, gpus) {
        (RatePer::InstanceHour, _) => 1,
        (RatePer::GpuHour, Some(gpus)) if gpus > 0 => gpus,
        (RatePer::GpuHour, _) => return Err(format!("{rate} is per GPU and the machine has none")),
    };
    rate.money.times(f64::from(times)).ok_or_else(|| format!("{rate} × {times} is no amount"))
}

/// What it costs to keep data.
///
/// # Formula
/// `size × price × hours / 730`, rounded once at the end.
pub fn storage(price: &StoragePrice, size: Bytes, hours: f64) -> Option<Money> {
    let unit = match price.per {
        StoragePer::GbMonth => 1e9,
        StoragePer::GibMonth => 1_073_741_824.0,
    };
    price.money.times(size.bytes / unit * hours / MONTH_HOURS)
}

/// What it costs to move data.
pub fn traffic(price: &TrafficPrice, size: Bytes) -> Option<Money> {
    let unit = match price.per {
        TrafficPer::Gb => 1e9,
        TrafficPer::Gib => 1_073_741_824.0,
    };
    price.money.times(size.bytes / unit)
}

/// A rate as the decimal number that it was written as: whole units of so many decimals.
fn decimal(rate: f64) -> Option<(i128, i128)> {
    let text = rate.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let scale = 10_i128.checked_pow(u32::try_from(fraction.len()).ok()?)?;
    let units: i128 = format!("{whole}{fraction}").parse().ok()?;
    (units > 0).then_some((units, scale))
}

/// An amount in another currency: times the rate, or divided by it.
///
/// # Formula
/// In whole numbers, rounded once, half away from zero, to a millionth; `None` beyond any amount or without a rate
/// above 0.
pub fn exchange(money: &Money, rate: f64, divide: bool, to: &Currency) -> Option<Money> {
    let (units, scale) = decimal(rate)?;
    let (times, by) = if divide { (scale, units) } else { (units, scale) };
    let product = money.micros.checked_mul(times)?;
    let half = if product < 0 { -(by / 2) } else { by / 2 };
    // Of an odd divisor half a unit is never met, so that cutting it off changes no rounding.
    Some(Money { micros: product.checked_add(half)? / by, currency: to.clone() })
}

/// How use is billed.
///
/// # Units
/// Hours.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Billing {
    /// What use is rounded up to; 0: not rounded.
    pub granularity: f64,
    /// What is billed at least for each start.
    pub minimum: f64,
    /// The block that must be bought whole; 0: none.
    pub term: f64,
}

impl Billing {
    /// The hours on the bill for one start of so many hours.
    ///
    /// # Formula
    /// `⌈hours / term⌉ × term` for blocks, else `max(minimum, ⌈hours / granularity⌉ × granularity)`.
    pub fn billed(&self, hours: f64) -> f64 {
        let up = |to: f64| if to > 0.0 { (hours / to - 1e-9).ceil().max(0.0) * to } else { hours };
        if self.term > 0.0 { up(self.term) } else { up(self.granularity).max(self.minimum) }
    }

    /// The hours on the bill for many starts, expected: each wastes half a granule, or what it falls short of the
    /// minimum.
    pub fn expected(&self, hours: f64, starts: f64) -> f64 {
        if self.term > 0.0 {
            return self.billed(hours);
        }
        let each = hours / starts.max(1.0);
        hours + starts * if each < self.minimum { self.minimum - each } else { self.granularity / 2.0 }
    }
}

/// Interruptions of a job.
///
/// # Units
/// Hours, and interruptions per hour.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interruptions {
    /// Poisson rate per hour.
    pub rate: f64,
    /// Billed hours until training goes on after one.
    pub restart: f64,
    /// Useful hours between checkpoints; `None`: there are none, all work is lost.
    pub interval: Option<f64>,
    /// Hours that a checkpoint blocks training.
    pub save: f64,
}

/// The Poisson rate that belongs to the share of instances interrupted within an hour.
///
/// # Formula
/// `-ln(1 - p)`.
pub fn poisson(probability: f64) -> f64 {
    -(-probability).ln_1p()
}

/// Young's checkpoint interval.
///
/// # Formula
/// `√(2 × save / rate)`.
///
/// # Source
/// Young 1974.
pub fn young(save: f64, rate: f64) -> f64 {
    (2.0 * save / rate).sqrt()
}

impl Interruptions {
    /// Expected billed hours for so many useful ones, and how many interruptions go with them.
    ///
    /// # Formula
    /// `n × e^(λR) × (e^(λ(τ + C)) - 1) / λ` with `n = W / τ`; without checkpoints `n = 1, τ = W, C = 0`. Their
    /// number is `λ` times that.
    ///
    /// # Source
    /// The standard result for exponential failures (Bougeret et al. 2011), checked by simulation to 1 %.
    pub fn expected(&self, useful: f64) -> (f64, f64) {
        let rate = self.rate;
        if rate <= 0.0 {
            return (useful, 0.0);
        }
        let (segments, interval, save) = match self.interval {
            Some(interval) if interval < useful => (useful / interval, interval, self.save),
            _ => (1.0, useful, 0.0),
        };
        let up = segments * (rate * self.restart).exp() * (rate * (interval + save)).exp_m1() / rate;
        (up, rate * up)
    }
}

/// What a million of something costs; `None` where there was none of it.
pub fn per_million(cost: &Money, amount: f64) -> Option<Money> {
    (amount > 0.0).then(|| cost.times(1e6 / amount)).flatten()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests state exact values")]
    use super::*;

    fn rate(text: &str) -> Rate {
        text.parse().unwrap()
    }

    /// dstackai/dstack#1890: 1.28 shown, 10.24 charged.
    #[test]
    fn case_c01_per_gpu_or_instance() {
        let for_45_minutes = |text: &str| hourly(&rate(text), Some(8)).unwrap().times(0.75).unwrap();
        assert_eq!(hourly(&rate("1.28 USD/gpu-hour"), Some(8)).unwrap().to_string(), "10.24 USD");
        assert_eq!(for_45_minutes("1.28 USD/gpu-hour").to_string(), "7.68 USD");
        assert_eq!(for_45_minutes("1.28 USD/instance-hour").to_string(), "0.96 USD");
        assert!("1.28 USD".parse::<Rate>().is_err(), "a factor of 8 must not be guessed");
        assert!(hourly(&rate("1.28 USD/gpu-hour"), None).is_err());
    }

    /// As decimals, where binary fractions would be off: 0.15 × 1.1 and back, and halves away from zero.
    #[test]
    fn exchange_is_exact() {
        let to: Currency = "USD".parse().unwrap();
        let money = |micros| Money { micros, currency: "CNY".parse().unwrap() };
        let micros = |m: i128, rate, divide| exchange(&money(m), rate, divide, &to).map(|m| m.micros);
        assert_eq!(micros(16_559_829, 7.1, true), Some(2_332_370));
        assert_eq!(micros(16_559_829, 7.1, false), Some(117_574_786), "117,574,785.9");
        assert_eq!(micros(1_000_000_000_000_000_001, 1.0, false), Some(1_000_000_000_000_000_001));
        assert_eq!((micros(5, 0.1, false), micros(-5, 0.1, false)), (Some(1), Some(-1)));
        assert_eq!(
            (micros(4, 0.1, false), micros(7, 2.0, true), micros(7, 3.0, true)),
            (Some(0), Some(4), Some(2))
        );
        assert_eq!(micros(1_000_000, 0.000_000_1, true), Some(10_000_000_000_000));
        for bad in [0.0, -7.1, f64::NAN, f64::INFINITY, 1e-300] {
            assert_eq!(micros(1, bad, true), None, "{bad}");
        }
        assert_eq!(micros(i128::MAX / 2, 7.1, false), None);
        assert_eq!(exchange(&money(1), 7.1, false, &to).unwrap().currency, to);
    }

    /// dstackai/dstack#1553: the disk was left out of the price.
    #[test]
    fn case_c02_disk() {
        let disk: StoragePrice = "0.10 USD/GB-month".parse().unwrap();
        let size = Bytes { bytes: 32_768e9 };
        let compute = hourly(&rate("0.04947 USD/instance-hour"), Some(8)).unwrap();
        let total = |hours| compute.times(hours).unwrap().add(&storage(&disk, size, hours).unwrap()).unwrap();
        assert_eq!(storage(&disk, size, 1.0).unwrap().to_string(), "4.488767 USD");
        assert_eq!(total(1.0).to_string(), "4.538237 USD");
        assert_eq!((total(1.0).rounded(), total(1.5).rounded()), ("4.54".to_owned(), "6.81".to_owned()));
        assert_eq!(total(1.5).to_string(), "6.807356 USD");
    }

    /// bentoml/llm-optimizer#21: the wrong base, or a division by zero tokens.
    #[test]
    fn case_c07_per_million_tokens() {
        let cost = rate("12 USD/instance-hour").money.times(6_751.398_178_250_063 / 3600.0).unwrap();
        assert_eq!(cost.to_string(), "22.504661 USD");
        let of = |tokens: f64| per_million(&cost, tokens).map(|m| format!("{:.3}", m.amount()));
        assert_eq!(of(1_260_603.0).unwrap(), "17.852");
        assert_eq!(of(23_531_562.0 + 1_260_603.0).unwrap(), "0.908");
        assert_eq!(per_million(&cost, 0.0), None);
    }

    /// A whole hour and four hours at least: the small job costs four.
    #[test]
    fn billing_rounds_first() {
        let hourly = Billing { granularity: 1.0, ..Billing::default() };
        assert_eq!((hourly.billed(0.104), hourly.billed(1.0), hourly.billed(1.2)), (1.0, 1.0, 2.0));
        let four = Billing { granularity: 1.0, minimum: 4.0, term: 0.0 };
        assert_eq!((four.billed(0.104), four.billed(4.5)), (4.0, 5.0));
        let week = Billing { term: 168.0, ..Billing::default() };
        assert_eq!((week.billed(72.0), week.billed(168.0), week.billed(169.0)), (168.0, 168.0, 336.0));
        assert_eq!(Billing::default().billed(0.37), 0.37);
        assert_eq!(hourly.expected(10.0, 3.0), 11.5, "half an hour for each of three starts");
        assert_eq!(four.expected(6.0, 3.0), 12.0, "three starts of two hours are billed four each");
    }

    /// 72 h of work, 2 min a checkpoint, 30 min a restart, by MTBF: the worked table, checked by simulation.
    #[test]
    fn expected_rework_matches_the_worked_table() {
        for (mtbf, interval, up, none) in [
            (6.0, 0.632, 87.1, 1.06e6),
            (12.0, 0.894, 81.0, 5035.0),
            (24.0, 1.265, 77.5, 468.0),
            (72.0, 2.191, 74.8, 125.0),
        ] {
            let (rate, save) = (1.0 / mtbf, 2.0 / 60.0);
            let tau = young(save, rate);
            assert!((tau - interval).abs() < 1e-3, "{mtbf}: {tau}");
            let with = Interruptions { rate, restart: 0.5, interval: Some(tau), save };
            assert!((with.expected(72.0).0 - up).abs() < 0.06, "{mtbf}: {:?}", with.expected(72.0));
            let without = Interruptions { interval: None, save: 0.0, ..with };
            assert!(
                (without.expected(72.0).0 / none - 1.0).abs() < 0.01,
                "{mtbf}: {:?}",
                without.expected(72.0)
            );
        }
    }

    /// 5 % an hour is a mean time between failures of 19.5 h, 20 % of 4.5 h.
    #[test]
    fn hourly_shares_are_poisson_rates() {
        assert!((1.0 / poisson(0.05) - 19.496).abs() < 1e-3);
        assert!((1.0 / poisson(0.2) - 4.481).abs() < 1e-3);
        assert_eq!(
            Interruptions { rate: 0.0, restart: 1.0, interval: None, save: 0.0 }.expected(5.0),
            (5.0, 0.0)
        );
    }
}
