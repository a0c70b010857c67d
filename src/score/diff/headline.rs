//! What a manager must know of a comparison, in a sentence or two.

use super::{Call, Diff, Direction, Figure, MetricDelta, PlatformDiff, Presence};
use crate::{
    measure::compare,
    score::{figure, scorecard::VerdictKind},
};

/// Names in a row: `A, B and C`.
fn list(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [most @ .., last] => format!("{} and {last}", most.join(", ")),
    }
}

fn recommended(diff: &Diff, verdict: impl Fn(&PlatformDiff) -> Option<VerdictKind>) -> Vec<&str> {
    diff.platforms
        .iter()
        .filter(|p| verdict(p) == Some(VerdictKind::Recommended))
        .map(|p| p.title.as_str())
        .collect()
}

fn first(diff: &Diff) -> String {
    let before = recommended(diff, |p| p.old_verdict);
    let now = recommended(diff, |p| p.new_verdict);
    let number = |names: &[&str], one, many| if names.len() > 1 { many } else { one };
    let (was, is) = (number(&before, "was", "were"), number(&now, "is", "are"));
    match (before.as_slice(), now.as_slice()) {
        ([], []) => "No candidate was recommended before, and none is now.".to_owned(),
        (a, []) => format!("{} {was} recommended before, and no candidate is now.", list(a)),
        ([], b) => format!("{} {is} recommended now, and none was before.", list(b)),
        (a, b) if a == b => format!("{} {} recommended.", list(b), number(b, "stays", "stay")),
        (a, b) => format!("{} {is} recommended now; {} {was} before.", list(b), list(a)),
    }
}

/// One change in words, with what it lacks for evidence.
///
/// Labels are left out where the name alone is plain.
fn told(p: &PlatformDiff, m: &MetricDelta) -> String {
    let name = |m: &MetricDelta| m.id.split('{').next().unwrap_or_default().to_owned();
    let plain = p.metrics.iter().filter(|o| o.headline && name(o) == name(m)).count() == 1;
    let metric = if plain { name(m) } else { m.id.clone() };
    let likely = m.call == Call::Likely;
    let sure = if likely { "likely " } else { "" };
    let way = if m.direction == Some(Direction::Worse) { "worse" } else { "better" };
    let by = m.change.map(|c| {
        let sign = if c > 0.0 { "+" } else { "−" };
        format!("{sign}{} %", figure::digits(c.abs() * 100.0, 3))
    });
    let runs = |side: Option<Figure>| side.map_or(0, |f| f.runs);
    let few = runs(m.old).min(runs(m.new)) < compare::MIN_RUNS;
    let untested = if few { "too few runs to test" } else { "not borne out by the test" };
    let said: Vec<String> = by.into_iter().chain(likely.then(|| untested.to_owned())).collect();
    let said = if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) };
    format!("{metric} of {} is {sure}{way}{said}", p.title)
}

/// The headline of a comparison.
pub(crate) fn sentence(diff: &Diff) -> String {
    let mut out = vec![first(diff)];
    let of = |direction| {
        let mut found: Vec<(f64, String)> = diff
            .platforms
            .iter()
            .flat_map(|p| p.metrics.iter().map(move |m| (p, m)))
            .filter(|(_, m)| m.headline && m.direction == Some(direction))
            .map(|(p, m)| (m.change.map_or(f64::INFINITY, f64::abs), told(p, m)))
            .collect();
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        found
    };
    let (worse, better) = (of(Direction::Worse), of(Direction::Better));
    for found in [&worse, &better] {
        let texts: Vec<&str> = found.iter().take(3).map(|(_, text)| text.as_str()).collect();
        if !texts.is_empty() {
            let more = if found.len() > 3 { format!("; {} more", found.len() - 3) } else { String::new() };
            out.push(format!("{}{more}.", texts.join("; ")));
        }
    }
    if worse.is_empty() && better.is_empty() {
        out.push("No headline metric changed beyond noise.".to_owned());
    }
    for (presence, text) in [(Presence::Appeared, "New"), (Presence::Gone, "No longer there")] {
        let names: Vec<&str> =
            diff.platforms.iter().filter(|p| p.presence == presence).map(|p| p.title.as_str()).collect();
        if !names.is_empty() {
            out.push(format!("{text}: {}.", list(&names)));
        }
    }
    out.join(" ")
}
