//! What a finished job costs at one offer, term by term, so that a reader can redo it by hand.
//!
//! Not here: the formulas (`terms`), which offer to choose (`scenario`).
//!
//! Invariant: a fee that is not known is a line that says so, and the total is then a lower bound, marked; without a
//! measured throughput there is no cost at all.

pub mod terms;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use self::terms::{Billing, Interruptions, MONTH_HOURS};
use super::{
    figure,
    judgement::{ExchangeRate, Job, StageRef},
    query::{self, Evidence},
    scorecard::MetricCard,
};
use crate::{
    measure::{Currency, MetricPath, Money, quantity::RatePer},
    platform::{Fees, Named, Offer},
};

/// What a finished job costs at one offer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostCard {
    /// The job.
    pub job: String,
    /// The offer.
    pub offer: String,
    /// The price as quoted, with the day and the source.
    pub price: String,
    /// What it comes to; null: it cannot be told.
    pub total: Option<Money>,
    /// The least and the most that it comes to over the repeats of the measured throughput; left out for a single run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<MoneyRange>,
    /// Something is not known: the true total is this or more.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lower_bound: bool,
    /// A steady state under 30 min stands behind the throughput.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub short: bool,
    /// Why the throughput only stands in for the job's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// Why there is no total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Hours of work at the measured throughput.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hours: Option<f64>,
    /// Hours on the bill.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billed_hours: Option<f64>,
    /// What a million units of work come to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_million: Option<Money>,
    /// The terms in order; the money of all lines adds up to the total.
    pub lines: Vec<CostLine>,
    /// The tasks behind the throughput.
    pub evidence: Vec<String>,
}

impl CostCard {
    /// The terms that are not known, each once.
    pub(crate) fn open_terms(&self) -> Vec<&str> {
        let mut terms: Vec<&str> = self.lines.iter().filter(|l| l.unknown).map(|l| l.term.as_str()).collect();
        terms.dedup();
        terms
    }
}

/// A least and a most.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MoneyRange {
    /// The least.
    pub low: Money,
    /// The most.
    pub high: Money,
}

/// One term of a cost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CostLine {
    /// Its name.
    pub term: String,
    /// Its formula with the numbers filled in.
    pub formula: String,
    /// What it adds; null for a step that is no money, and where it is not known.
    pub money: Option<Money>,
    /// Not known.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
}

/// Where a job runs and what that is charged.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// The offer's key.
    pub offer_id: &'a str,
    /// The offer.
    pub offer: &'a Offer,
    /// What is charged beside compute.
    pub fees: &'a Fees,
    /// How many accelerators the measured instance has.
    pub instance_gpus: Option<u32>,
    /// The currency of the report.
    pub currency: &'a Currency,
    /// Exchange rates.
    pub rates: &'a Named<ExchangeRate>,
}

/// What a job costs at an offer.
pub fn cost(job_id: &str, job: &Job, terms: &Terms<'_>, evidence: &Evidence<'_>) -> CostCard {
    let offer = terms.offer;
    let mut card = CostCard {
        job: job_id.to_owned(),
        offer: terms.offer_id.to_owned(),
        price: format!("{} ({}, {})", *offer.rate, offer.source, offer.seen_on),
        total: None,
        spread: None,
        lower_bound: false,
        short: false,
        proxy: None,
        reason: None,
        hours: None,
        billed_hours: None,
        per_million: None,
        lines: Vec::new(),
        evidence: Vec::new(),
    };
    let measured = evidence.stage(&job.from).and_then(|stage| Ok((stage, throughput(job, stage, evidence)?)));
    let (stage, metric) = match measured {
        Ok(found) => found,
        Err(why) => {
            card.reason = Some(format!("no measured throughput: {why}"));
            return card;
        }
    };
    card.proxy = proxy(job, stage);
    card.short = metric.short;
    card.evidence = query::evidence(metric);
    let sheet = |per_second: f64| Sheet::fill(job, terms, evidence, metric, per_second);
    let sheet_now = match sheet(metric.median) {
        Ok(sheet) => sheet,
        Err(why) => {
            card.reason = Some(why);
            return card;
        }
    };
    let repeats = query::spread(metric).filter(|_| metric.per_run().len() > 1);
    card.spread = repeats.and_then(|(slow, fast)| {
        let (low, high) = (sheet(fast).ok()?.total?, sheet(slow).ok()?.total?);
        Some(MoneyRange { low, high })
    });
    card.hours = Some(sheet_now.hours);
    card.billed_hours = Some(sheet_now.billed);
    card.per_million = sheet_now.total.as_ref().and_then(|t| terms::per_million(t, job.work.amount));
    card.lower_bound = sheet_now.lines.iter().any(|l| l.unknown);
    if sheet_now.total.is_none() {
        card.reason = Some(format!("the compute itself cannot be told in {}", terms.currency));
    }
    card.total = sheet_now.total;
    card.lines = sheet_now.lines;
    card
}

