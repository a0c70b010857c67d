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

/// A part of a value; undefined where it has none. Filters of tables look up what they need: to read a whole row, with
/// its samples, takes most of the time of a long report.
fn part(value: &Value, key: &str) -> Value {
    value.get_attr(key).unwrap_or_default()
}

fn wanted(value: &Value, key: &str) -> Result<f64, Error> {
    number(&part(value, key)).ok_or_else(|| bad(&format!("a number `{key}` is missing")))
}

fn unit(value: &Value) -> Unit {
    Unit::new(text(&part(value, "unit")))
}

fn labels(value: &Value) -> Result<Labels, Error> {
    let labels = part(value, "labels");
    if labels.is_undefined() { Ok(Labels::none()) } else { Labels::deserialize(labels) }
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
fn shown(metric: &Value) -> Result<Value, Error> {
    let is = |key: &str, word: &str| part(metric, key).as_str() == Some(word);
    // A program's own number without a unit is no share either.
    let plain = is("kind", "command") || is("name", LOSS);
    let median = wanted(metric, "median")?;
    let (factor, unit) = scale(median, &unit(metric), Better::deserialize(part(metric, "better"))?, plain);
    let n = |v: f64| figure::number(v / factor);
    let few: Vec<Value> = part(metric, "few_samples").try_iter().map(Iterator::collect).unwrap_or_default();
    let opt = |name: &str| {
        let mark = if few.iter().any(|f| f.as_str() == Some(name)) { "*" } else { "" };
        number(&part(metric, name)).map_or_else(String::new, |v| n(v) + mark)
    };
    Ok(Value::from_pairs([
        ("unit", Value::from(unit)),
        ("median", safe(n(median))),
        ("mean", safe(n(wanted(metric, "mean")?))),
        ("min", safe(n(wanted(metric, "min")?))),
        ("max", safe(n(wanted(metric, "max")?))),
        ("stddev", safe(opt("stddev"))),
        ("p95", safe(opt("p95"))),
        ("p99", safe(opt("p99"))),
        ("few", Value::from(!few.is_empty())),
    ]))
}

fn metric_id(metric: &Value) -> Result<String, Error> {
    let [stage, name] = ["stage", "name"].map(|key| text(&part(metric, key)));
    Ok(format!("{stage}.{name}{}", labels(metric)?))
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
fn environment(platforms: &Value) -> Result<Value, Error> {
    let mut columns: Vec<(String, Facts)> = Vec::new();
    for p in platforms.try_iter()? {
        let title = text(&part(&p, "title"));
        for (endpoint, mut facts) in BTreeMap::<String, Facts>::deserialize(part(&p, "environment"))? {
            if let Some(names) = gpu_names(&facts) {
                facts.insert("gpu.name".to_owned(), names);
            }
            columns.push((format!("{title} ({endpoint})"), facts));
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
    Ok(Value::from_pairs([("columns", Value::from(titles)), ("rows", Value::from(rows))]))
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

/// One side of a metric then and now, in a unit that fits both, with its range where there is one.
fn side(delta: &Value, key: &str) -> Result<String, Error> {
    let side = part(delta, key);
    let Some(median) = number(&part(&side, "median")) else { return Ok("–".to_owned()) };
    let fit = ["new", "old"].iter().find_map(|key| number(&part(&part(delta, key), "median")));
    let id = text(&part(delta, "id"));
    let name = id.split('{').next().and_then(|path| path.split_once('.')).map(|(_, name)| name);
    let better = Better::deserialize(part(delta, "better"))?;
    let (factor, unit) = scale(fit.unwrap_or(median), &unit(delta), better, name == Some(LOSS));
    let n = |v: f64| figure::number(v / factor);
    let (low, high) = (n(wanted(&side, "low")?), n(wanted(&side, "high")?));
    let text = figure::join(&n(median), &unit);
    Ok(if low == high { text } else { format!("{text} ({low}–{high})") })
}

/// The call with its direction: `likely_worse`, `within_noise`.
fn call(delta: &Value) -> String {
    let call = text(&part(delta, "call"));
    match part(delta, "direction").as_str() {
        Some(direction) if call == "likely" => format!("likely_{direction}"),
        _ => call,
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

/// The curve of speedups over the number of accelerators of all platforms, as SVG; empty where there is none.
fn scaling_curve(platforms: &Value) -> Result<Value, Error> {
    let (mut stage, mut lines) = (None, Vec::new());
    for p in platforms.try_iter()? {
        let mut points: Vec<(f64, f64)> = Vec::new();
        for m in part(&p, "metrics").try_iter()?.filter(|m| part(m, "name").as_str() == Some("speedup")) {
            // Of several stages the first is shown.
            let own = text(&part(&m, "stage"));
            let gpus = labels(&m)?.0.get("gpus").and_then(|n| n.parse().ok());
            if *stage.get_or_insert_with(|| own.clone()) == own {
                points.extend(gpus.zip(number(&part(&m, "median"))));
            }
        }
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        lines.push(svg::Line { title: text(&part(&p, "title")), points });
    }
    Ok(safe(if stage.is_some() { svg::curve(&lines) } else { String::new() }))
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
    env.add_filter("before", |d: &Value| side(d, "old"));
    env.add_filter("now", |d: &Value| side(d, "new"));
    env.add_filter("call", call);
    env.add_filter("signed", signed);
    env.add_filter("shift", shift);
    env.add_filter("pad", pad);
    env.add_filter("hours", hours);
    env.add_filter("bar", bar);
    env.add_function("scaling_curve", scaling_curve);
    env.add_function("environment", environment);
}
