//! The schedule of any plan: the same each time, every task once, nothing before what it needs.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use planrun::{
    plan::{Options, Plan, Unset, load},
    runner::{Choice, Schedule, schedule},
};
use proptest::prelude::*;

/// A stage of a made-up plan: its kind, where it runs, how often, and which earlier ones it needs.
#[derive(Debug, Clone)]
struct Made {
    scaling: bool,
    at: Option<Vec<usize>>,
    repeat: u32,
    needs: Vec<usize>,
}

fn made() -> impl Strategy<Value = Made> {
    let at = prop::option::of(prop::collection::btree_set(0..3_usize, 1..3));
    (any::<bool>(), at, 1..4_u32, prop::collection::btree_set(0..6_usize, 0..3)).prop_map(
        |(scaling, at, repeat, needs)| Made {
            scaling,
            at: at.map(|a| a.into_iter().collect()),
            repeat,
            needs: needs.into_iter().collect(),
        },
    )
}

/// Platforms by the endpoints that they have, and stages; `turn` moves stages before what they need.
fn text(platforms: &[BTreeSet<usize>], stages: &[Made], turn: usize) -> String {
    let mut text =
        "schema: 1\nname: made\nperiod: P\ncurrency: CNY\nworkloads:\n  w: { command: 'true' }\n  \
                    r: { reference: { layers: 1, heads: 1, width: 8, sequence: 8, batch: 1 } }\nplatforms:\n"
            .to_owned();
    for (p, endpoints) in platforms.iter().enumerate() {
        let list: Vec<String> = endpoints.iter().map(|e| format!("e{e}: {{ local: true }}")).collect();
        text.push_str(&format!(
            "  p{p}: {{ title: P, tier: owned, endpoints: {{ {} }} }}\n",
            list.join(", ")
        ));
    }
    if let Some(s) = stages.iter().position(|s| s.scaling) {
        text.push_str(&format!("bind: {{ scaling: s{s} }}\n"));
    }
    text.push_str("stages:\n");
    let mut lines = Vec::new();
    for (s, stage) in stages.iter().enumerate() {
        let mut line = format!("  - {{ id: s{s}, repeat: {}", stage.repeat);
        if let Some(at) = &stage.at {
            let names: Vec<String> = at.iter().map(|e| format!("e{e}")).collect();
            line.push_str(&format!(", at: [{}]", names.join(", ")));
        }
        let needs: Vec<String> = stage.needs.iter().filter(|n| **n < s).map(|n| format!("s{n}")).collect();
        line.push_str(&format!(", needs: [{}]", needs.join(", ")));
        line.push_str(if stage.scaling {
            ", scaling: { workload: r, gpus: [1, 2], mode: weak } }\n"
        } else {
            ", command: { workload: w } }\n"
        });
        lines.push(line);
    }
    let turn = turn % lines.len();
    lines.rotate_left(turn);
    text.push_str(&lines.concat());
    text
}

fn plan(text: &str) -> Plan {
    let options = Options {
        set: Vec::new(),
        env: &|_| None,
        unset: Unset::Error,
        read_file: &|_| Err("no files".to_owned()),
        has_file: &|_| true,
        builtin_rubric: &planrun::score::builtin::text,
        today: None,
    };
    let loaded = load("made.yaml", text, &options);
    let errors = loaded.findings.iter().filter(|f| f.severity == planrun::findings::Severity::Error);
    let errors: Vec<&str> = errors.map(|f| f.message.as_str()).collect();
    assert!(errors.is_empty(), "{errors:?}\n{text}");
    loaded.plan.unwrap()
}

fn shown(schedule: &Schedule) -> String {
    let lanes: BTreeMap<&String, Vec<&str>> = schedule
        .lanes
        .iter()
        .map(|(lane, tasks)| (lane, tasks.iter().map(|t| t.planned.id.0.as_str()).collect()))
        .collect();
    format!("{:?} {lanes:?} {:?}", schedule.planned, schedule.settled)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn every_task_once_in_order_and_the_same_each_time(
        platforms in prop::collection::vec(prop::collection::btree_set(0..3_usize, 1..4), 1..4),
        stages in prop::collection::vec(made(), 1..7),
        turn in 0..7_usize,
        skip in prop::option::of(0..6_usize),
    ) {
        let text = text(&platforms, &stages, turn);
        // `at` names an endpoint that no platform has: not a plan.
        let known: BTreeSet<usize> = platforms.iter().flatten().copied().collect();
        prop_assume!(stages.iter().flat_map(|s| s.at.iter().flatten()).all(|e| known.contains(e)));
        let plan = plan(&text);
        let skip: Vec<String> = skip.map(|s| format!("*/s{s}")).into_iter().collect();
        let choice = Choice { skip: skip.clone(), ..Choice::default() };
        let made = schedule(&plan, &choice, Path::new("."));
        prop_assert_eq!(shown(&made), shown(&schedule(&plan, &choice, Path::new("."))));

        let mut expected = BTreeSet::new();
        for (p, has) in platforms.iter().enumerate() {
            for (s, stage) in stages.iter().enumerate() {
                let on: Vec<Option<usize>> = match &stage.at {
                    Some(at) => has.iter().filter(|e| at.contains(e)).map(|e| Some(*e)).collect(),
                    None => has.iter().take(1).map(|e| Some(*e)).collect(),
                };
                for repeat in 1..=stage.repeat {
                    let variants: &[&str] = if stage.scaling { &["1", "2"] } else { &[""] };
                    if on.is_empty() {
                        expected.insert((p, s, None, String::new(), repeat));
                    }
                    for endpoint in &on {
                        for variant in variants {
                            expected.insert((p, s, *endpoint, (*variant).to_owned(), repeat));
                        }
                    }
                }
            }
        }
        let number = |text: &str| text[1..].parse::<usize>().unwrap();
        let key = |t: &planrun::record::PlannedTask| {
            let gpus = t.labels.0.get("gpus").cloned().unwrap_or_default();
            (number(&t.platform), number(&t.stage), t.endpoint.as_deref().map(number), gpus, t.repeat)
        };
        let planned: Vec<_> = made.planned.iter().map(key).collect();
        prop_assert_eq!(planned.len(), expected.len());
        prop_assert_eq!(planned.into_iter().collect::<BTreeSet<_>>(), expected);

        // Each planned task is either to run or settled, and ids are unique.
        let to_run: Vec<&str> =
            made.lanes.values().flatten().map(|t| t.planned.id.0.as_str()).collect();
        let settled = made.settled.iter().map(|(id, _)| id.0.as_str());
        let mut both: Vec<&str> = to_run.iter().copied().chain(settled).collect();
        both.sort_unstable();
        let mut ids: Vec<&str> = made.planned.iter().map(|t| t.id.0.as_str()).collect();
        ids.sort_unstable();
        prop_assert_eq!(&both, &ids);
        ids.dedup();
        prop_assert_eq!(ids.len(), made.planned.len());

        // In a lane nothing stands before what it needs.
        for tasks in made.lanes.values() {
            for (i, task) in tasks.iter().enumerate() {
                for later in &tasks[i + 1..] {
                    prop_assert!(
                        later.planned.platform != task.planned.platform || !task.needs.contains(&later.planned.stage),
                        "{} stands before {}", task.planned.id, later.planned.id
                    );
                }
                let left_out = skip.contains(&format!("*/{}", task.planned.stage));
                prop_assert!(!left_out, "{} is to run", task.planned.id);
            }
        }
    }
}
