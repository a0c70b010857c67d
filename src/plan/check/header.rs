//! The first lines of a plan: the version, what it is called, limits, rates.

use super::Check;
use crate::{
    findings::Place,
    measure::{Currency, quantity::Date},
    plan::{model::SCHEMA, suggest},
    platform::Name,
};

impl Check<'_> {
    pub(super) fn header(&self) {
        let plan = self.plan;
        if plan.schema.value != SCHEMA && !self.context.is_unresolved(plan.schema.place) {
            let message = format!("schema {} is not known", self.context.shown(&plan.schema));
            self.context.error_with(
                plan.schema.place,
                message,
                Some(format!("this version reads schema {SCHEMA}")),
            );
        }
        for (key, text) in [("name", &plan.name), ("period", &plan.period)] {
            let place = self.place(&[key], self.root.place);
            let fits_a_file_name = !text.is_empty()
                && text.len() <= 64
                && !text.starts_with(['.', '-', ' '])
                && !text.contains("..")
                && !text.contains(|c: char| c.is_control() || "/\\:*?\"<>|".contains(c));
            if !fits_a_file_name && !self.context.is_unresolved(place) {
                let help =
                    Some("it becomes a part of the run folder's name: no `/`, at most 64 bytes".to_owned());
                self.context.error_with(
                    place,
                    format!("the {key} `{text}` cannot be part of a file name"),
                    help,
                );
            }
        }
        if let Some(lease) = &plan.lease
            && lease.seconds < 5.0
            && !self.context.is_unresolved(lease.place)
        {
            self.context.error(lease.place, "a lease under 5s ends before a lost packet is resent");
        } else if let Some(lease) = &plan.lease {
            self.span("lease", lease.place, lease.value);
        }
        self.limits();
        self.rates();
        for secret in &plan.secrets {
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if secret.value.is_empty() || !secret.value.chars().all(is_name) {
                // It may be the secret itself.
                let help = Some("list the variable's name, never its value".to_owned());
                self.context.error_with(secret.place, "this is no name of an environment variable", help);
            }
        }
    }

    fn limits(&self) {
        let Some(limits) = &self.plan.limits else { return };
        for limit in [&limits.warn_after, &limits.stop_after].into_iter().flatten() {
            self.span("limit", limit.place, limit.value);
        }
        if let (Some(warn), Some(stop)) = (&limits.warn_after, &limits.stop_after)
            && warn.seconds > stop.seconds
            && !self.context.unsure(limits.place)
        {
            self.context.warning(
                warn.place,
                format!("the warning never comes: all ends after {}", self.context.shown(stop)),
            );
        }
        if let Some(spend) = &limits.max_spend {
            self.convertible(spend.place, &spend.currency);
        }
    }

    fn rates(&self) {
        for (from, rate) in &self.plan.rates {
            if let Err(message) = from.value.parse::<Currency>() {
                self.context.error(from.place, message);
            }
            let of = |key: &str| self.place(&["rates", &from.value, key], from.place);
            if rate.to.code() == from.value {
                self.context.error(of("to"), format!("a rate from {} to itself", rate.to));
            }
            if !(rate.rate.is_finite() && rate.rate > 0.0) {
                self.context.error(of("rate"), "a rate that exchanges nothing");
            }
            self.seen_on(of("seen_on"), rate.seen_on);
        }
    }

    /// An amount in a currency that the report cannot show.
    pub(super) fn convertible(&self, place: Place, currency: &Currency) {
        let report = &self.plan.currency;
        let rates = &self.plan.rates;
        let direct = rates.get(currency.code()).is_some_and(|rate| rate.to == report.value);
        let inverse = rates.get(report.code()).is_some_and(|rate| rate.to == *currency);
        let is_lost = |code: &str| self.node(&["rates", code]).is_some() && rates.get(code).is_none();
        let lost = is_lost(currency.code()) || is_lost(report.code());
        let unknown = self.context.is_unresolved(place) || self.context.is_unresolved(report.place) || lost;
        if *currency != report.value && !direct && !inverse && !unknown {
            let help =
                format!("under `rates` write {currency}: {{ to: {report}, rate: …, seen_on: …, source: … }}");
            let message = format!("an amount in {currency}, in a plan that reports in {report}");
            self.context.error_with(place, message, Some(help));
        }
    }

    /// A day on which something was seen.
    pub(super) fn seen_on(&self, place: Place, day: Date) {
        if let Some(today) = self.today
            && day > today
            && !self.context.is_unresolved(place)
        {
            self.context.warning(place, format!("`{day}` is in the future: today is {today}"));
        }
    }

    /// A name that must be one of a few words.
    pub(super) fn one_of(&self, what: &str, name: &Name, words: &[&str]) -> bool {
        let known = words.contains(&name.value.as_str());
        if !known {
            let help = suggest::help(&name.value, words.iter().copied());
            self.context.error_with(name.place, format!("no {what} `{}`", name.value), help);
        }
        known
    }
}
