//! The command line: help, the dry run, the short form.

use std::fs;

use crate::{
    outcomes::METRIC,
    support::{Sandbox, entries},
};

#[test]
fn help_of_every_command() {
    let s = Sandbox::new();
    let top = s.planrun(&["--help"]).code(0).stdout;
    let commands = top.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let mut text = format!("$ planrun --help\n{top}");
    for command in commands.filter_map(|l| l.split_whitespace().next()).filter(|c| *c != "help") {
        let help = s.planrun(&[command, "--help"]).code(0);
        assert_eq!(help.stderr, "");
        text.push_str(&format!("\n$ planrun {command} --help\n{}", help.stdout));
    }
    for code in ["0 ", "1 ", "2 ", "3 ", "4 ", "5 ", "70 ", "129, 130, 143"] {
        assert!(top.contains(&format!("\n  {code}")), "no exit code {code}in the help");
    }
    insta::with_settings!({ prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!("help", text);
    });
}

#[test]
fn a_dry_run_prints_the_schedule_and_touches_nothing() {
    let s = Sandbox::new()
        .platform("one", "{ main: { local: true } }")
        .platform("two", "{ main: { ssh: host.example.invalid }, x: { local: true } }")
        .shell("a", "touch $SEEN/ran")
        .shell_with("b", "at: x, repeat: 2, needs: [a],", "", METRIC);
    let before = entries(&s.path(""));
    let first = s.run(&["--dry-run"]).code(0).stdout;
    let second = s.run(&["--dry-run"]).code(0).stdout;
    assert_eq!(first, second);
    let mut after = entries(&s.path(""));
    after.retain(|name| !name.ends_with(".stdout") && !name.ends_with(".stderr"));
    assert_eq!(after, before);
    assert_eq!(entries(&s.path("seen")), Vec::<String>::new());
    for text in ["one/a", "two/b#1", "two/b#2", "touch $SEEN/ran", "one/b#1: unsupported"] {
        assert!(first.contains(text), "no `{text}` in\n{first}");
    }
}

#[test]
fn a_plan_alone_is_run() {
    let s = Sandbox::new().shell("a", "touch $SEEN/ran");
    let (plan, out) = (s.plan().display().to_string(), s.out().display().to_string());
    s.planrun(&[&plan, "-o", &out]).code(0);
    assert!(s.path("seen/ran").exists());
    assert_eq!(s.outcome("one/a"), "ok/none");
    // Without `-o`: a folder named after the plan.
    s.planrun(&[&plan]).code(0);
    let runs = entries(&s.path("runs"));
    assert!(runs.len() == 1 && runs[0].starts_with("2026-Q4-it-"), "{runs:?}");
    let long = s.planrun(&["run", &plan, "--dry-run"]).code(0).stdout;
    assert_eq!(s.planrun(&[&plan, "--dry-run"]).code(0).stdout, long);
}

#[test]
fn quiet_means_quiet() {
    let s = Sandbox::new().shell("a", METRIC);
    let plan = s.plan().display().to_string();
    let loud = s.planrun(&["run", &plan, "-o", "loud"]).code(0);
    assert!(loud.stderr.contains("one/a") && loud.stdout.contains("One"), "{}\n{}", loud.stderr, loud.stdout);
    let quiet = s.planrun(&["run", &plan, "-o", "quiet", "-qq"]).code(0);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
    assert!(fs::exists(s.path("quiet/scorecard.md")).unwrap());
}
