//! Tests of whole reports over the example scorecard.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeSet;

use super::*;
use crate::{
    measure::Finite,
    record::{Cause, Expectation, OutcomeKind},
    score::{self, diff::diff, example, scorecard::MetricCard},
};

fn card() -> Scorecard {
    score::scorecard(&example::observations())
}

fn english(format: Format, card: &Scorecard) -> String {
    render(format, card, &Options::default()).unwrap()
}

fn with_template(name: &str, text: &str, card: &Scorecard) -> Result<String, ReportError> {
    let template = Some(Template { name: name.into(), text: text.into() });
    render(Format::Markdown, card, &Options { template, ..Options::default() })
}

fn slower() -> Diff {
    let speed = |tokens| example::Speed { tokens, spread: 0.01 };
    let made = |cloud| score::scorecard(&example::fold(&example::records(speed(5200.0), speed(cloud))));
    diff(&made(3900.0), &made(3120.0)).unwrap()
}

/// For the eye: `PLANRUN_LOOK=DIR cargo test --lib look -- --ignored` renders the templates as they stand on disk.
#[test]
#[ignore = "writes files to look at"]
fn look() {
    let Some(to) = std::env::var_os("PLANRUN_LOOK") else { return };
    let save = |language: Language, name: &str, show: &dyn Fn(&Options) -> Result<String, ReportError>| {
        let file = format!("{}/templates/{name}.j2", env!("CARGO_MANIFEST_DIR"));
        let template = Some(Template { name: name.to_owned(), text: std::fs::read_to_string(file).unwrap() });
        let text = show(&Options { language, template }).unwrap_or_else(|e| panic!("{e}: {}", e.source));
        std::fs::write(std::path::Path::new(&to).join(format!("{}.{name}", language.code())), text).unwrap();
    };
    for language in Language::ALL {
        for format in Format::ALL {
            save(language, format.file_name(), &|options| render(format, &card(), options));
        }
        for format in DiffFormat::ALL {
            save(language, format.template_name(), &|options| render_diff(format, &slower(), options));
        }
    }
}

/// The names of a public list of reports that broke: pipes, backslashes, line breaks, markup, formulas, nothing,
/// and a mark that turns the direction of writing.
fn hostile() -> Vec<String> {
    let rows: Vec<serde_json::Value> =
        serde_json::from_str(include_str!("../../fixtures/report/hostile-names.json")).unwrap();
    rows.iter().map(|r| r["name"].as_str().unwrap().to_owned()).collect()
}

/// The example with one metric for each hostile name, and the names everywhere else a text may come from.
fn hostile_card() -> Scorecard {
    let mut card = card();
    let model = card.platforms[0].metrics[0].clone();
    let metric = |name: &String| MetricCard { name: name.clone(), ..model.clone() };
    let all = hostile().join(" ");
    card.platforms[0].metrics = hostile().iter().map(metric).collect();
    card.platforms[0].title.clone_from(&all);
    card.plan.name.clone_from(&all);
    for task in &mut card.platforms[1].tasks {
        (task.outcome, task.reason) = (Some(OutcomeKind::Failed), all.clone());
    }
    for check in &mut card.platforms[1].checks {
        (check.reason, check.value) = (all.clone(), Some(all.clone()));
    }
    for f in &mut card.findings {
        f.text.clone_from(&all);
    }
    card
}

/// The cells of a Markdown table row: split at every pipe that no backslash escapes.
fn cells(line: &str) -> Vec<String> {
    let (mut out, mut escaped) = (vec![String::new()], false);
    let inner = line.strip_prefix('|').unwrap().strip_suffix('|').unwrap();
    for c in inner.chars() {
        if c == '|' && !escaped {
            out.push(String::new());
        } else if let Some(cell) = out.last_mut() {
            cell.push(c);
        }
        escaped = c == '\\' && !escaped;
    }
    out.into_iter().map(|c| c.trim().to_owned()).collect()
}

