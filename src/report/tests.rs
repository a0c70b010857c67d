//! Tests of whole reports over the example scorecard.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeSet;

use super::*;
use crate::{
    measure::Finite,
    record::{Cause, Expectation, OutcomeKind},
    score::{
        self,
        diff::diff,
        example,
        scorecard::{MetricCard, VerdictKind},
    },
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
    golden("fixtures/report/two-cpus.scorecard.txt", &english(Format::Text, &card));
    let text = render_diff(DiffFormat::Text, &slower(), &Options::default()).unwrap();
    golden("fixtures/report/two-cpus.diff.txt", &text);
}

#[test]
fn a_rehearsal_shows_no_decision() {
    let mut seen = example::observations();
    seen.run.quick = true;
    let card = score::scorecard(&seen);
    for format in [Format::Markdown, Format::Html, Format::Text] {
        let text = english(format, &card);
        let text = text.split_once("</style>").map_or(text.as_str(), |(_, page)| page);
        assert!(text.contains("Rehearsal: a few steps only."), "{format:?}");
        assert!(!text.contains("recommended"), "{format:?}");
    }
    assert!(!english(Format::Text, &card).contains("CNY"), "no cost on the one screen");
    let html = english(Format::Html, &card);
    let top = html.split("<div class=\"hero\">").next().unwrap();
    assert!(!top.contains("CNY"), "no cost at the top");
}

/// A tie is one box that names all of the level.
#[test]
fn a_tie_is_one_box() {
    let mut card = card();
    for p in &mut card.platforms {
        p.verdict.kind = VerdictKind::Recommended;
    }
    let html = english(Format::Html, &card);
    assert_eq!(html.matches("class=\"panel first\"").count(), 1);
    assert!(html.contains("<strong>Level in first place: Rack Server, Cloud VM</strong>"));
    card.platforms[1].verdict.kind = VerdictKind::Acceptable;
    let html = english(Format::Html, &card);
    assert!(html.contains("<strong>First choice: Rack Server</strong>"));
}

/// A cost that only stands in, or is a least, says so wherever it is shown as an answer.
#[test]
fn costs_say_what_they_are_everywhere() {
    let mut card = card();
    for c in card.scenarios.iter_mut().filter(|s| s.id == "prototyping").flat_map(|s| &mut s.candidates) {
        c.verdict.kind = VerdictKind::Recommended;
    }
    let html = english(Format::Html, &card);
    let top = html.split("<div class=\"hero\">").next().unwrap();
    assert!(top.contains("16.59 CNY, stands in, owned"), "{top}");
    assert!(top.contains("≥ 7.67 CNY, stands in, spot"), "{top}");
    let md = english(Format::Markdown, &card);
    assert!(
        md.contains("| 16.59 CNY, stands in (owned) |") && md.contains("| ≥ 7.67 CNY, stands in (spot) |")
    );
    assert!(md.contains("≥ 7.") && !md.contains("| 7.52 CNY – "), "a spread of lower bounds is one too");
    let text = english(Format::Text, &card);
    assert!(text.contains("(16.59 CNY, stands in)") && text.contains("(>= 7.67 CNY, stands in)"), "{text}");
    assert!(
        text.contains("nightly, Cloud VM (spot): >= 7.67 CNY, stands in (not known: restart)\n"),
        "{text}"
    );
    assert!(md.contains("| not known: restart; stands in: gpt-cpu ran"), "{md}");
    assert!(html.contains(">not known: restart<br>"));
    let d = slower();
    let shown = |format| render_diff(format, &d, &Options::default()).unwrap();
    assert!(shown(DiffFormat::Markdown).contains("| nightly | spot | ≥ 7.67 CNY | ≥ "));
    assert!(shown(DiffFormat::Html).contains(">≥ 7.67 CNY<"));
}