/// Why a stage's throughput only stands in for the job's own.
fn proxy(job: &Job, stage: &StageRef) -> Option<String> {
    let ran = stage.workload.as_deref().unwrap_or("no workload");
    if stage.reference {
        return Some(format!("{} ran planrun's reference workload {ran}, not the job's own", stage.id));
    }
    let wanted = job.workload.as_ref().filter(|w| Some(w.as_str()) != stage.workload.as_deref())?;
    Some(format!("{} ran {ran}, the job is {}", stage.id, wanted.as_str()))
}

/// The series that counts the job's unit per second on the job's number of accelerators.
fn throughput<'a>(job: &Job, stage: &StageRef, evidence: &Evidence<'a>) -> Result<&'a MetricCard, String> {
    let unit = format!("{}/s", job.work.unit);
    let of_stage = || evidence.metrics.iter().filter(|m| m.stage == stage.id);
    let fits = |m: &&MetricCard| {
        m.unit.as_str() == unit && m.labels.0.get("gpus").is_none_or(|n| *n == job.gpus.to_string())
    };
    let name = format!("{}_per_second", job.work.unit);
    let mut fit = of_stage().filter(fits);
    match (fit.next(), fit.next()) {
        (Some(metric), None) => Ok(metric),
        (Some(_), Some(_)) => of_stage()
            .filter(fits)
            .find(|m| m.name == name)
            .ok_or_else(|| format!("{} reports several figures in {unit}", stage.id)),
        (None, _) if of_stage().next().is_some() => {
            Err(format!("{} reports nothing in {unit} for {} accelerators", stage.id, job.gpus))
        }
        (None, _) => {
            let path =
                MetricPath { stage: Some(stage.id.clone()), name, labels: crate::measure::Labels::none() };
            evidence.metric(&path)
        }
    }
}

/// A figure in hours, of a stage kind that may not exist.
fn hours_of(evidence: &Evidence<'_>, kind: &str, names: &[&str]) -> Option<f64> {
    let metric = names.iter().find_map(|name| {
        let path = MetricPath {
            stage: Some(kind.to_owned()),
            name: (*name).to_owned(),
            labels: crate::measure::Labels::none(),
        };
        evidence.metric(&path).ok()
    })?;
    metric.unit.convert(metric.median, &crate::measure::Unit::new("h"))
}

fn share_of(evidence: &Evidence<'_>, name: &str) -> Option<f64> {
    let path = MetricPath {
        stage: Some("soak".to_owned()),
        name: name.to_owned(),
        labels: crate::measure::Labels::none(),
    };
    evidence.metric(&path).ok().map(|m| m.median)
}

/// Names under which a checkpoint stage tells how long a save blocks and a restore takes.
const SAVE: [&str; 4] = ["blocked_save_time", "save_blocked_seconds", "blocked_seconds", "save_seconds"];
const RESTORE: [&str; 2] = ["restore_time", "restore_seconds"];

struct Sheet<'a> {
    terms: &'a Terms<'a>,
    lines: Vec<CostLine>,
    total: Option<Money>,
    hours: f64,
    billed: f64,
}

/// Hours with enough digits to redo a sum by hand.
fn h(hours: f64) -> String {
    format!("{} h", figure::digits(hours, 7))
}

impl<'a> Sheet<'a> {
    fn fill(
        job: &Job,
        terms: &'a Terms<'a>,
        evidence: &Evidence<'_>,
        metric: &MetricCard,
        per_second: f64,
    ) -> Result<Self, String> {
        if !per_second.is_finite() || per_second <= 0.0 {
            return Err(format!("{} is not above 0", metric.id()));
        }
        let offer = terms.offer;
        let hours = job.work.amount / per_second / 3600.0;
        let mut sheet = Sheet { terms, lines: Vec::new(), total: None, hours, billed: hours };
        sheet.step(
            "work",
            format!(
                "{} / {} {} ({}) / 3600 = {}",
                job.work,
                figure::digits(per_second, 7),
                metric.unit,
                metric.id(),
                h(hours)
            ),
        );
        let instances = match terms.instance_gpus {
            Some(gpus) if gpus > 0 => job.gpus.div_ceil(gpus).max(1),
            _ => 1,
        };
        let one = terms::hourly(&offer.rate, terms.instance_gpus)?;
        let price = one.times(f64::from(instances)).ok_or("the price is no amount")?;
        let per = match (offer.rate.per, terms.instance_gpus) {
            (RatePer::GpuHour, Some(gpus)) => format!(" × {gpus} GPUs"),
            _ => String::new(),
        };
        let machines = if instances > 1 { format!(" × {instances} instances") } else { String::new() };
        let price_text = format!("{}{per}{machines}", *offer.rate);
        sheet.add("compute", format!("{price_text} × {}", h(hours)), price.times(hours));
        let useful = sheet.stability(hours, offer, evidence, &price);
        let (up, starts) = sheet.rework(job, useful, instances, evidence, &price);
        sheet.bill(up, starts, &price);
        if let Some(headroom) = job.headroom.filter(|x| *x > 0.0) {
            let formula = format!("{} × {price_text} × {}", figure::digits(headroom, 7), h(sheet.billed));
            let money = price.times(sheet.billed * headroom);
            sheet.add("headroom", formula, money);
        }
        sheet.fees(job);
        // What the rest comes to is not what the job costs.
        if sheet.lines.iter().any(|l| l.term == "compute" && l.unknown) {
            sheet.total = None;
        }
        Ok(sheet)
    }

