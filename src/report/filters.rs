//! What templates can call: escapes, numbers as people read them, bars and curves.
//!
//! Not here: what the numbers mean. A filter changes the look of a value, never the value.

#![allow(clippy::needless_pass_by_value, reason = "minijinja hands over its arguments by value")]

use std::collections::{BTreeMap, BTreeSet};

use minijinja::{Environment, Error, ErrorKind, Value, value::Serde};
use serde::Deserialize;

use super::{escape, svg};
use crate::{
    measure::{Better, Labels, Money, Unit, quantity::Bound},
    score::figure,
};

fn safe(text: String) -> Value {
    Value::from_safe_string(text)
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

const LOSS: &str = "loss";

fn number(value: &Value) -> Option<f64> {
    f64::try_from(value.clone()).ok()
}

/// Factor and unit to show a value in. A number without a unit that gets neither better nor worse, such as a loss,
/// is no share.
fn scale(value: f64, unit: &Unit, better: Better, loss: bool) -> (f64, String) {
    if unit.as_str() == "1" && (better == Better::Neither || loss) {
        (1.0, String::new())
    } else {
        figure::scale(value, unit)
    }
}

/// The figures of a metric as text in one unit.
#[derive(Deserialize)]
struct Metric {
    kind: String,
    name: String,
    unit: Unit,
    better: Better,
    median: f64,
    mean: f64,
    min: f64,
    max: f64,
    stddev: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    #[serde(default)]
    few_samples: Vec<String>,
}

fn shown(metric: Serde<Metric>) -> Value {
    let m = metric.0;
    // A program's own number without a unit is no share either.
    let plain = m.kind == "command" || m.name == LOSS;
    let (factor, unit) = scale(m.median, &m.unit, m.better, plain);
    let n = |v: f64| figure::number(v / factor);
    let opt = |v: Option<f64>, name: &str| {
        let mark = if m.few_samples.iter().any(|f| f == name) { "*" } else { "" };
        v.map_or_else(String::new, |v| n(v) + mark)
    };
    Value::from_pairs([
        ("unit", Value::from(unit)),
        ("median", safe(n(m.median))),
        ("mean", safe(n(m.mean))),
        ("min", safe(n(m.min))),
        ("max", safe(n(m.max))),
        ("stddev", safe(opt(m.stddev, "stddev"))),
        ("p95", safe(opt(m.p95, "p95"))),
        ("p99", safe(opt(m.p99, "p99"))),
        ("few", Value::from(!m.few_samples.is_empty())),
    ])
}

#[derive(Deserialize)]
struct Identity {
    stage: String,
    name: String,
    #[serde(default)]
    labels: Labels,
}

fn metric_id(m: Serde<Identity>) -> String {
    format!("{}.{}{}", m.0.stage, m.0.name, m.0.labels)
}

/// A fact about a host as text; a list as its items.
fn fact(v: Serde<serde_json::Value>) -> String {
    match v.0 {
        serde_json::Value::Null => "–".to_owned(),
        serde_json::Value::String(s) => s,
        serde_json::Value::Array(items) => {
            let items: Vec<String> = items.into_iter().map(|i| fact(Serde(i))).collect();
            items.join(", ")
        }
        other => other.to_string(),
    }
}

#[derive(Deserialize)]
struct Hosts {
    title: String,
    environment: BTreeMap<String, Facts>,
}

type Facts = BTreeMap<String, serde_json::Value>;

/// What says which machine it was, in this order.
const IDENTITY: [&str; 14] = [
    "gpu.names",
    "gpu.name",
    "gpu.driver_count",
    "gpu.pci_count",
    "cpu.model",
    "cpu.affinity",
    "memory.effective_bytes",
    "os.kernel",
    "os.name",
    "nvidia.driver_version",
    "cuda.toolkit_version",
    "torch.version",
    "container.kind",
    "machine.hypervisor",
];

/// Whether a fact is another one on every machine, or at every look, so that a difference says nothing.
fn is_of_the_moment(name: &str) -> bool {
    const GROUPS: [&str; 5] = ["host.", "pressure.", "cgroup.path", "cpu.steal_", "memory.available_bytes"];
    const ENDINGS: [&str; 5] = [".uuid", ".free_bytes", ".pcie_link", "cpu.periods", "memory.oom_kills"];
    GROUPS.iter().any(|g| name.starts_with(g))
        || ENDINGS.iter().any(|e| name.ends_with(e))
        || name.starts_with("cpu.throttled_")
}

/// The names of all accelerators as one fact: `8 x NVIDIA H100`.
fn gpu_names(facts: &Facts) -> Option<serde_json::Value> {
    let mut count: BTreeMap<&str, usize> = BTreeMap::new();
    for (name, value) in facts {
        let of_device = name.strip_prefix("gpu.").and_then(|rest| rest.rsplit_once('.'));
        if let (Some((_, "name")), Some(gpu)) = (of_device, value.as_str()) {
            *count.entry(gpu).or_default() += 1;
        }
    }
    let each: Vec<String> = count.iter().map(|(gpu, n)| format!("{n} x {gpu}")).collect();
    (!each.is_empty()).then(|| each.join(", ").into())
}

/// The facts that a short report shows, a column for each machine: what says which one it was, then what differs.
fn environment(platforms: Serde<Vec<Hosts>>) -> Value {
    let mut columns: Vec<(String, Facts)> = Vec::new();
    for p in platforms.0 {
        for (endpoint, mut facts) in p.environment {
            if let Some(names) = gpu_names(&facts) {
                facts.insert("gpu.name".to_owned(), names);
            }
            columns.push((format!("{} ({endpoint})", p.title), facts));
        }
    }
    let names: BTreeSet<&str> =
        columns.iter().flat_map(|(_, facts)| facts.keys().map(String::as_str)).collect();
    let differs = |name: &str| {
        let mut values = columns.iter().filter_map(|(_, facts)| facts.get(name));
        let first = values.next();
        values.any(|v| Some(v) != first)
    };
    let known = IDENTITY.into_iter().filter(|name| names.contains(name));
    let rest = names.iter().copied();
    let rest = rest.filter(|n| !IDENTITY.contains(n) && !is_of_the_moment(n) && differs(n));
    let rows: Vec<Value> = known
        .chain(rest)
        .map(|name| {
            let value =
                |facts: &Facts| facts.get(name).map_or_else(|| "–".to_owned(), |v| fact(Serde(v.clone())));
            let values: Vec<String> = columns.iter().map(|(_, facts)| value(facts)).collect();
            Value::from_pairs([("name", Value::from(name)), ("values", Value::from(values))])
        })
        .collect();
    let titles: Vec<String> = columns.iter().map(|(title, _)| title.clone()).collect();
    Value::from_pairs([("columns", Value::from(titles)), ("rows", Value::from(rows))])
}

fn figure_filter(value: &Value, unit: &Value) -> String {
    match (number(value), unit.as_str()) {
        (Some(v), Some(unit)) => figure::with_unit(v, &Unit::new(unit.to_owned())),
        (Some(v), None) => figure::number(v),
        (None, _) => String::new(),
    }
}

#[derive(Deserialize)]
struct Expected {
    bound: String,
    value: Option<f64>,
}

/// The value of an expectation in the unit of its bound.
fn expected_value(e: Serde<Expected>) -> String {
    let Some(value) = e.0.value else { return "–".to_owned() };
    let unit = match e.0.bound.parse() {
        Ok(Bound::Number { unit: Some(unit), .. }) => unit.to_string(),
        _ => String::new(),
    };
    // Rounded further it could read as if it held.
    figure::join(&figure::digits(value, 9), &unit)
}

#[derive(Deserialize)]
struct Ends {
    low: f64,
    high: f64,
}

fn range(value: Serde<Ends>) -> String {
    figure::range(value.0.low, value.0.high)
}

fn points(value: &Value) -> String {
    number(value).map_or_else(String::new, figure::points)
}

fn percent(value: &Value) -> String {
    number(value).map_or_else(String::new, |v| format!("{} %", figure::digits(v * 100.0, 3)))
}

/// Money rounded to cents; what is no money stays as it is.
fn money(value: &Value) -> String {
    let text = text(value);
    text.parse::<Money>().map_or(text, |m| format!("{} {}", m.rounded(), m.currency))
}

fn hours(value: &Value) -> String {
    number(value).map_or_else(String::new, |v| format!("{} h", figure::number(v)))
}

/// A metric then and now, as the comparison holds it.
#[derive(Deserialize)]
struct Delta {
    id: String,
    unit: Unit,
    better: Better,
    old: Option<Side>,
    new: Option<Side>,
    call: String,
    direction: Option<String>,
}

#[derive(Deserialize)]
struct Side {
    median: f64,
    low: f64,
    high: f64,
}

/// One side of a comparison, in a unit that fits both, with its range where there is one.
fn side(d: &Delta, side: Option<&Side>) -> String {
    let Some(s) = side else { return "–".to_owned() };
    let fit = d.new.as_ref().or(d.old.as_ref()).map_or(s.median, |x| x.median);
    let name = d.id.split('{').next().and_then(|path| path.split_once('.')).map(|(_, name)| name);
    let (factor, unit) = scale(fit, &d.unit, d.better, name == Some(LOSS));
    let n = |v: f64| figure::number(v / factor);
    let text = figure::join(&n(s.median), &unit);
    if n(s.low) == n(s.high) { text } else { format!("{text} ({}–{})", n(s.low), n(s.high)) }
}

/// The call with its direction: `likely_worse`, `within_noise`.
fn call(d: Serde<Delta>) -> String {
    match (d.0.call.as_str(), d.0.direction) {
        ("likely", Some(direction)) => format!("likely_{direction}"),
        (call, _) => call.to_owned(),
    }
}

fn plus(v: f64, text: String) -> String {
    if v > 0.0 { format!("+{text}") } else { text.replace('-', "−") }
}

/// A relative change in percent, with its sign.
fn signed(value: &Value) -> String {
    number(value).map_or_else(String::new, |v| plus(v, format!("{} %", figure::digits(v * 100.0, 3))))
}

/// How far the two ends of a score moved: one number where both moved alike.
fn shift(value: Serde<Ends>) -> String {
    let (low, high) = (figure::points(value.0.low), figure::points(value.0.high));
    let (low, high) = (plus(value.0.low, low), plus(value.0.high, high));
    if low == high { low } else { format!("{low} … {high}") }
}

/// The text padded to so many columns.
fn pad(value: &Value, columns: usize) -> String {
    let text = escape::plain(&text(value));
    let wide = unicode_width::UnicodeWidthStr::width(text.as_str());
    text + &" ".repeat(columns.saturating_sub(wide))
}

fn bad(what: &str) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.to_owned())
}