/// A number that is neither better up nor down and has no unit is no share; a share stays one.
#[test]
fn a_loss_is_a_plain_number() {
    let mut card = card();
    let mut loss = card.platforms[0].metrics.iter().find(|m| m.name == "jitter").unwrap().clone();
    (loss.name, loss.better) = ("loss".into(), crate::measure::Better::Neither);
    let last = loss.runs.len().max(loss.samples.as_ref().map_or(0, Vec::len));
    assert!(last > 0);
    card.platforms[0].metrics.push(loss);
    let md = english(Format::Markdown, &card);
    let row = |name: &str| md.lines().find(|l| l.starts_with(&format!("| {name} |"))).unwrap().to_owned();
    assert!(row("gpt-cpu.loss").starts_with("| gpt-cpu.loss | – | 3 | 0.024 |"), "{}", row("gpt-cpu.loss"));
    assert!(
        row("gpt-cpu.jitter").starts_with("| gpt-cpu.jitter | % | 3 | 2.4 |"),
        "{}",
        row("gpt-cpu.jitter")
    );
    card.headline = vec!["gpt-cpu.loss".into(), "own.loss".into(), "gpt-cpu.jitter".into()];
    let d = diff(&card, &card).unwrap();
    for format in DiffFormat::ALL {
        let text = render_diff(format, &d, &Options::default()).unwrap();
        assert!(text.contains("0.024 (0.012–0.036)"), "{text}");
        assert!(text.contains("2.4 % (1.2–3.6)"), "{text}");
        assert!(text.contains("2.13") && !text.contains("213 %"), "{text}");
    }
}

/// Markdown keeps to what tells machines apart; everything else is in the page and in the JSON.
#[test]
fn markdown_names_what_differs_between_machines() {
    let mut card = card();
    for (i, p) in card.platforms.iter_mut().enumerate() {
        let facts = p.environment.get_mut("main").unwrap();
        for n in 0..90 {
            facts.insert(format!("limit.same_{n}"), 1.into());
        }
        facts.insert("numa.nodes".into(), (i + 1).into());
        facts.insert("host.boot_id".into(), format!("boot-{i}").into());
        facts.insert("host.uptime_seconds".into(), i.into());
        facts.insert("nic.eth0.driver".into(), "virtio".into());
        for gpu in 0..2 {
            facts.insert(format!("gpu.0000:{gpu}b:00_0.name"), "NVIDIA H100".into());
            facts.insert(format!("gpu.0000:{gpu}b:00_0.uuid"), format!("GPU-{i}{gpu}").into());
        }
    }
    card.platforms[1].environment.get_mut("main").unwrap().remove("nic.eth0.driver");
    let mut host = card.platforms[0].metrics[0].clone();
    host.name = "host_cpu_busy".into();
    card.platforms[0].metrics.push(host);
    let md = english(Format::Markdown, &card);
    let environment = md.split("## Environment").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows: Vec<&str> = environment.lines().filter(|l| l.starts_with('|')).collect();
    assert_eq!(rows[0], "| Fact | Rack Server (main) | Cloud VM (main) |");
    assert!(rows.contains(&"| gpu.name | 2 x NVIDIA H100 | 2 x NVIDIA H100 |"), "{rows:#?}");
    assert!(rows.contains(&"| numa.nodes | 1 | 2 |"), "{rows:#?}");
    assert!(rows.contains(&"| cpu.model | AMD EPYC 9354 | Intel Xeon Platinum 8481C |"), "{rows:#?}");
    assert!(rows.len() < 14, "{rows:#?}");
    assert!(environment.contains("scorecard.json") && environment.contains("scorecard.html"));
    assert!(!md.contains("boot_id") && !md.contains("host_cpu_busy"));
    let html = english(Format::Html, &card);
    assert!(html.contains("host.boot_id") && html.contains("limit.same_1"));
    let before = html.split("inventory.host_cpu_busy").next().unwrap();
    assert!(before.rfind("<details>") > before.rfind("</details>"), "folded");
    assert!(english(Format::Csv, &card).contains("inventory.host_cpu_busy"));
}

