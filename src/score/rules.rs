//! One value, one rule, points: the arithmetic of a rubric, with the formula filled in for the reader.
//!
//! Not here: where the value comes from, weights, gates.
//!
//! Invariant: points lie in 0 to the part's own points, whatever the rule says; a rule that cannot be applied gives
//! a reason and no points.

use super::{
    figure::{self, points},
    rubric::{Band, Level, Linear, PerEvent, Rule, Step},
};
use crate::measure::{Better, Unit};

/// What a rule looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) value: f64,
    pub(crate) unit: &'a Unit,
    pub(crate) better: Better,
}

impl Seen<'_> {
    fn text(&self) -> String {
        figure::with_unit(self.value, self.unit)
    }

    fn show(&self, level: f64) -> String {
        figure::with_unit(level, self.unit)
    }
}

/// Points out of `of` and the formula that gives them.
///
/// # Errors
/// Why the rule cannot be applied to this value.
pub(crate) fn apply(rule: &Rule, of: f64, seen: Seen<'_>) -> Result<(f64, String), String> {
    let (given, why) = match rule {
        Rule::Step(rule) => step(rule, of, seen)?,
        Rule::Linear(rule) => linear(rule, of, seen)?,
        Rule::Bands(bands) => {
            let bands: Vec<&Band> = bands.iter().map(|b| &b.value).collect();
            band(&bands, of, seen)?
        }
        Rule::PerEvent(rule) => per_event(rule, of, seen),
        Rule::Checklist(_) => return Err("a checklist counts answers, not values".to_owned()),
    };
    if given.is_finite() {
        Ok((given.clamp(0.0, of.max(0.0)), why))
    } else {
        Err(format!("the rule gives no number for {}", seen.text()))
    }
}

fn level(level: &Level, unit: &Unit) -> Result<f64, String> {
    level.value_in(unit).map_err(|e| format!("the rule does not fit the metric: {e}"))
}

/// # Formula
/// `max(0, of - deduct × ⌊distance / per⌋)`, the distance by which the value is worse than `full_at`.
fn step(rule: &Step, of: f64, seen: Seen<'_>) -> Result<(f64, String), String> {
    let (full, per) = (level(&rule.full_at, seen.unit)?, level(&rule.per, seen.unit)?);
    if per.is_nan() || per <= 0.0 {
        return Err("the rule's step is not above 0".to_owned());
    }
    let (distance, side) = match seen.better {
        Better::Higher => (full - seen.value, "under"),
        Better::Lower => (seen.value - full, "over"),
        Better::Neither => return Err("the metric has no better direction".to_owned()),
    };
    let (text, bound) = (seen.text(), seen.show(full));
    if distance <= 0.0 {
        return Ok((of, format!("{text} is {bound} or better: all {} points", points(of))));
    }
    // A whole number of steps must not fall short by rounding: 70 % - 60 % is one step of 10 %.
    let steps = (distance / per + 1e-9).floor();
    let given = (of - rule.deduct * steps).max(0.0);
    let why = format!(
        "{text} is {} {side} {bound}, {} complete steps of {}: {} − {} × {} = {}",
        difference(distance, seen.unit),
        steps,
        difference(per, seen.unit),
        points(of),
        points(rule.deduct),
        steps,
        floor_note(of - rule.deduct * steps, given),
    );
    Ok((given, why))
}

/// A distance between two shares is in percentage points.
fn difference(value: f64, unit: &Unit) -> String {
    if *unit == Unit::RATIO {
        format!("{} pp", figure::number(value * 100.0))
    } else {
        figure::with_unit(value, unit)
    }
}

fn floor_note(raw: f64, given: f64) -> String {
    if raw < given { format!("{}, not below {}", points(raw), points(given)) } else { points(given) }
}

/// # Formula
/// `of × clamp((value - zero) / (full - zero), 0, 1)`; the levels say which way is better.
fn linear(rule: &Linear, of: f64, seen: Seen<'_>) -> Result<(f64, String), String> {
    let (zero, full) = (level(&rule.zero_at, seen.unit)?, level(&rule.full_at, seen.unit)?);
    if zero.total_cmp(&full).is_eq() {
        return Err("the rule's two levels are the same".to_owned());
    }
    let share = (seen.value - zero) / (full - zero);
    let given = of * share.clamp(0.0, 1.0);
    let (text, z, f) = (seen.text(), seen.show(zero), seen.show(full));
    let why = if share <= 0.0 {
        format!("{text} is {z} or worse: no points")
    } else if share >= 1.0 {
        format!("{text} is {f} or better: all {} points", points(of))
    } else {
        format!("{} × ({text} − {z}) / ({f} − {z}) = {}", points(of), points(given))
    };
    Ok((given, why))
}