#[derive(Deserialize)]
struct Labelled {
    name: String,
    stage: String,
    #[serde(default)]
    labels: Labels,
    median: f64,
}

#[derive(Deserialize)]
struct Measured {
    title: String,
    metrics: Vec<Labelled>,
}

/// The curve of speedups over the number of accelerators of all platforms, as SVG; empty where there is none.
fn scaling_curve(platforms: Serde<Vec<Measured>>) -> Value {
    let mut stages: Vec<&str> = Vec::new();
    for m in platforms.0.iter().flat_map(|p| &p.metrics).filter(|m| m.name == "speedup") {
        if !stages.contains(&m.stage.as_str()) {
            stages.push(&m.stage);
        }
    }
    let Some(stage) = stages.first() else { return safe(String::new()) };
    let lines: Vec<svg::Line> = platforms
        .0
        .iter()
        .map(|p| {
            let mut points: Vec<(f64, f64)> = p
                .metrics
                .iter()
                .filter(|m| m.name == "speedup" && m.stage == *stage)
                .filter_map(|m| Some((m.labels.0.get("gpus")?.parse().ok()?, m.median)))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            svg::Line { title: p.title.clone(), points }
        })
        .collect();
    safe(svg::curve(&lines))
}

/// A bar of points: what is sure, what is open, out of the weight.
fn bar(value: Serde<Ends>, of: &Value) -> Result<Value, Error> {
    let of = number(of).ok_or_else(|| bad("bar needs how many points there can be"))?;
    Ok(safe(svg::bar(value.0.low, value.0.high, of)))
}

