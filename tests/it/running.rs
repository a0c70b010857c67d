//! What the runner does with tasks: limits, tries, order, expectations, choice, lanes.

use std::{collections::BTreeMap, fs};

use crate::{
    outcomes::METRIC,
    support::{Sandbox, entries, processes, wait_until},
};

#[test]
fn a_command_that_ignores_term_is_killed_at_its_limit() {
    let s = Sandbox::new()
        .workload("polite", "command: 'trap \"echo told >$SEEN/told; exit 0\" TERM; sleep 60 & wait'")
        .stage("id: polite, timeout: 2s, retries: { errors: 3 }, command: { workload: polite }")
        .workload("deaf", "command: 'trap \"\" TERM; echo $$ >$SEEN/deaf; while :; do sleep 60; done'")
        .stage("id: deaf, timeout: 2s, command: { workload: deaf }");
    s.run(&[]).code(3);
    for task in ["one/polite", "one/deaf"] {
        assert_eq!(s.outcome(task), "timed_out/time_limit");
        assert_eq!(s.end_of(task)["attempt"], 1, "a limit is not tried again");
        // The contract: within 4 s for a limit of 2 s. Far less than the 60 s of the command in any case.
        let seconds = s.end_of(task)["seconds"].as_f64().unwrap();
        assert!((2.0..20.0).contains(&seconds), "{seconds}");
    }
    assert_eq!(s.seen("told"), "told\n", "TERM comes first");
    assert!(!processes::alive(s.seen("deaf").trim().parse().unwrap()));
    s.assert_nothing_left();
}

#[test]
fn only_the_last_try_counts() {
    let script = r#"echo x >>$SEEN/tries; n=$(wc -l <$SEEN/tries); echo "{\"metric\": \"m\", \"value\": $n}"; [ $n -ge 2 ]"#;
    let s = Sandbox::new()
        .shell_with("a", "retries: { errors: 3 }, expect: { m: '== 2' },", "", script)
        .shell_with("b", "retries: { errors: 2 },", "", "exit 1")
        .shell_with("missing", "retries: { errors: 2 },", "", "no-such-program-here");
    s.run(&[]).code(3);
    let ends: Vec<(bool, u64)> = s
        .journal()
        .iter()
        .filter(|(kind, body)| kind == "task_ended" && body["task"] == "one/a")
        .map(|(_, b)| (b["retried"] == true, b["attempt"].as_u64().unwrap()))
        .collect();
    assert_eq!(ends, [(true, 1), (false, 2)]);
    assert_eq!(s.outcome("one/a"), "ok/none");
    assert_eq!(s.end_of("one/a")["expectations"][0]["met"], true);
    assert_eq!(entries(&s.out().join("logs/one/a")), ["attempt-1.main.out", "attempt-2.main.out"]);
    assert_eq!(s.end_of("one/b")["attempt"], 3);
    assert_eq!(s.end_of("one/missing")["attempt"], 1, "what is not there does not appear by trying again");
    let card = s.scorecard();
    let metrics = card["platforms"][0]["metrics"].as_array().unwrap();
    let m: Vec<_> = metrics.iter().filter(|m| m["name"] == "m").collect();
    assert_eq!((m.len(), &m[0]["n"], &m[0]["mean"]), (1, &1.into(), &2.0.into()), "{m:?}");
}

#[test]
fn what_needs_a_stage_comes_after_it_or_not_at_all() {
    let note = |name: &str| format!("echo {name} >>$SEEN/order");
    let s = Sandbox::new()
        .shell_with("late", "needs: [first],", "", &note("late"))
        .shell("first", &note("first"))
        .shell("bad", "exit 1")
        .shell_with("orphan", "needs: [bad],", "", &note("orphan"))
        .shell_with("grandchild", "needs: [orphan],", "", &note("grandchild"));
    s.run(&[]).code(3);
    assert_eq!(s.seen("order"), "first\nlate\n");
    for task in ["one/orphan", "one/grandchild"] {
        assert_eq!(s.outcome(task), "skipped/need_failed");
    }
    assert!(s.reason("one/orphan").contains("`bad`"), "{}", s.reason("one/orphan"));
    each_task_has_one_end(&s);
}

#[test]
fn what_builds_on_something_left_out_or_not_offered_is_no_failure() {
    let s = Sandbox::new()
        .platform("one", "{ main: { local: true } }")
        .platform("two", "{ main: { local: true }, big: { local: true } }")
        .shell("a", METRIC)
        .shell_with("b", "needs: [a],", "", METRIC)
        .shell_with("c", "at: big,", "", METRIC)
        .shell_with("d", "at: main, needs: [c],", "", METRIC);
    s.run(&["--skip", "*/a"]).code(0);
    assert_eq!(s.outcome("one/b"), "skipped/not_selected");
    assert_eq!(s.outcome("one/c"), "unsupported/not_offered");
    assert_eq!(s.outcome("one/d"), "unsupported/not_offered");
    assert_eq!(s.outcome("two/d"), "ok/none");
    each_task_has_one_end(&s);
}

