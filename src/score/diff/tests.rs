//! Tests of the comparison.

#![allow(clippy::unwrap_used, clippy::float_cmp, reason = "tests state exact values")]

use proptest::prelude::*;

use super::*;
use crate::score::{self, example, example::Speed};

fn card(rack: f64, cloud: f64) -> Scorecard {
    let speed = |tokens| Speed { tokens, spread: 0.01 };
    score::scorecard(&example::fold(&example::records(speed(rack), speed(cloud))))
}

fn metric<'a>(d: &'a Diff, platform: &str, id: &str) -> &'a MetricDelta {
    let p = d.platforms.iter().find(|p| p.id == platform).unwrap();
    p.metrics.iter().find(|m| m.id == id).unwrap()
}

fn pair(old: &[f64], new: &[f64]) -> Pair {
    Pair::of(old, new, (old.len(), new.len())).unwrap()
}

fn call(old: &[f64], new: &[f64]) -> (Call, Option<Direction>) {
    let pair = pair(old, new);
    let d = decide(&pair, Better::Higher, BAND, pair.p());
    (d.call, d.direction)
}

#[test]
fn a_scorecard_against_itself_calls_nothing() {
    let a = card(5200.0, 3900.0);
    let d = diff(&a, &a).unwrap();
    assert!(d.platforms.iter().flat_map(|p| &p.metrics).all(|m| m.call == Call::WithinNoise), "{d:#?}");
    assert!(d.worse(Call::Worse).chain(d.worse(Call::Likely)).next().is_none() && d.cautions.is_empty());
    assert!(d.headline.ends_with("No headline metric changed beyond noise."), "{}", d.headline);
    assert!(d.platforms.iter().all(|p| p.score.unwrap().change == Shift::default()));
}

/// A fifth slower on three runs a side: likely worse, which is no evidence yet; the neighbour did not move.
#[test]
fn a_slowdown_of_few_runs_is_likely_and_no_regression() {
    let d = diff(&card(5200.0, 3900.0), &card(5200.0, 3120.0)).unwrap();
    let m = metric(&d, "cloud", "gpt-cpu.tokens_per_second");
    assert_eq!((m.call, m.direction, m.change), (Call::Likely, Some(Direction::Worse), Some(-0.2)));
    assert!(m.headline && d.worse(Call::Worse).next().is_none());
    assert_eq!(
        d.worse(Call::Likely).map(|(p, m)| (p, m.id.as_str())).collect::<Vec<_>>(),
        [("cloud", m.id.as_str())]
    );
    assert_eq!(metric(&d, "rack", "gpt-cpu.tokens_per_second").call, Call::WithinNoise);
    assert!(
        d.headline
            .contains("gpt-cpu.tokens_per_second of Cloud VM is likely worse (−20 %, too few runs to test)."),
        "{}",
        d.headline
    );
    let steps = metric(&d, "cloud", "gpt-cpu.step_time");
    assert_eq!(
        (steps.call, steps.direction),
        (Call::Likely, Some(Direction::Worse)),
        "longer steps are worse"
    );
    assert_eq!(metric(&d, "cloud", "soak.observed_seconds").direction, None);
}

/// Six runs a side that lie apart: a test bears it out, and only then it is a regression.
#[test]
fn a_regression_rests_on_a_test() {
    let with = |factor: f64| {
        let mut card = card(5200.0, 3900.0);
        let m = card.platforms[1].metrics.iter_mut().find(|m| m.id() == "gpt-cpu.tokens_per_second").unwrap();
        m.runs = Vec::new();
        m.samples = Some((0..6).map(|i| factor * (3900.0 + f64::from(i))).collect());
        card
    };
    let d = diff(&with(1.0), &with(0.8)).unwrap();
    assert_eq!(d.worse(Call::Worse).map(|(p, _)| p).collect::<Vec<_>>(), ["cloud"]);
    assert!(d.headline.contains("of Cloud VM is worse (−20 %)."), "{}", d.headline);
    // Labels stand in the sentence only where they tell two metrics apart.
    let labelled = |mut card: Scorecard| {
        let named = ["scaling.speedup{gpus=2}", "scaling.speedup{gpus=4}", "scaling.efficiency{gpus=2}"];
        card.headline = named.map(str::to_owned).to_vec();
        card
    };
    let mut slow = labelled(with(1.0));
    for m in slow.platforms[1].metrics.iter_mut().filter(|m| m.stage == "scaling") {
        m.samples.iter_mut().flatten().for_each(|v| *v *= 0.5);
    }
    let headline = diff(&labelled(with(1.0)), &slow).unwrap().headline;
    assert!(headline.contains("scaling.speedup{gpus=2} of Cloud VM is likely worse"), "{headline}");
    assert!(headline.contains("scaling.efficiency of Cloud VM is likely worse"), "{headline}");
    let back = diff(&with(0.8), &with(1.0)).unwrap();
    assert!(back.worse(Call::Worse).next().is_none() && back.headline.contains("is better (+25 %)."));
}