/// Case E01: 8 rows of 2 cells each, in Markdown, HTML and CSV, without the template asking for an escape.
#[test]
fn hostile_names_keep_their_rows() {
    let card = hostile_card();
    let show = |name, text| with_template(name, text, &card).unwrap();
    let md = show(
        "x.md.j2",
        "{% for m in card.platforms[0].metrics %}\n| {{ m.name }} | {{ m.n }} |\n{% endfor %}\n",
    );
    let rows: Vec<_> = md.lines().map(cells).collect();
    assert_eq!(rows.len(), 8);
    assert!(rows.iter().all(|r| r.len() == 2), "{rows:?}");
    assert_eq!(rows[1][0], "a\\\\\\|b", "a, three backslashes, pipe, b");
    assert_eq!((rows[2][0].as_str(), rows[6][0].as_str()), ("two lines", "(empty)"));
    let html = show(
        "x.html",
        "<table>{% for m in card.platforms[0].metrics %}<tr><td>{{ m.name }}</td><td>{{ m.n }}</td></tr>{% endfor %}</table>",
    );
    assert_eq!((html.matches("<tr>").count(), html.matches("<td>").count()), (8, 16));
    assert!(!html.contains("<script") && !html.contains('\u{202E}') && html.contains("⟨U+202E⟩"));
    let text =
        show("x.csv", "{% for m in card.platforms[0].metrics %}\n{{ m.name }},{{ m.n }}\n{% endfor %}\n");
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text.as_bytes());
    let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 8);
    assert!(rows.iter().all(|r| r.len() == 2));
    assert_eq!(&rows[4][0], "'=HYPERLINK(\"http://example.invalid\")");
}

#[test]
fn hostile_names_break_no_built_in_report() {
    let card = hostile_card();
    let md = english(Format::Markdown, &card);
    let mut width = 0;
    let mut previous = false;
    for line in md.lines() {
        if line.starts_with('|') {
            let n = cells(line).len();
            assert!(!previous || n == width, "{line}");
            (width, previous) = (n, true);
        } else {
            previous = false;
        }
    }
    assert!(!md.contains("<script"));
    let html = english(Format::Html, &card);
    assert!(!html.contains("<script") && !html.contains('\u{202E}'));
    for tag in ["table", "tr", "td", "section", "details", "div"] {
        let open = html.matches(&format!("<{tag}>")).count() + html.matches(&format!("<{tag} ")).count();
        assert_eq!(open, html.matches(&format!("</{tag}>")).count(), "{tag}");
    }
    let csv_text = english(Format::Csv, &card);
    let mut reader = csv::Reader::from_reader(csv_text.as_bytes());
    assert!(reader.records().all(|r| r.unwrap().len() == 13));
    let xml = english(Format::Junit, &card);
    assert!(!xml.contains("<script") && !xml.contains('\u{202E}'));
}

#[test]
fn every_language_has_the_same_words() {
    let keys = |l: Language| {
        let map: serde_json::Map<String, serde_json::Value> = serde_json::from_str(l.text()).unwrap();
        assert!(
            map.values()
                .all(|v| v.as_str().is_some_and(|s| !s.trim().is_empty() && !s.contains(['<', '&', '|'])))
        );
        map.keys().cloned().collect::<BTreeSet<_>>()
    };
    assert_eq!(keys(Language::En), keys(Language::Zh));
    let templates: String =
        Format::ALL.map(Format::template).concat() + &DiffFormat::ALL.map(DiffFormat::template).concat();
    for key in keys(Language::En) {
        let group = key.split('_').next().unwrap_or_default();
        let used =
            templates.contains(&format!("t.{key} ")) || templates.contains(&format!("word(\"{group}\""));
        assert!(used, "no template uses {key}");
    }
    let zh = Options { language: Language::Zh, ..Options::default() };
    for format in Format::ALL {
        render(format, &card(), &zh).unwrap();
    }
    for format in DiffFormat::ALL {
        render_diff(format, &slower(), &zh).unwrap();
    }
    assert!(render(Format::Markdown, &card(), &zh).unwrap().contains("## 测量结果"));
}