/// Sees that the scorecard has every planned task once, with an outcome.
fn each_task_has_one_end(s: &Sandbox) {
    let (_, started) = s.journal().into_iter().next().unwrap();
    let mut planned: Vec<String> =
        started["tasks"].as_array().unwrap().iter().map(|t| t["id"].as_str().unwrap().to_owned()).collect();
    let card = s.scorecard();
    let platforms = card["platforms"].as_array().unwrap();
    let tasks = platforms.iter().flat_map(|p| p["tasks"].as_array().unwrap());
    let mut shown: Vec<String> = tasks
        .map(|t| {
            assert!(t["outcome"].is_string() || t["outcome"].is_object(), "{t}");
            t["id"].as_str().unwrap().to_owned()
        })
        .collect();
    planned.sort();
    shown.sort();
    assert_eq!(shown, planned);
    let mut ends: BTreeMap<String, u32> = BTreeMap::new();
    for (kind, body) in s.journal() {
        if kind == "task_ended" && body["retried"] != true {
            *ends.entry(body["task"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    assert!(ends.values().all(|n| *n == 1), "{ends:?}");
    assert_eq!(ends.len(), planned.len());
}

#[test]
fn expectations_are_met_failed_or_unmeasured() {
    let expect = |id: &str, bound: &str, script: &str, code: i32, met: serde_json::Value| {
        let s = Sandbox::new().shell_with(id, &format!("expect: {{ {bound} }},"), "", script);
        s.run(&[]).code(code);
        assert_eq!(s.end_of(&format!("one/{id}"))["expectations"][0]["met"], met, "{bound}");
    };
    expect("a", "m: '<= 2 s'", METRIC, 0, true.into());
    expect("b", "m: '<= 1999 ms'", METRIC, 1, false.into());
    expect("c", "other: '<= 2 s'", METRIC, 3, serde_json::Value::Null);
    expect("d", "m: '<= 2 s'", &format!("{METRIC}; exit 1"), 3, serde_json::Value::Null);
}

#[test]
fn repetitions_are_tasks_and_a_rehearsal_makes_one() {
    let s = Sandbox::new().shell_with(
        "a",
        "repeat: 3,",
        "",
        "echo $PLANRUN_REPEAT $PLANRUN_STEPS >>$SEEN/repeats",
    );
    s.run(&[]).code(0);
    assert_eq!(s.seen("repeats"), "1 200\n2 200\n3 200\n");
    assert_eq!(s.scorecard()["run"]["quick"], serde_json::Value::Null.clone(), "{}", s.scorecard()["run"]);
    let out = s.path("quick").display().to_string();
    s.planrun(&["run", &s.plan().display().to_string(), "--quick", "-o", &out]).code(0);
    assert_eq!(s.seen("repeats").lines().last(), Some("1 20"));
    assert_eq!(s.seen("repeats").lines().count(), 4);
    let card = fs::read_to_string(s.path("quick/scorecard.json")).unwrap();
    assert!(card.contains("\"quick\": true"), "a rehearsal is stamped");
}

#[test]
fn tasks_are_chosen_by_platform_and_stage() {
    let plan = || {
        Sandbox::new()
            .platform("one", "{ main: { local: true } }")
            .platform("two", "{ main: { local: true } }")
            .shell("a", "echo $PLANRUN_TASK >>$SEEN/ran")
            .shell("b", "echo $PLANRUN_TASK >>$SEEN/ran")
    };
    for (args, ran) in [
        (&["--only", "one"][..], "one/a\none/b\n"),
        (&["--only", "two/b", "--only", "one/a"], "one/a\ntwo/b\n"),
        (&["--only", "*/b"], "one/b\ntwo/b\n"),
        (&["--skip", "one", "--skip", "*/a"], "two/b\n"),
        (&["--only", "one", "--skip", "one/a"], "one/b\n"),
    ] {
        let s = plan();
        s.run(args).code(0);
        assert_eq!(s.seen("ran"), ran, "{args:?}");
        each_task_has_one_end(&s);
    }
    for args in [["--only", "three"], ["--skip", "one/c"], ["--only", ""], ["--only", "one/"]] {
        let s = plan();
        s.run(&args).code(2).says("names nothing in the plan");
        assert!(!s.out().exists(), "{args:?} left a folder");
    }
    plan().run(&["--skip", "*"]).code(3);
}

#[test]
fn two_tasks_on_this_machine_never_overlap() {
    let script = r#"mkdir "$SEEN/lock" || echo "$PLANRUN_TASK overlaps" >>$SEEN/overlaps
        date +%s%N >>$SEEN/times; sleep 0.1; date +%s%N >>$SEEN/times; rmdir "$SEEN/lock""#;
    let s = Sandbox::new()
        .platform("one", "{ main: { local: true }, other: { local: true, cpus: 1 } }")
        .platform("two", "{ main: { local: true, lane: own } }")
        .platform("one-other", "{ main: { local: true } }")
        .shell_with("a", "at: [main, other], repeat: 2,", "", script);
    s.run(&[]).code(0);
    assert_eq!(s.seen("overlaps"), "");
    let times: Vec<u128> = s.seen("times").lines().map(|l| l.parse().unwrap()).collect();
    assert_eq!(times.len(), 16, "2 for each of 8 tasks");
    assert!(times.is_sorted(), "{times:?}");
    each_task_has_one_end(&s);
    s.assert_nothing_left();
}

#[test]
fn what_cannot_be_reached_is_unsupported_and_the_rest_runs() {
    let s = Sandbox::new()
        .platform("one", "{ main: { local: true } }")
        .platform("far", "{ main: { ssh: host.example.invalid } }")
        .shell("a", METRIC);
    s.run(&[]).code(3);
    assert_eq!(s.outcome("one/a"), "ok/none");
    assert_ne!(s.outcome("far/a"), "ok/none");
    each_task_has_one_end(&s);
}

#[test]
fn a_run_stops_at_its_limit_and_can_be_seen() {
    let s = Sandbox::new()
        .header("limits: { warn_after: 1s, stop_after: 4s }")
        .workload("a", "command: 'sleep 1.5'")
        .stage("id: a, timeout: 4s, command: { workload: a }")
        .workload("b", "command: 'sleep 1000'")
        .stage("id: b, timeout: 4s, command: { workload: b }")
        .stage("id: c, timeout: 4s, command: { workload: a }");
    s.run(&[]).code(3);
    assert_eq!(s.outcome("one/a"), "ok/none");
    assert_eq!(s.outcome("one/b"), "interrupted/plan_limit");
    assert!(s.notes().iter().any(|n| n.contains("warn_after")), "{:?}", s.notes());
    let ended = s.journal().pop().unwrap();
    assert_eq!((ended.0.as_str(), &ended.1["complete"]), ("run_ended", &false.into()));
    s.assert_nothing_left();
}

#[test]
fn two_hundred_tasks_and_a_folder_with_blanks() {
    let s = Sandbox::new().env("TMPDIR", "").platform("p.-_1", "{ main: { local: true } }").shell_with(
        "a",
        "repeat: 200,",
        "",
        "echo x >>$SEEN/ran",
    );
    fs::create_dir(s.path("plan/a b '\"$x")).unwrap();
    let plan = s.path("plan/a b '\"$x/the plan.yaml");
    fs::write(&plan, s.text()).unwrap();
    let out = s.path("the 'out' put $x").display().to_string();
    let mut command = s.command(&["run", &plan.display().to_string(), "-o", &out, "-q"]);
    command.env("TMPDIR", s.path("tmp"));
    s.spawn(command).wait().code(0);
    assert_eq!(s.seen("ran").lines().count(), 200);
    s.assert_nothing_left();
}

#[test]
fn a_folder_that_cannot_be_written_is_said_to_be_so() {
    let s = Sandbox::new().env("TMPDIR", "/proc/no-such-folder").shell("a", METRIC);
    let mut command =
        s.command(&["run", &s.plan().display().to_string(), "-o", &s.out().display().to_string()]);
    command.env("TMPDIR", "/proc/no-such-folder");
    s.spawn(command).wait().code(3);
    assert_eq!(s.outcome("one/a"), "failed/disk");
    assert!(s.reason("one/a").contains("workdir"), "{}", s.reason("one/a"));
}

#[test]
fn a_folder_that_was_made_unremovable_is_removed() {
    let s = Sandbox::new().shell("a", "mkdir -p deep/er; touch deep/er/x; chmod 000 deep/er deep");
    s.run(&[]).code(0);
    s.assert_nothing_left();
}

#[test]
fn runs_that_begin_in_the_same_second_have_folders_of_their_own() {
    let s = Sandbox::new().shell("a", METRIC);
    let plan = s.plan().display().to_string();
    let runs: Vec<_> = (0..4).map(|_| s.start(&["-q", &plan])).collect();
    for run in runs {
        run.wait().code(0);
    }
    wait_until("four folders", || entries(&s.path("runs")).len() == 4);
}