/// Case T06: the mean over all sizes rises when the two smallest are left out, and the machine is the same.
#[test]
fn case_t06_averages_over_other_sizes_do_not_compare() {
    let plan = |sizes: &str| {
        let text = format!(
            "schema: 1\nname: t06\nperiod: 2026-Q1\ncurrency: CNY\n\
             workloads: {{ nccl: {{ command: all_reduce_perf {sizes} }} }}\n\
             platforms: {{ a: {{ endpoints: {{ main: {{ local: true }} }} }} }}\n\
             stages: [{{ id: own, command: {{ workload: nccl }} }}]\n"
        );
        let options = crate::plan::Options {
            set: vec![],
            env: &|_| None,
            unset: crate::plan::Unset::Warning,
            read_file: &|_| Err("read".to_owned()),
            has_file: &|_| true,
            builtin_rubric: &crate::score::builtin::text,
            today: None,
        };
        let plan = crate::plan::load("p.yaml", &text, &options).plan.unwrap();
        plan.stage_ref(plan.stage("own").unwrap()).unwrap()
    };
    let measured = |sizes: &str, mean: f64| {
        let mut card = card(5200.0, 3900.0);
        *card.stages.iter_mut().find(|s| s.id == "own").unwrap() = plan(sizes);
        let m = card.platforms[0].metrics.iter_mut().find(|m| m.id() == "own.loss").unwrap();
        (m.name, m.unit, m.better) = ("busbw_avg".into(), Unit::new("GB/s"), Better::Higher);
        m.samples = Some(vec![mean]);
        card
    };
    let call =
        |old: &Scorecard, new: &Scorecard| metric(&diff(old, new).unwrap(), "rack", "own.busbw_avg").clone();
    let (all, large) = (measured("-b 512M -e 8G", 745.53), measured("-b 2G -e 8G", 814.55));
    let m = call(&all, &large);
    assert_eq!(
        (m.call, m.direction, m.why.as_str()),
        (Call::Incomparable, None, "the options of own changed")
    );
    // By the same list it would have been a change.
    assert_eq!(call(&all, &measured("-b 512M -e 8G", 814.55)).direction, Some(Direction::Better));
}

#[test]
fn calls_by_runs_and_band() {
    let worse = Some(Direction::Worse);
    assert_eq!(call(&[100.0], &[98.0]), (Call::WithinNoise, None));
    assert_eq!(call(&[100.0], &[90.0]), (Call::Likely, worse));
    assert_eq!(call(&[100.0, 120.0, 110.0], &[90.0, 115.0, 95.0]), (Call::NotTestable, None));
    assert_eq!(call(&[100.0, 101.0, 102.0, 100.5], &[97.0, 96.0, 97.5, 96.5]), (Call::Worse, worse));
    assert_eq!(call(&[100.0, 101.0, 102.0, 100.5], &[99.0, 98.9, 99.5, 99.1]), (Call::WithinNoise, None));
    // Four a side cannot pass a correction for six: p is 0.029 × 6.
    let d = decide(
        &pair(&[100.0, 101.0, 102.0, 100.5], &[90.0, 91.0, 92.0, 90.5]),
        Better::Higher,
        BAND,
        Some(0.17),
    );
    assert_eq!((d.call, d.direction), (Call::Likely, worse));
    assert_eq!(d.why, "4 and 4 runs, p = 0.17 after correction, beyond 5 %, none of one among the other");
    assert_eq!(call(&[0.0], &[0.0]), (Call::WithinNoise, None));
    assert_eq!(call(&[3.0], &[0.0]), (Call::Likely, worse), "from 0 or to 0 is beyond any band");
}