/// On a noisy machine one line sums up what likely changed; headline metrics stay in full.
#[test]
fn likely_changes_are_summed_up() {
    for format in [DiffFormat::Text, DiffFormat::Markdown] {
        let text = render_diff(format, &slower(), &Options::default()).unwrap();
        assert!(!text.contains("soak.step_time") && text.contains("gpt-cpu.tokens_per_second"), "{text}");
        assert!(text.contains("6 other metrics likely changed (6 likely worse)"), "{text}");
        assert!(text.contains("30 other metrics within noise"), "{text}");
    }
    let html = render_diff(DiffFormat::Html, &slower(), &Options::default()).unwrap();
    assert!(html.contains("soak.step_time"));
}

#[test]
fn terminal_text_is_tidy() {
    let mut quick = example::observations();
    quick.run.quick = true;
    let mut plain = card();
    plain.scenarios.clear();
    for p in &mut plain.platforms {
        p.costs.clear();
        p.tasks.clear();
    }
    let texts = [
        english(Format::Text, &card()),
        english(Format::Text, &score::scorecard(&quick)),
        english(Format::Text, &plain),
        render_diff(DiffFormat::Text, &slower(), &Options::default()).unwrap(),
    ];
    for text in texts {
        assert!(text.lines().all(|l| l == l.trim_end()), "{text}");
        assert!(!text.contains("\n\n\n") && !text.starts_with('\n') && !text.ends_with("\n\n"), "{text}");
        assert!(text.ends_with('\n'));
    }
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

/// A stamp stands at the figure, at the cost and at the answer; without repeats nothing is said of them.
#[test]
fn a_short_result_is_stamped_wherever_it_stands() {
    let mut card = card();
    let stamped = ["short: a steady state", "stands in, short"];
    let shown = |card: &Scorecard| [Format::Markdown, Format::Html, Format::Text].map(|f| english(f, card));
    assert!(shown(&card).iter().all(|text| !text.contains(stamped[1])));
    let p = &mut card.platforms[0];
    p.metrics.iter_mut().find(|m| m.name == "tokens_per_second").unwrap().short = true;
    p.costs.iter_mut().for_each(|c| c.short = true);
    card.scenarios[0].candidates[0].short = true;
    let [md, html, text] = shown(&card);
    assert!(md.contains("| gpt-cpu.tokens_per_second, short |") && md.contains(stamped[0]));
    assert!(html.contains("gpt-cpu.tokens_per_second <span class=\"pill warn\">short</span>"));
    assert!(md.contains("| 16.59 CNY, stands in, short |") && html.contains(stamped[1]));
    assert!(text.contains("Rack Server (16.59 CNY, stands in, short)"), "{text}");
    let csv = english(Format::Csv, &card);
    assert!(csv.lines().any(|l| l.contains("gpt-cpu.tokens_per_second,") && l.ends_with(",short,")), "{csv}");
    assert!(md.contains("| Over repeats |"));
    card.platforms.iter_mut().flat_map(|p| &mut p.costs).for_each(|c| c.spread = None);
    assert!(!english(Format::Markdown, &card).contains("Over repeats"));
}

/// What failed says so by a word, with the value in the unit of its bound.
#[test]
fn a_failed_expectation_is_plain_to_see() {
    let text = english(Format::Text, &card());
    assert!(text.contains("FAILED rack/gpt-cpu#3: jitter = 3.6 %, expected <= 3 %\n"), "{text}");
    assert!(text.ends_with("Expectations that failed: 2\n"), "{text}");
    let mut card = card();
    for e in card.platforms.iter_mut().flat_map(|p| &mut p.tasks).flat_map(|t| &mut t.expectations) {
        (e.value, e.met) = (None, None);
    }
    let text = english(Format::Text, &card);
    assert!(text.contains("rack/gpt-cpu#1: jitter not measured, expected <= 3 %\n"), "{text}");
    assert!(!text.contains("FAILED") && !text.contains("Expectations that failed"), "{text}");
}
