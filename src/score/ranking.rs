//! Candidates side by side: places as far as evidence and noise allow, and which weight decides.
//!
//! Not here: the score of one candidate (`judge`), verdicts (`scenario`).
//!
//! Invariant: a candidate is before another one only where the least it can have is more than the most the other
//! can.

use super::{
    figure::points,
    scorecard::{CriterionCard, Places, Range, RankRow},
};

/// The best and the worst place of each range among all of them, where more is better.
pub(crate) fn places(ranges: &[Range]) -> Vec<Places> {
    ranges
        .iter()
        .map(|r| Places {
            best: 1 + ranges.iter().filter(|o| o.low > r.high).count(),
            worst: ranges.iter().filter(|o| o.high >= r.low).count(),
        })
        .collect()
}

/// What a candidate brings to the ranking.
pub(crate) struct Entrant<'a> {
    pub(crate) platform: &'a str,
    pub(crate) rejected: bool,
    pub(crate) points: Range,
    pub(crate) open: Range,
}

/// Candidates by points; those that were rejected come last and have no place.
pub(crate) fn rank(entrants: &[Entrant<'_>]) -> Vec<RankRow> {
    let (mut bad, mut good): (Vec<&Entrant<'_>>, Vec<&Entrant<'_>>) =
        entrants.iter().partition(|e| e.rejected);
    let order = |a: &&Entrant<'_>, b: &&Entrant<'_>| {
        let middle = |e: &Entrant<'_>| e.points.low.midpoint(e.points.high);
        middle(b).total_cmp(&middle(a)).then(b.points.low.total_cmp(&a.points.low))
    };
    good.sort_by(order);
    bad.sort_by(order);
    let ranges: Vec<Range> = good.iter().map(|e| e.open).collect();
    let row = |e: &Entrant<'_>, places| RankRow { platform: e.platform.to_owned(), places, score: e.points };
    let placed = good.iter().zip(places(&ranges)).map(|(e, p)| row(e, Some(p)));
    placed.chain(bad.iter().map(|e| row(e, None))).collect()
}

/// Candidates in the order of the plan, all without a place: nothing that could rank them was measured.
pub(crate) fn unplaced(entrants: &[Entrant<'_>]) -> Vec<RankRow> {
    let row = |e: &Entrant<'_>| RankRow { platform: e.platform.to_owned(), places: None, score: e.points };
    entrants.iter().map(row).collect()
}

/// The smallest change of one weight, the others scaled along, that would bring another candidate level with the
/// first, in words.
///
/// # Formula
/// With `f` the share of a criterion's points that a candidate has, the lead is `Σ w × (f₁ - f₂)`. Moving weight
/// `w` by `d` scales the others by `(S - w - d) / (S - w)`; the lead is linear in `d` and is solved for 0.
pub(crate) fn sensitivity(
    first: (&str, &[CriterionCard]),
    others: &[(&str, &[CriterionCard])],
) -> Option<String> {
    let sum: f64 = first.1.iter().map(|c| c.weight).sum();
    let share = |c: &CriterionCard| c.points.low.midpoint(c.points.high) / c.weight;
    let mut least: Option<(f64, String)> = None;
    for (name, criteria) in others {
        let lead: f64 = first
            .1
            .iter()
            .zip(*criteria)
            .filter(|(a, _)| a.weight > 0.0)
            .map(|(a, b)| a.weight * (share(a) - share(b)))
            .sum();
        for (a, b) in first.1.iter().zip(*criteria).filter(|(a, _)| a.weight > 0.0 && a.weight < sum) {
            let own = share(a) - share(b);
            let rest = (lead - a.weight * own) / (sum - a.weight);
            let moved = -lead / (own - rest);
            let to = a.weight + moved;
            if !moved.is_finite() || moved.abs() < 1e-9 || to <= 1e-9 || to >= sum - 1e-9 {
                continue;
            }
            if least.as_ref().is_none_or(|(best, _)| moved.abs() < best - 1e-9) {
                let text = format!(
                    "{name} would draw level with {} if the weight of {} went from {} to {}, the others scaled along",
                    first.0,
                    a.title,
                    points(a.weight),
                    points(to)
                );
                least = Some((moved.abs(), text));
            }
        }
    }
    match least {
        Some((_, text)) => Some(text),
        None if others.is_empty() => None,
        None => Some(format!("no change of a single weight would take the first place from {}", first.0)),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn overlapping_ranges_share_places() {
        let r = |low, high| Range { low, high };
        let p: Vec<_> = places(&[r(80.0, 90.0), r(85.0, 85.0), r(60.0, 70.0)])
            .iter()
            .map(|p| (p.best, p.worst))
            .collect();
        assert_eq!(p, [(1, 2), (1, 2), (3, 3)]);
    }

    /// 60/40 weights, (1, 0) against (0, 1): the first leads by 20; level at 50, 10 away.
    #[test]
    fn the_deciding_weight_is_named() {
        let card = |title: &str, weight: f64, points: f64| CriterionCard {
            id: title.into(),
            title: title.into(),
            weight,
            points: Range::exactly(points),
            spread: None,
            value: None,
            unit: None,
            why: String::new(),
            evidence: vec![],
            parts: vec![],
            coverage: 1.0,
        };
        let a = [card("speed", 60.0, 60.0), card("price", 40.0, 0.0)];
        let b = [card("speed", 60.0, 0.0), card("price", 40.0, 40.0)];
        let text = sensitivity(("A", &a), &[("B", &b)]).unwrap();
        assert_eq!(
            text,
            "B would draw level with A if the weight of speed went from 60 to 50, the others scaled along"
        );
        assert!(
            sensitivity(("A", &a), &[("C", &[card("speed", 60.0, 0.0), card("price", 40.0, 0.0)])])
                .unwrap()
                .starts_with("no change")
        );
    }
}