    fn step(&mut self, term: &str, formula: String) {
        self.lines.push(CostLine { term: term.to_owned(), formula, money: None, unknown: false });
    }

    fn unknown(&mut self, term: &str, formula: String) {
        self.lines.push(CostLine { term: term.to_owned(), formula, money: None, unknown: true });
    }

    /// Adds an amount, in the report's currency.
    fn add(&mut self, term: &str, mut formula: String, money: Option<Money>) {
        let Some(money) = money else { return self.unknown(term, format!("{formula}: beyond any amount")) };
        let to = self.terms.currency;
        let money = if money.currency == *to {
            Some(money)
        } else {
            let (from, rates) = (&money.currency, self.terms.rates);
            let direct = rates.get(from.code()).filter(|r| r.to == *to).map(|r| (r, false));
            let inverse = || rates.get(to.code()).filter(|r| r.to == *from).map(|r| (r, true));
            let Some((rate, divide)) = direct.or_else(inverse) else {
                return self.unknown(term, format!("{formula} = {money}: no rate from {from} to {to}"));
            };
            let (sign, pair) =
                if divide { ("/", format!("{from}/{to}")) } else { ("×", format!("{to}/{from}")) };
            formula = format!("{formula} {sign} {} {pair} ({}, {})", rate.rate, rate.source, rate.seen_on);
            terms::exchange(&money, rate.rate, divide, to)
        };
        if let Some(money) = &money {
            let sum = self.total.as_ref().map_or_else(|| Ok(money.clone()), |t| t.add(money));
            if let Ok(sum) = sum {
                self.total = Some(sum);
            }
        }
        let unknown = money.is_none();
        self.lines.push(CostLine { term: term.to_owned(), formula, money, unknown });
    }

    /// Stalls, fluctuation and host faults: time divides by the stability coefficient. Where the offer's
    /// interruptions are a term of their own, a coefficient that contains interruptions is left out, so that
    /// nothing counts twice.
    fn stability(&mut self, hours: f64, offer: &Offer, evidence: &Evidence<'_>, price: &Money) -> f64 {
        let (all, seen) =
            (share_of(evidence, "stability"), share_of(evidence, "interruptions").unwrap_or(0.0));
        let apart = offer.interruptions.is_some() && seen > 0.0;
        let measured = if apart { share_of(evidence, "stability_running") } else { all };
        let Some(s) = measured.filter(|s| *s > 0.0 && *s <= 1.0) else {
            let text = match (all, measured) {
                (_, Some(s)) => format!("{} leaves no useful time, counted as 1", figure::digits(s, 7)),
                (Some(all), None) => format!(
                    "{} holds {} interruptions, which are a term below; outside of them: not measured, counted as 1",
                    figure::digits(all, 7),
                    figure::number(seen)
                ),
                (None, None) => "not measured, counted as 1".to_owned(),
            };
            self.unknown("stability", text);
            return hours;
        };
        let s_text = figure::digits(s, 7);
        let useful = hours / s;
        let formula = format!("({} / {s_text} − {}) × {price}/h", h(hours), h(hours));
        self.add("stability", formula, price.times(useful - hours));
        useful
    }