/// Counts in `JUnit` follow from its test cases: not run and unsupported are skipped, an unmet `expect` fails, one
/// without a value is an error and no pass.
#[test]
fn junit_counts_what_it_lists() {
    let mut card = card();
    let tasks = &mut card.platforms[0].tasks;
    tasks[0].outcome = None;
    tasks[1].outcome = Some(OutcomeKind::Unsupported);
    (tasks[2].outcome, tasks[2].cause) = (Some(OutcomeKind::TimedOut), Some(Cause::TimeLimit));
    let bound = |met| Expectation {
        metric: "mfu".into(),
        bound: ">= 0.35".into(),
        value: Finite::new(0.2).ok(),
        met,
    };
    tasks[4].expectations = vec![bound(None)];
    tasks[5].expectations = vec![bound(Some(true)), bound(Some(false))];
    let xml = english(Format::Junit, &card);
    let suite = xml.split("<testsuite ").nth(1).unwrap();
    assert!(
        suite.starts_with("name=\"rack\" tests=\"12\" failures=\"2\" errors=\"2\" skipped=\"2\""),
        "{suite}"
    );
    for (tag, n) in [("<skipped", 2), ("<failure", 2), ("<error", 2), ("<testcase", 12)] {
        assert_eq!(suite.matches(tag).count(), n, "{tag}");
    }
    let total = xml.lines().nth(1).unwrap();
    assert!(total.contains("tests=\"24\" failures=\"4\" errors=\"2\" skipped=\"2\""), "{total}");
}

#[test]
fn a_template_of_the_users_is_told_its_faults() {
    let card = card();
    let fault = |text: &str| with_template("mine.md", text, &card).unwrap_err();
    let e = fault("# {{ card.plan.name }}\n{{ card.pln.name }}\n");
    assert_eq!(e.to_string(), "render mine.md, line 2 (`{{ card.pln.name }}`)");
    assert!(e.source.to_string().contains("undefined"), "{}", e.source);
    assert_eq!(fault("ok\n{% for x in %}\n").line, Some(2));
    let endless = fault(
        "{% for a in range(9999) %}{% for b in range(9999) %}{% for c in range(99) %}x{% endfor %}{% endfor %}{% endfor %}",
    );
    assert!(endless.source.to_string().contains("fuel"), "{}", endless.source);
    assert_eq!(with_template("mine.txt", "{{ card.plan.name }}", &card).unwrap(), "two-cpus");
}

#[test]
fn reports_are_as_stored() {
    let card = card();
    for format in [Format::Markdown, Format::Csv, Format::Junit] {
        golden(&format!("fixtures/report/two-cpus.{}", format.file_name()), &english(format, &card));
    }
    let text = render_diff(DiffFormat::Text, &slower(), &Options::default()).unwrap();
    golden("fixtures/report/two-cpus.diff.txt", &text);
}

fn golden(path: &str, text: &str) {
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        std::fs::write(&file, text).unwrap();
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(known == text, "{path} differs: look at it after UPDATE_FIXTURES=1");
}

/// 10,000 metrics in one scorecard: rendered and compared in well under what a person notices.
#[test]
#[ignore = "timing: run it with --release"]
fn ten_thousand_rows_are_quick() {
    let mut card = card();
    let model = card.platforms[0].metrics.clone();
    card.platforms[0].metrics = (0..10_000)
        .map(|i| MetricCard { name: format!("metric_{i}"), ..model[i % model.len()].clone() })
        .collect();
    for format in Format::ALL {
        let start = std::time::Instant::now();
        let text = english(format, &card);
        eprintln!("{format:?}: {:?} for {} bytes", start.elapsed(), text.len());
    }
    let start = std::time::Instant::now();
    let d = diff(&card, &card).unwrap();
    eprintln!("diff: {:?}", start.elapsed());
    let text = render_diff(DiffFormat::Html, &d, &Options::default()).unwrap();
    eprintln!("diff and its page: {:?} for {} bytes", start.elapsed(), text.len());
}