/// Registers all filters and functions.
pub(crate) fn install(env: &mut Environment<'_>) {
    env.add_filter("cell", |v: &Value| safe(escape::markdown(&text(v))));
    env.add_filter("csvcell", |v: &Value| safe(escape::csv(&text(v))));
    env.add_filter("xml", |v: &Value| safe(escape::xml(&text(v))));
    env.add_filter("plain", |v: &Value| escape::plain(&text(v)));
    env.add_filter("number", |v: &Value| number(v).map_or_else(String::new, figure::number));
    env.add_filter("digits", |v: &Value, n: usize| {
        number(v).map_or_else(String::new, |v| figure::digits(v, n))
    });
    env.add_filter("figure", figure_filter);
    env.add_filter("shown", shown);
    env.add_filter("metric_id", metric_id);
    env.add_filter("fact", fact);
    env.add_filter("expected_value", expected_value);
    env.add_filter("range", range);
    env.add_filter("points", points);
    env.add_filter("percent", percent);
    env.add_filter("money", money);
    env.add_filter("before", |d: Serde<Delta>| side(&d.0, d.0.old.as_ref()));
    env.add_filter("now", |d: Serde<Delta>| side(&d.0, d.0.new.as_ref()));
    env.add_filter("call", call);
    env.add_filter("signed", signed);
    env.add_filter("shift", shift);
    env.add_filter("pad", pad);
    env.add_filter("hours", hours);
    env.add_filter("bar", bar);
    env.add_function("scaling_curve", scaling_curve);
    env.add_function("environment", environment);
}