    /// Expected billed hours and starts.
    fn rework(
        &mut self,
        job: &Job,
        useful: f64,
        instances: u32,
        evidence: &Evidence<'_>,
        price: &Money,
    ) -> (f64, f64) {
        let Some(share) = self.terms.offer.interruptions else { return (useful, 1.0) };
        let rate = terms::poisson(share.probability) * f64::from(instances);
        let save = hours_of(evidence, "checkpoint", &SAVE);
        if job.checkpoints.is_some() && save.is_none() {
            self.unknown(
                "interruptions",
                format!(
                    "rate −ln(1 − {}) = {}/h; how long a checkpoint blocks was not measured",
                    share.probability,
                    figure::digits(rate, 4)
                ),
            );
            return (useful, 1.0);
        }
        let start = hours_of(evidence, "cold_start", &["ready"]);
        let restore = hours_of(evidence, "checkpoint", &RESTORE);
        let restart = start.unwrap_or(0.0) + restore.unwrap_or(0.0);
        let save = if job.checkpoints.is_some() { save.unwrap_or(0.0) } else { 0.0 };
        let interval = job.checkpoints.is_some().then(|| terms::young(save, rate));
        let (up, failures) = Interruptions { rate, restart, interval, save }.expected(useful);
        if start.is_none() {
            self.unknown(
                "restart",
                "time from an interruption to training again was not measured: taken as 0".to_owned(),
            );
        }
        if job.checkpoints.is_some() && restore.is_none() {
            let text = "time to read a checkpoint back was not measured: taken as 0";
            self.unknown("restart", text.to_owned());
        }
        let (rate_text, up_text) = (figure::digits(rate, 7), h(up));
        let (n, tau) = match interval {
            Some(tau) if tau < useful => (useful / tau, tau),
            _ => (1.0, useful),
        };
        let blocked = if n > 1.0 { save } else { 0.0 };
        let formula = format!(
            "W = {}, λ = −ln(1 − {}){} = {rate_text}/h, R = {}, C = {}, τ = {}: {} × e^(λR) × (e^(λ(τ + C)) − 1) / λ = \
             {up_text} billed, {} interruptions; (that − W) × {price}/h",
            h(useful),
            share.probability,
            if instances > 1 { format!(" × {instances}") } else { String::new() },
            h(restart),
            h(blocked),
            h(tau),
            figure::digits(n, 7),
            figure::digits(failures, 4),
        );
        self.add("interruptions", formula, price.times(up - useful));
        if up.is_finite() { (up, 1.0 + failures) } else { (useful, 1.0) }
    }

    /// What billing adds to the hours used: granularity, minimum, blocks.
    fn bill(&mut self, up: f64, starts: f64, price: &Money) {
        let offer = self.terms.offer;
        let in_hours = |d: Option<crate::measure::quantity::Duration>| d.map_or(0.0, |d| d.seconds / 3600.0);
        let billing = Billing {
            granularity: offer.granularity.map_or(1.0, |d| d.seconds) / 3600.0,
            minimum: in_hours(offer.minimum),
            term: in_hours(offer.term),
        };
        let single = offer.interruptions.is_none();
        self.billed = if single { billing.billed(up) } else { billing.expected(up, starts) };
        let rule = match (offer.term, offer.granularity, offer.minimum) {
            (Some(term), ..) => format!("whole blocks of {term}"),
            (_, granularity, minimum) => {
                let to = granularity.map_or("1s (not stated, taken)".to_owned(), |g| g.to_string());
                let least = minimum.map_or(String::new(), |m| format!(", at least {m} each start"));
                format!("rounded up to {to}{least}")
            }
        };
        let starts =
            if single { String::new() } else { format!(" over {} starts", figure::digits(starts, 4)) };
        let formula =
            format!("{} used, {} billed ({rule}{starts}): the difference × {price}/h", h(up), h(self.billed));
        let money = price.times(self.billed - up);
        self.add("billing", formula, money);
    }

    fn fees(&mut self, job: &Job) {
        let fees = self.terms.fees;
        if let Some(kept) = &job.storage {
            let hours = kept.duration.hours();
            match fees.storage.as_deref() {
                Some(price) => {
                    let formula = format!("{} × {price} × {} / {MONTH_HOURS} h", kept.size, h(hours));
                    self.add("storage", formula, terms::storage(price, kept.size, hours));
                }
                None => self
                    .unknown("storage", format!("{} for {}: the fee is not known", kept.size, kept.duration)),
            }
        }
        if let Some(size) = job.checkpoints {
            match fees.snapshot.as_deref() {
                Some(price) => {
                    let formula = format!("{size} × {price} × {} / {MONTH_HOURS} h", h(self.billed));
                    let money = terms::storage(price, size, self.billed);
                    self.add("snapshot", formula, money);
                }
                None => self.unknown("snapshot", format!("one checkpoint of {size}: the fee is not known")),
            }
        }
        if let Some(size) = job.egress {
            match fees.egress.as_deref() {
                Some(price) => self.add("egress", format!("{size} × {price}"), terms::traffic(price, size)),
                None => self.unknown("egress", format!("{size}: the fee is not known")),
            }
        }
        if let Some(labour) = &job.labour {
            let formula = format!("{} h × {}", labour.hours, *labour.rate);
            self.add("labour", formula, labour.rate.money.times(labour.hours));
        }
    }
}