fn band(bands: &[&Band], of: f64, seen: Seen<'_>) -> Result<(f64, String), String> {
    for b in bands {
        let from = b.from.as_ref().map(|l| level(l, seen.unit)).transpose()?;
        let to = b.to.as_ref().map(|l| level(l, seen.unit)).transpose()?;
        if from.is_some_and(|from| seen.value < from) || to.is_some_and(|to| seen.value >= to) {
            continue;
        }
        let ends = match (from, to) {
            (None, None) => "anything".to_owned(),
            (None, Some(to)) => format!("under {}", seen.show(to)),
            (Some(from), None) => format!("{} and more", seen.show(from)),
            (Some(from), Some(to)) => format!("from {} to under {}", seen.show(from), seen.show(to)),
        };
        let text = seen.text();
        let Some(last) = b.points_to.filter(|last| last.total_cmp(&b.points).is_ne()) else {
            return Ok((b.points, format!("{text} lies in the band {ends}: {} points", points(b.points))));
        };
        let (Some(from), Some(to)) = (from, to) else {
            return Err(format!("the band {ends} slopes without two ends"));
        };
        let given = b.points + (last - b.points) * (seen.value - from) / (to - from);
        let why = format!(
            "{text} lies in the band {ends}: {} + ({} − {}) × ({text} − {f}) / ({t} − {f}) = {}",
            points(b.points),
            points(last),
            points(b.points),
            points(given.clamp(0.0, of)),
            f = seen.show(from),
            t = seen.show(to),
        );
        return Ok((given, why));
    }
    Err(format!("no band holds {}", seen.text()))
}