#[test]
fn another_device_or_other_options_are_another_metric() {
    let a = card(5200.0, 3900.0);
    let mut b = a.clone();
    let facts = b.platforms[0].environment.get_mut("main").unwrap();
    facts.insert("cpu.model".into(), "AMD EPYC 9755".into());
    facts.insert("os.kernel".into(), "6.11.0".into());
    b.stages.iter_mut().find(|s| s.id == "storage").unwrap().options = "d2".into();
    let d = diff(&a, &b).unwrap();
    let m = metric(&d, "rack", "gpt-cpu.tokens_per_second");
    assert_eq!(m.call, Call::Incomparable);
    assert_eq!(m.why, "CPU changed: AMD EPYC 9354 before, AMD EPYC 9755 now");
    assert!(d.platforms[0].cautions.iter().any(|c| c.starts_with("kernel changed")));
    let m = metric(&d, "cloud", "storage.write_bandwidth");
    assert_eq!((m.call, m.why.as_str()), (Call::Incomparable, "the options of storage changed"));
}

#[test]
fn what_appears_or_goes_is_named() {
    let a = card(5200.0, 3900.0);
    let mut b = a.clone();
    b.platforms[0].metrics.retain(|m| m.stage != "own");
    b.platforms.remove(1);
    let d = diff(&a, &b).unwrap();
    assert_eq!(metric(&d, "rack", "own.loss").call, Call::Gone);
    assert_eq!(d.platforms[1].presence, Presence::Gone);
    assert!(d.headline.contains("No longer there: Cloud VM."), "{}", d.headline);
    let back = diff(&b, &a).unwrap();
    assert_eq!(metric(&back, "rack", "own.loss").call, Call::Appeared);
}

#[test]
fn a_rehearsal_is_never_compared() {
    let a = card(5200.0, 3900.0);
    let mut b = a.clone();
    b.quick = true;
    assert!(matches!(diff(&a, &b), Err(DiffError::Quick(_))));
    assert!(matches!(diff(&b, &a), Err(DiffError::Quick(_))));
}

/// The rack loses an answer (10 of 10 become 6.67 to 10), gains nothing by measurement, and the rule for stability
/// halves to 10 of 20 at weight 20: all by rule.
#[test]
fn a_score_delta_is_split() {
    let a = card(5200.0, 3900.0);
    let mut seen = example::observations();
    let platform = &mut seen.judgement.platforms[0];
    platform.declared.shift_remove("billing.budget_alarm");
    let support = seen.judgement.rubric.criteria.get_mut("support").unwrap();
    support.value.parts[0].value.rule = crate::findings::At::nowhere(
        serde_yaml::from_str("bands: [{to: 2 h, points: 10}, {from: 2 h, points: 4}]").unwrap(),
    );
    let d = diff(&a, &score::scorecard(&seen)).unwrap();
    let s = d.platforms[0].score.unwrap();
    assert_eq!(s.by_measurement, Shift::default());
    assert_eq!(s.by_price, Shift { low: -3.333_333, high: 0.0 });
    assert_eq!(s.by_rule, Shift { low: -6.0, high: -6.0 });
    assert_eq!(s.change, Shift { low: -9.333_333, high: -6.0 });
    assert!(d.cautions.iter().any(|c| c == "the rules of quarterly-100 changed"));
}

#[test]
fn the_headline_counts_who_is_recommended() {
    let mut a = card(5200.0, 3900.0);
    let all = |c: &mut Scorecard, kind| c.platforms.iter_mut().for_each(|p| p.verdict.kind = kind);
    let starts = |a: &Scorecard, b: &Scorecard, text: &str| {
        let headline = diff(a, b).unwrap().headline;
        assert!(headline.starts_with(text), "{headline}");
    };
    let one = a.clone();
    all(&mut a, crate::score::scorecard::VerdictKind::Recommended);
    let mut none = a.clone();
    all(&mut none, crate::score::scorecard::VerdictKind::Inconclusive);
    starts(&a, &a, "Rack Server and Cloud VM stay recommended.");
    starts(&one, &one, "Rack Server stays recommended.");
    starts(&a, &none, "Rack Server and Cloud VM were recommended before, and no candidate is now.");
    starts(&none, &a, "Rack Server and Cloud VM are recommended now, and none was before.");
    starts(&one, &a, "Rack Server and Cloud VM are recommended now; Rack Server was before.");
    starts(&a, &one, "Rack Server is recommended now; Rack Server and Cloud VM were before.");
}

