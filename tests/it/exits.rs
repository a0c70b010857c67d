//! Exit codes, and places that cannot be written: full disks, closed and full outputs.

use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
};

use crate::{
    outcomes::METRIC,
    support::{Sandbox, entries, wait_until},
};

/// A way to a run with this outcome.
type Case = (&'static str, fn() -> Sandbox, &'static [&'static str], i32);

#[test]
fn exit_codes_tell_ci_what_happened() {
    let cases: &[Case] = &[
        ("all passed", || Sandbox::new().shell("a", METRIC).shell("b", METRIC), &[], 0),
        (
            "one failed its expectation",
            || Sandbox::new().shell("a", METRIC).shell_with("b", "expect: { m: '< 1 s' },", "", METRIC),
            &[],
            1,
        ),
        ("one failed to run", || Sandbox::new().shell("a", METRIC).shell("b", "exit 1"), &[], 3),
        (
            "both: the worst wins",
            || Sandbox::new().shell("a", "exit 1").shell_with("b", "expect: { m: '< 1 s' },", "", METRIC),
            &[],
            3,
        ),
        (
            "one was not run since what it needs failed",
            || Sandbox::new().shell("a", "exit 1").shell_with("b", "needs: [a],", "", METRIC),
            &[],
            3,
        ),
        ("nothing ran", || Sandbox::new().shell("a", METRIC), &["--skip", "one"], 3),
        (
            "nothing is offered",
            || {
                Sandbox::new()
                    .platform("one", "{ main: { local: true } }")
                    .platform("two", "{ x: { local: true } }")
                    .shell_with("a", "at: x,", "", METRIC)
            },
            &["--only", "one"],
            3,
        ),
        ("the plan has no stage", Sandbox::new, &[], 2),
        ("a bad plan", || Sandbox::new().header("nonsense: 1").shell("a", METRIC), &[], 2),
        ("a bad option", || Sandbox::new().shell("a", METRIC), &["--nonsense"], 2),
        ("a bad value", || Sandbox::new().shell("a", METRIC), &["--set", "stages.a.repeat=x"], 2),
        (
            "a stage that is not offered lowers coverage, not the exit code",
            || {
                Sandbox::new()
                    .platform("one", "{ main: { local: true } }")
                    .platform("two", "{ main: { local: true }, x: { local: true } }")
                    .shell_with("a", "at: x,", "", METRIC)
            },
            &[],
            0,
        ),
    ];
    for (what, sandbox, args, code) in cases {
        let ended = sandbox().run(args);
        assert_eq!(ended.code, Some(*code), "{what}: {}", ended.stderr);
    }
}

#[test]
fn what_is_no_plan_is_refused_by_name() {
    let s = Sandbox::new().shell("a", METRIC);
    fs::write(s.path("empty.yaml"), "").unwrap();
    fs::write(s.path("binary.yaml"), [0_u8, 159, 146, 150, 0, 1]).unwrap();
    fs::write(s.path("no-stages.yaml"), s.text().replace("stages:", "stages: []\nx-rest:")).unwrap();
    for name in ["absent.yaml", "seen", "empty.yaml", "binary.yaml", "no-stages.yaml", "/dev/zero"] {
        for command in [&["run", name][..], &["check", name], &[name], &["run", name, "--dry-run"]] {
            let ended = s.planrun(command).code(2);
            assert!(
                format!("{}{}", ended.stdout, ended.stderr).contains(name),
                "{command:?}: {}",
                ended.stderr
            );
        }
    }
    assert!(!s.path("runs").exists(), "nothing was made");
}

#[test]
fn what_is_no_file_is_refused_and_not_waited_for() {
    let s = Sandbox::new().shell("a", METRIC).header("rubric: ./pipe.yaml");
    let mkfifo = |name: &str| {
        assert!(Command::new("mkfifo").arg(s.path(name)).status().unwrap().success());
    };
    mkfifo("plan/pipe.yaml");
    mkfifo("pipe");
    for (folder, target) in [("zero", Some("/dev/zero")), ("piped", None)] {
        fs::create_dir(s.path(folder)).unwrap();
        for name in ["journal.jsonl", "scorecard.json"] {
            match target {
                Some(target) => std::os::unix::fs::symlink(target, s.path(folder).join(name)).unwrap(),
                None => mkfifo(&format!("{folder}/{name}")),
            }
        }
    }
    let plan = s.plan().display().to_string();
    for args in [
        &["check", "pipe"][..],
        &["run", "pipe"],
        &["check", &plan],
        &["score", "zero"],
        &["score", "piped"],
        &["score", "pipe"],
        &["report", "zero"],
        &["report", "piped"],
        &["report", "pipe"],
        &["diff", "piped", "zero"],
        &["resume", "piped"],
        &["resume", "zero"],
        &["score", "zero", "--rubric", "pipe"],
        &["score", "zero", "--plan", "pipe"],
    ] {
        let ended = s.planrun(args);
        assert!(matches!(ended.code, Some(2..=4)), "{args:?}: {ended:?}");
    }
    // What the shell hands over may be a pipe.
    let text = s.text().replace("rubric: ./pipe.yaml", "");
    for path in ["/dev/stdin", "/dev/fd/0"] {
        let mut command = s.command(&["check", path]);
        command.stdin(Stdio::piped());
        let mut running = s.spawn(command);
        running.child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        running.wait().code(0);
    }
}

#[test]
fn what_stderr_shows_cannot_act() {
    let s = Sandbox::new().shell("a", METRIC);
    let evil = "e\u{1b}[31m\u{202e}\nerror: forged\u{7}";
    let long = "x".repeat(100_000);
    let plan = s.plan().display().to_string();
    fs::write(s.path("card"), format!("{{\"schema\": \"{}\"}}", evil.replace('\n', "\\n"))).unwrap();
    fs::write(s.path("card2"), r#"{"schema": 1, "e\u001b[31m\nerror: forged": 1, "planrun": {"\u001b": 1}}"#)
        .unwrap();
    for args in [
        &["check", evil][..],
        &[evil],
        &["run", evil],
        &["run", &plan, "--only", evil],
        &["run", &plan, "--only", &long],
        &["run", &plan, "-o", &format!("/dev/null/{evil}")],
        &["run", &plan, "--set", evil],
        &["check", &plan, "--set", &format!("currency={evil}")],
        &["resume", evil],
        &["score", evil],
        &["report", evil],
        &["report", "card"],
        &["report", "card2"],
        &["report", &plan, "--format", evil],
        &["report", &plan, "--format", &long],
        &[&format!("--{long}")],
        &["probe", evil],
        &["probe", "facts", "--options", evil],
        &["init", &format!("/dev/null/{evil}")],
    ] {
        let ended = s.planrun(args);
        assert!(matches!(ended.code, Some(2..=4)), "{args:?}: {ended:?}");
        let said = format!("{}{}", ended.stdout, ended.stderr);
        assert!(!said.contains(['\u{1b}', '\u{202e}', '\u{7}']), "{args:?}: {said:?}");
        assert!(!said.lines().any(|line| line.starts_with("error: forged")), "{args:?}: {said}");
        assert!(said.len() < 10_000, "{args:?}: {} bytes", said.len());
    }
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let s = Sandbox::new().shell("a", METRIC);
    fs::write(s.path("file"), "").unwrap();
    let plan = s.plan().display().to_string();
    for out in ["file", "file/below", "/proc/no-such-folder"] {
        let ended = s.planrun(&["run", &plan, "-o", out]);
        assert!(matches!(ended.code, Some(2 | 3)), "{ended:?}");
        assert!(ended.stderr.contains(out), "{}", ended.stderr);
    }
    assert_eq!(fs::read(s.path("file")).unwrap(), b"");
}

/// Runs a script in a mount namespace of its own, where `$1` is a file system of this size.
fn with_small_disk(s: &Sandbox, size: &str, script: &str) -> crate::support::Ended {
    let disk = s.path("disk");
    fs::create_dir_all(&disk).unwrap();
    let template = s.command(&[]);
    let mut command = std::process::Command::new("unshare");
    // `-r` maps us to root where we are not; both ways need the kernel's user or mount namespaces.
    let flags = if rustix::process::geteuid().is_root() { "-m" } else { "-rm" };
    command.args([flags, "sh", "-ec"]);
    command.arg(format!("mount -t tmpfs -o size={size} none \"$1\"\n{script}"));
    command.args([
        "sh".as_ref(),
        disk.as_os_str(),
        env!("CARGO_BIN_EXE_planrun").as_ref(),
        s.plan().as_os_str(),
    ]);
    command.current_dir(s.path("")).stdin(Stdio::null());
    for (name, value) in template.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let ended = s.spawn(command).wait();
    let refused = ["unshare failed", "Operation not permitted", "permission denied", "only root can"];
    assert!(
        !refused.iter().any(|r| ended.stderr.contains(r)),
        "this test mounts a small file system in a namespace of its own: run it as root, or allow unprivileged \
         user namespaces (`sysctl kernel.unprivileged_userns_clone=1`): {}",
        ended.stderr
    );
    ended
}

#[test]
fn a_full_disk_is_said_to_be_so_and_the_run_goes_on_once_there_is_room() {
    // The second task's log fills the disk; the journal has no room for its end.
    let s = Sandbox::new()
        .shell("a", &format!("echo x >>$SEEN/a; {METRIC}"))
        .shell("b", "echo x >>$SEEN/b; [ -e $SEEN/room ] || { head -c 3000000 /dev/zero; i=0; while [ $i -lt 3000 ]; do echo \"{\\\"metric\\\": \\\"n$i\\\", \\\"value\\\": $i}\"; i=$((i+1)); done; }")
        .shell("c", "echo x >>$SEEN/c");
    let script = r#"
        set +e
        "$2" run "$3" -o "$1/out" 2>$SEEN/stderr >/dev/null; echo $? >$SEEN/first
        cp "$1/out/journal.jsonl" $SEEN/journal
        rm -rf "$1/out/logs"; touch $SEEN/room
        "$2" resume "$1/out" >/dev/null; echo $? >$SEEN/second
        cp "$1/out/journal.jsonl" $SEEN/journal-after"#;
    with_small_disk(&s, "1m", script).code(0);
    assert_eq!(s.seen("first"), "3\n", "{}", s.seen("stderr"));
    let said = s.seen("stderr");
    assert!(said.contains("journal.jsonl") && said.contains("No space left"), "{said}");
    assert!(said.contains("planrun resume"), "{said}");
    assert!(s.seen("journal").ends_with("\"}\n"), "a valid prefix");
    assert_eq!(s.seen("second"), "0\n");
    assert_eq!(
        (s.seen("a").as_str(), s.seen("c").as_str()),
        ("x\n", "x\n"),
        "what had ended is not repeated"
    );
    assert!(s.seen("journal-after").starts_with(&s.seen("journal")));
    s.assert_nothing_left();
}

#[test]
fn a_disk_that_is_full_or_read_only_from_the_start_is_named() {
    let s = Sandbox::new().shell("a", "touch $SEEN/ran");
    let script = r#"
        set +e
        head -c 10000000 /dev/zero >"$1/fill" 2>/dev/null
        "$2" run "$3" -o "$1/out" 2>$SEEN/full; echo $? >$SEEN/full-code
        mount -o remount,ro "$1"
        "$2" run "$3" -o "$1/other" 2>$SEEN/ro; echo $? >$SEEN/ro-code"#;
    with_small_disk(&s, "64k", script).code(0);
    assert!(["2\n", "3\n"].contains(&s.seen("full-code").as_str()), "{}", s.seen("full"));
    assert!(s.seen("full").contains("disk/out") && s.seen("full").contains("No space"), "{}", s.seen("full"));
    assert_eq!(s.seen("ro-code"), "2\n");
    assert!(s.seen("ro").contains("disk/other") && s.seen("ro").contains("Read-only"), "{}", s.seen("ro"));
    assert!(!s.path("seen/ran").exists());
}

#[test]
fn nobody_may_read_what_is_printed() {
    let s = Sandbox::new().shell("a", METRIC);
    let plan = s.plan().display().to_string();
    let out = s.out().display().to_string();
    s.run(&[]).code(0);
    for line in [
        "\"$P\" stages | head -n 1",
        "\"$P\" --help | head -n 1",
        "\"$P\" schema plan | head -c 10",
        "\"$P\" run \"$PLAN\" --dry-run | true",
        "\"$P\" report \"$OUT\" | head -n 1",
        "\"$P\" check \"$PLAN\" | true",
        "\"$P\" probe facts | head -n 1",
        "\"$P\" probe facts --json | true",
        "\"$P\" run \"$PLAN\" -o \"$OUT-1\" | true",
        "\"$P\" run \"$PLAN\" -o \"$OUT-2\" 2>&1 | true",
        "\"$P\" run \"$PLAN\" -o \"$OUT-3\" >&- 2>&-",
        "\"$P\" stages >&-",
        "\"$P\" --help >&-",
        "\"$P\" run /absent 2>&-; [ $? = 2 ]",
        "\"$P\" --nonsense 2>&-; [ $? = 2 ]",
        "\"$P\" run \"$PLAN\" -o \"$OUT-4\" <&-",
    ] {
        let mut command = std::process::Command::new("bash");
        command.args(["-c", &format!("set -o pipefail; {line}")]);
        for (name, value) in s.command(&[]).get_envs() {
            if let Some(value) = value {
                command.env(name, value);
            }
        }
        command.env("P", env!("CARGO_BIN_EXE_planrun")).env("PLAN", &plan).env("OUT", &out);
        let ended = s.spawn(command).wait();
        assert_eq!(ended.code, Some(0), "{line}: {}", ended.stderr);
        assert!(!ended.stderr.contains("panicked"), "{line}: {}", ended.stderr);
    }
    for n in 1..=4 {
        assert!(s.path(&format!("out-{n}/scorecard.json")).exists(), "the run {n} was not finished");
    }
}

#[test]
fn a_full_output_is_an_error() {
    let s = Sandbox::new().shell("a", METRIC);
    let plan = s.plan().display().to_string();
    s.run(&[]).code(0);
    let out = s.out().display().to_string();
    for args in [
        &["stages"][..],
        &["--help"],
        &["run", "--help"],
        &["schema", "plan"],
        &["run", &plan, "--dry-run"],
        &["report", &out],
        &["check", &plan],
        &["probe", "facts"],
        &["probe", "facts", "--json"],
        &["run", &plan, "-o", "full"],
    ] {
        let mut command = s.command(args);
        let err = s.path("full.stderr");
        command.stdout(fs::File::options().write(true).open("/dev/full").unwrap());
        command.stderr(fs::File::create(&err).unwrap());
        let ended = s.spawn_as_is(command, s.path("nothing"), err).wait();
        assert_eq!(ended.code, Some(3), "{args:?}: {}", ended.stderr);
        assert!(ended.stderr.contains("stdout"), "{args:?}: {}", ended.stderr);
    }
    assert!(s.path("full/scorecard.json").exists(), "the files are there all the same");
}

#[test]
fn a_templates_fault_is_shown_where_it_is() {
    let s = Sandbox::new().shell("a", METRIC);
    s.run(&[]).code(0);
    let template = s.path("my.j2");
    fs::write(&template, "fine\nfine\n{{ no_such_thing.at_all }}\n").unwrap();
    let (out, template) = (s.out().display().to_string(), template.display().to_string());
    let ended = s.planrun(&["report", &out, "--template", &template]).code(2);
    assert!(ended.stderr.contains("my.j2") && ended.stderr.contains('3'), "{}", ended.stderr);
    assert_eq!(entries(&s.path("seen")), Vec::<String>::new());
}

#[test]
fn a_reader_that_stops_reading_does_not_stop_the_run() {
    // stderr is a pipe that nobody reads after the first line: its end is closed.
    let s = Sandbox::new().shell_with("a", "repeat: 5,", "", METRIC);
    let mut command =
        s.command(&["run", &s.plan().display().to_string(), "-o", &s.out().display().to_string(), "-v"]);
    command.stderr(Stdio::piped()).stdout(Stdio::null());
    let mut run = s.spawn_as_is(command, s.path("nothing"), s.path("nothing"));
    drop(run.child.stderr.take());
    wait_until("the scorecard", || s.out().join("scorecard.json").exists());
    run.wait().code(0);
}

/// A stage's name alone reads like a platform's: what to write instead is said, and the exit code says why.
#[test]
fn a_choice_and_an_exit_code_explain_themselves() {
    let s = Sandbox::new().shell("a", METRIC).shell_with("b", "expect: { m: '< 1 s' },", "", METRIC);
    s.run(&["--skip", "b"]).code(2).says("`b` is a stage").says("'*/b'");
    s.run(&["--skip", "nothing"]).code(2).says("`nothing` names nothing in the plan");
    let ended = s.run(&[]).code(1).says("exit code 1: an expectation of the plan failed");
    assert!(ended.stdout.contains("FAILED one/b: m = 2 s, expected < 1 s\n"), "{}", ended.stdout);
}

/// A slowdown on one run a side may be an accident; on five it is one that a test bears out.
#[test]
fn only_a_tested_regression_fails() {
    let rate = |repeat: u32, env: &str| {
        let s = Sandbox::new().env("RATE", env).header("headline: [a.rate]").shell_with(
            "a",
            &format!("repeat: {repeat},"),
            "reader: { pattern: [{ metric: rate, regex: 'rate ([0-9.]+)', unit: MB/s, better: higher }] },",
            "echo rate $RATE.$PLANRUN_REPEAT",
        );
        s.run(&[]).code(0);
        s
    };
    for (repeat, code, says) in
        [(5, 1, "a.rate of one is worse"), (1, 0, "likely worse, which does not count")]
    {
        let (old, new) = (rate(repeat, "100"), rate(repeat, "80"));
        let card = |s: &Sandbox| s.out().join("scorecard.json").display().to_string();
        let (old_card, new_card) = (card(&old), card(&new));
        old.planrun(&["diff", &old_card, &new_card, "--fail-on", "regression"]).code(code).says(says);
        old.planrun(&["diff", &new_card, &old_card, "--fail-on", "regression"]).code(0);
    }
}