/// # Formula
/// `max(0, of - deduct × events)`.
fn per_event(rule: &PerEvent, of: f64, seen: Seen<'_>) -> (f64, String) {
    let events = seen.value.max(0.0);
    let raw = of - rule.deduct * events;
    let given = raw.max(0.0);
    let why = format!(
        "{} events: {} − {} × {} = {}",
        figure::number(events),
        points(of),
        points(rule.deduct),
        figure::number(events),
        floor_note(raw, given)
    );
    (given, why)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests state exact values")]
    use proptest::prelude::*;

    use super::*;
    use crate::findings::At;

    fn rule(yaml: &str) -> Rule {
        serde_yaml::from_str(yaml).unwrap()
    }

    fn give(yaml: &str, of: f64, value: f64, unit: &Unit, better: Better) -> f64 {
        apply(&rule(yaml), of, Seen { value, unit, better }).unwrap().0
    }

    /// Single card: 70 % of the peak for all, 3 less for each complete 10 points below; 69 % keeps all.
    #[test]
    fn steps_count_complete_tens() {
        let mfu =
            |v| give("step: {full_at: 70 %, per: 10 %, deduct: 3}", 20.0, v, &Unit::RATIO, Better::Higher);
        let expected =
            [(0.9, 20.0), (0.7, 20.0), (0.69, 20.0), (0.6, 17.0), (0.55, 17.0), (0.5, 14.0), (0.0, 0.0)];
        for (value, points) in expected {
            assert_eq!(mfu(value), points, "{value}");
        }
        // 0.7 - 0.6 is less than 0.1 in floating point and one step all the same.
        let s = |v| {
            give("step: {full_at: 0.7 s, per: 0.1 s, deduct: 3}", 20.0, v, &Unit::SECONDS, Better::Higher)
        };
        assert_eq!((s(0.6), s(0.601)), (17.0, 20.0));
    }

    #[test]
    fn a_step_shows_its_numbers() {
        let r = rule("step: {full_at: 70 %, per: 10 %, deduct: 3}");
        let seen = Seen { value: 0.55, unit: &Unit::RATIO, better: Better::Higher };
        let (_, why) = apply(&r, 20.0, seen).unwrap();
        assert_eq!(why, "55 % is 15 pp under 70 %, 1 complete steps of 10 pp: 20 − 3 × 1 = 17");
    }

    /// Scaling: even from 5x to 7x; `6.2x` is 12 of 20.
    #[test]
    fn linear_rises_between_its_levels() {
        let at = |v| give("linear: {zero_at: 5 x, full_at: 7 x}", 20.0, v, &Unit::TIMES, Better::Higher);
        for (value, points) in [(4.0, 0.0), (5.0, 0.0), (6.2, 12.0), (7.0, 20.0), (8.0, 20.0)] {
            assert!((at(value) - points).abs() < 1e-9, "{value}");
        }
        let down = give("linear: {zero_at: 10 s, full_at: 2 s}", 8.0, 4.0, &Unit::SECONDS, Better::Lower);
        assert_eq!(down, 6.0, "the levels say that less is better");
    }

    /// Support: 4 h and less gives 10, 12 h and more 5, even between: 8 h gives 7.5.
    #[test]
    fn bands_slope() {
        let yaml = "bands: [{to: 4 h, points: 10}, {from: 4 h, to: 12 h, points: 10, points_to: 5}, {from: 12 h, points: 5}]";
        let at = |h: f64| give(yaml, 10.0, h * 3600.0, &Unit::SECONDS, Better::Lower);
        for (hours, points) in [(3.7, 10.0), (4.0, 10.0), (8.0, 7.5), (12.0, 5.0), (80.0, 5.0)] {
            assert_eq!(at(hours), points, "{hours}");
        }
    }

    #[test]
    fn events_deduct_down_to_nothing() {
        let at = |k| give("per_event: {deduct: 5}", 20.0, k, &Unit::COUNT, Better::Lower);
        assert_eq!((at(0.0), at(1.0), at(4.0), at(9.0)), (20.0, 15.0, 0.0, 0.0));
    }

    #[test]
    fn a_rule_that_does_not_fit_gives_a_reason() {
        let seen = Seen { value: 3.0, unit: &Unit::BYTES_PER_SECOND, better: Better::Neither };
        for yaml in [
            "step: {full_at: 70 %, per: 10 %, deduct: 3}",
            "step: {full_at: 5 B/s, per: 1 B/s, deduct: 3}",
            "step: {full_at: 5 B/s, per: 0 B/s, deduct: 3}",
            "linear: {zero_at: 5 x, full_at: 7 x}",
            "linear: {zero_at: 5 B/s, full_at: 5 B/s}",
            "bands: [{from: 5 B/s, points: 1}]",
            "bands: [{points: 1, points_to: 2}]",
            "bands: []",
            "checklist: {}",
        ] {
            assert!(apply(&rule(yaml), 10.0, seen).is_err(), "{yaml}");
        }
    }

    fn any_rule() -> impl Strategy<Value = (Rule, bool)> {
        let l = |v: f64| Level { value: v, unit: Some(Unit::SECONDS) };
        let level = -50.0..50.0_f64;
        prop_oneof![
            (level.clone(), 0.1..20.0_f64, 0.0..9.0_f64).prop_map(move |(full, per, deduct)| {
                (Rule::Step(Step { full_at: l(full), per: l(per), deduct }), false)
            }),
            (level.clone(), 0.1..50.0_f64, any::<bool>()).prop_map(move |(zero, by, up)| {
                let full = if up { zero + by } else { zero - by };
                (Rule::Linear(Linear { zero_at: l(zero), full_at: l(full) }), up)
            }),
            (0.0..9.0_f64).prop_map(|deduct| (Rule::PerEvent(PerEvent { deduct }), false)),
            (level, 0.1..50.0_f64, 0.0..20.0_f64, 0.0..20.0_f64).prop_map(move |(from, by, a, b)| {
                let (most, least) = (a.max(b), a.min(b));
                let (x, y) = (Some(l(from)), Some(l(from + by)));
                let band = |from, to, points, points_to| At::nowhere(Band { from, to, points, points_to });
                let bands = vec![
                    band(None, x.clone(), most, None),
                    band(x, y.clone(), most, Some(least)),
                    band(y, None, least, None),
                ];
                (Rule::Bands(bands), false)
            }),
        ]
    }

    proptest! {
        #[test]
        fn points_stay_in_range_and_are_monotone(
            (rule, up) in any_rule(), of in 0.0..40.0_f64, a in -100.0..100.0_f64, b in -100.0..100.0_f64,
        ) {
            let better = if up { Better::Higher } else { Better::Lower };
            let give = |value| apply(&rule, of, Seen { value, unit: &Unit::SECONDS, better }).unwrap().0;
            let (less, more) = (give(a.min(b)), give(a.max(b)));
            prop_assert!((0.0..=of).contains(&less) && (0.0..=of).contains(&more));
            prop_assert!(if up { less <= more + 1e-9 } else { less + 1e-9 >= more }, "{} {}", less, more);
        }
    }
}