/// What the host says of itself is context: it neither changes nor regresses, even where a plan names it.
#[test]
fn host_telemetry_is_no_result() {
    let mut a = card(5200.0, 3900.0);
    let mut host = a.platforms[0].metrics[0].clone();
    host.name = "host_cpu_busy".into();
    let id = host.id();
    a.platforms[0].metrics.push(host);
    a.headline.push(id);
    let mut b = a.clone();
    let last = b.platforms[0].metrics.last_mut().unwrap();
    last.samples = Some(vec![99.0]);
    let d = diff(&a, &b).unwrap();
    assert!(d.platforms.iter().flat_map(|p| &p.metrics).all(|m| !m.id.contains("host_")), "{d:#?}");
    a.platforms[0].metrics.pop();
    let d = diff(&a, &b).unwrap();
    assert!(d.platforms.iter().flat_map(|p| &p.metrics).all(|m| m.call != Call::Appeared), "{d:#?}");
}

/// Two costs with different terms open are two things; with the same ones open the change counts and says so.
#[test]
fn costs_with_open_terms_are_compared_with_care() {
    let mut a = card(5200.0, 3900.0);
    a.headline = vec!["cost.nightly".into()];
    let m = |d: &Diff, platform: &str| metric(d, platform, "cost.nightly").clone();
    let d = diff(&a, &a).unwrap();
    let (rack, cloud) = (m(&d, "rack"), m(&d, "cloud"));
    assert_eq!((rack.call, cloud.call), (Call::WithinNoise, Call::WithinNoise));
    assert!(cloud.why.starts_with("the cheapest offer, a lower bound before and now; "), "{}", cloud.why);
    let mut b = a.clone();
    for l in b.platforms[1].costs.iter_mut().flat_map(|c| &mut c.lines) {
        l.unknown = false;
    }
    b.platforms[1].costs.iter_mut().for_each(|c| c.lower_bound = false);
    let d = diff(&a, &b).unwrap();
    assert_eq!(m(&d, "cloud").call, Call::Incomparable);
    assert_eq!(m(&d, "cloud").why, "the terms not known changed: restart before, none now");
    let spot = d.platforms[1].costs.iter().find(|c| c.job == "nightly" && c.offer == "spot").unwrap();
    assert_eq!((spot.old_lower_bound, spot.new_lower_bound), (true, false));
}

/// What a file of ours may hold stands in its document.
#[test]
fn every_field_stands_in_the_formats() {
    let formats = include_str!("../../../docs/FORMATS.md");
    let words: HashSet<&str> = formats.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
    let diff = schemars::schema_for!(Diff).to_value();
    for schema in [crate::score::scorecard::scorecard_schema(), diff] {
        let defs = schema["$defs"].as_object().unwrap();
        for (name, def) in defs.iter().chain([(&"the whole".to_owned(), &schema)]) {
            for field in def["properties"].as_object().into_iter().flatten().map(|(field, _)| field) {
                assert!(
                    words.contains(field.as_str()),
                    "`{field}` of {name} does not stand in docs/FORMATS.md"
                );
            }
        }
    }
}

fn mirrored(call: Call) -> Call {
    match call {
        Call::Better => Call::Worse,
        Call::Worse => Call::Better,
        Call::Appeared => Call::Gone,
        Call::Gone => Call::Appeared,
        other => other,
    }
}

fn turned(direction: Option<Direction>) -> Option<Direction> {
    direction.map(|d| if d == Direction::Better { Direction::Worse } else { Direction::Better })
}

proptest! {
    #[test]
    fn a_decision_mirrors(
        old in prop::collection::vec(-5.0..200.0_f64, 1..8),
        new in prop::collection::vec(-5.0..200.0_f64, 1..8),
        better in prop_oneof![Just(Better::Higher), Just(Better::Lower), Just(Better::Neither)],
    ) {
        let decided = |a: &[f64], b: &[f64]| {
            let pair = pair(a, b);
            decide(&pair, better, BAND, pair.p())
        };
        let (there, back) = (decided(&old, &new), decided(&new, &old));
        prop_assert_eq!(there.call, mirrored(back.call));
        prop_assert_eq!(there.direction, turned(back.direction));
        prop_assert_eq!(decided(&old, &old).call, Call::WithinNoise);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    #[test]
    fn a_comparison_mirrors(a in 2000.0..9000.0_f64, b in 2000.0..9000.0_f64) {
        let (x, y) = (card(a, 3900.0), card(b, 3900.0));
        let (there, back) = (diff(&x, &y).unwrap(), diff(&y, &x).unwrap());
        for (p, q) in there.platforms.iter().zip(&back.platforms) {
            for m in &p.metrics {
                let n = q.metrics.iter().find(|n| n.id == m.id).unwrap();
                prop_assert_eq!(m.call, mirrored(n.call), "{}", m.id);
                prop_assert_eq!(m.direction, turned(n.direction), "{}", m.id);
            }
        }
    }
}
