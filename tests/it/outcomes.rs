//! How a command ends, what it prints, and what becomes of both.

use std::{fs, path::PathBuf};

use crate::support::{Sandbox, entries, processes, wait_until};

/// A metric line for `sh`.
pub(crate) const METRIC: &str = r#"echo '{"metric": "m", "value": 2, "unit": "s"}'"#;

#[test]
fn a_program_that_ends_well_is_ok() {
    let s = Sandbox::new().shell("a", METRIC);
    s.run(&[]).code(0);
    assert_eq!(s.outcome("one/a"), "ok/none");
    assert_eq!(s.samples("one/a", "m"), [2.0]);
    s.assert_nothing_left();
}

#[test]
fn ways_to_fail_are_told_apart() {
    let s = Sandbox::new()
        .shell("code", "echo 'the disk is on fire' >&2; exit 1")
        .shell("signal", "kill -SEGV $$")
        .shell("absent", "no-such-program-here")
        .shell("pipe", "yes | head -n 1")
        .workload("argv", "command: [no-such-program-here, x]")
        .stage("id: argv, command: { workload: argv }")
        .workload("relative", "command: [./nothing]")
        .stage("id: relative, command: { workload: relative }")
        .workload(
            "interpreter",
            "setup: 'printf \"#!/no/such/interpreter\\n\" >x; chmod +x x', command: [./x]",
        )
        .stage("id: interpreter, command: { workload: interpreter }")
        .workload("folder", "workdir: /no/such/folder, command: 'true'")
        .stage("id: folder, command: { workload: folder }")
        .workload("setup", "setup: exit 3, command: 'true'")
        .stage("id: setup, command: { workload: setup }");
    s.run(&[]).code(3);
    for (task, outcome, reason) in [
        ("one/code", "failed/command_failed", "the disk is on fire"),
        ("one/signal", "failed/killed_by_signal", "signal 11"),
        ("one/absent", "failed/command_not_found", "127"),
        ("one/pipe", "ok/none", ""),
        ("one/argv", "failed/command_not_found", "no-such-program-here"),
        ("one/relative", "failed/command_not_found", "./nothing is not there"),
        ("one/interpreter", "failed/command_failed", "could not be started: ./x: "),
        ("one/folder", "failed/command_not_found", "/no/such/folder"),
        ("one/setup", "failed/command_failed", "the setup of workload `setup` ended with code 3"),
    ] {
        assert_eq!(s.outcome(task), outcome, "{task}: {}", s.reason(task));
        assert!(s.reason(task).contains(reason), "{task}: {}", s.reason(task));
    }
    s.assert_nothing_left();
}

#[test]
fn what_a_reader_cannot_read_is_no_number() {
    let bad = r#"echo '{"metric": "m", "value": NaN}'"#;
    let s = Sandbox::new()
        .shell("bad", bad)
        .shell("mixed", &format!("{bad}; {METRIC}"))
        .shell_with("empty", "", "reader: json-lines,", "echo nothing to see")
        .shell("plain", "echo nothing to see")
        .shell_with(
            "pattern",
            "",
            r"reader: { pattern: [{ metric: copy, regex: 'Copy: ([0-9.]+)', unit: MB/s }] },",
            "echo 'Copy: 12.5 rest'",
        );
    s.run(&[]).code(3);
    assert_eq!(s.outcome("one/bad"), "failed/unreadable");
    assert_eq!(s.outcome("one/mixed"), "ok/none");
    assert_eq!(s.outcome("one/empty"), "failed/no_step_recorded");
    assert_eq!(s.outcome("one/plain"), "ok/none");
    assert_eq!(s.samples("one/pattern", "copy"), [12.5]);
    assert!(s.notes().iter().any(|n| n.contains("unreadable line")), "{:?}", s.notes());
}

#[test]
fn output_is_kept_byte_for_byte_and_streams_apart() {
    // Bytes that are no UTF-8, a NUL, a carriage return, cursor movements, and a line without an end.
    let script =
        r"printf '\377\376\000\r\033[1A caf\303\251 \303' ; printf 'aside\n' >&2; printf '\251\nlast'";
    let s = Sandbox::new().shell("a", script);
    s.run(&[]).code(0);
    let expected = b"\xff\xfe\0\r\x1b[1A caf\xc3\xa9 \xc3\xa9\nlast";
    assert_eq!(s.log("one/a/attempt-1.main.out"), expected);
    assert_eq!(s.log("one/a/attempt-1.main.err"), b"aside\n");
}

#[test]
fn very_long_lines_are_kept_and_do_no_harm() {
    let s = Sandbox::new().shell("a", &format!("head -c 3000000 /dev/zero | tr '\\0' x; echo; {METRIC}"));
    s.run(&[]).code(0);
    assert_eq!(s.samples("one/a", "m"), [2.0], "the line after it is read");
    let log = s.log("one/a/attempt-1.main.out");
    assert_eq!(log.iter().take_while(|b| **b == b'x').count(), 3_000_000);
}

#[test]
fn a_flood_of_output_is_kept_and_does_not_grow_memory() {
    let bytes = 200_000_000;
    let s = Sandbox::new().shell("a", &format!("yes 0123456789 | head -c {bytes}; echo; {METRIC}"));
    let run = s.start_run(&[]);
    let (pid, mut peak) = (run.pid(), 0);
    wait_until("the task to end", || {
        peak = peak.max(processes::peak_kb(pid));
        s.journal().iter().any(|(kind, _)| kind == "task_ended")
    });
    run.wait().code(0);
    assert!(peak > 0 && peak < 100_000, "{peak} kB");
    assert_eq!(s.samples("one/a", "m"), [2.0]);
    let log = fs::metadata(s.out().join("logs/one/a/attempt-1.main.out")).unwrap();
    assert!(log.len() > bytes, "{} bytes", log.len());
}

#[test]
fn a_flood_of_numbers_does_not_grow_memory() {
    let lines = 1_000_000;
    let s =
        Sandbox::new().shell("a", &format!("yes '{}' | head -n {lines}", r#"{"metric": "m", "value": 2}"#));
    let run = s.start_run(&[]);
    let (pid, mut peak) = (run.pid(), 0);
    wait_until("the task to end", || {
        peak = peak.max(processes::peak_kb(pid));
        s.journal().iter().any(|(kind, _)| kind == "task_ended")
    });
    run.wait().code(0);
    assert!(peak > 0 && peak < 100_000, "{peak} kB");
    assert_eq!(s.samples("one/a", "m").len(), lines);
}

#[test]
fn a_label_for_each_line_is_bounded_and_said_to_be_so() {
    let script = r#"seq 1 12000 | sed 's/.*/{"metric": "m", "value": 1, "labels": {"step": &}}/'
                    seq 1 12000 | sed 's/.*/{"fact": "f&", "value": 1}/'"#;
    let s = Sandbox::new().shell("a", script);
    s.run(&[]).code(0);
    let count = |kind: &str| s.journal().iter().filter(|(k, _)| k == kind).count();
    assert!((9_000..=10_010).contains(&count("samples")), "{}", count("samples"));
    assert_eq!(count("fact"), 10_000);
    assert!(s.notes().iter().any(|n| n.contains("were left out")), "{:?}", s.notes());
}

#[test]
fn a_server_that_floods_its_output_does_not_grow_memory() {
    let flood = "yes a long line of a server that says a lot | head -c 100000000";
    let s = Sandbox::new()
        .workload("a", &format!("serve: '{flood}; touch $SEEN/said; exec sleep 1000', command: 'while ! [ -e $SEEN/said ]; do sleep 0.05; done'"))
        .stage("id: a, timeout: 100s, command: { workload: a }");
    let run = s.start_run(&[]);
    let (pid, mut peak) = (run.pid(), 0);
    wait_until("the task to end", || {
        peak = peak.max(processes::peak_kb(pid));
        s.journal().iter().any(|(kind, _)| kind == "task_ended")
    });
    run.wait().code(0);
    assert!(peak > 0 && peak < 100_000, "{peak} kB");
}

#[test]
fn a_program_may_close_its_outputs_early() {
    let s = Sandbox::new().shell("a", &format!("{METRIC}; exec >&- 2>&-; sleep 0.3; exit 4"));
    s.run(&[]).code(3);
    assert!(s.reason("one/a").contains("code 4"), "{}", s.reason("one/a"));
}

#[test]
fn a_child_that_holds_the_pipe_does_not_hold_the_task() {
    let s = Sandbox::new()
        .shell("quiet", &format!("sleep 1000 & {METRIC}"))
        .shell("loud", &format!("yes >&2 & {METRIC}"))
        .shell("stubborn", &format!("(trap '' TERM HUP INT; while :; do sleep 1; done) & {METRIC}"))
        // A daemon: a session of its own, its parent gone, no pipe in hand.
        .shell(
            "daemon",
            &format!(
                "(setsid sh -c 'echo $$ >$SEEN/daemon; exec sleep 1000' >/dev/null 2>&1 </dev/null &) ; \
                      while ! [ -s $SEEN/daemon ]; do sleep 0.01; done; {METRIC}"
            ),
        )
        .shell("after", "kill -0 $(cat $SEEN/daemon) && echo the daemon lives >&2 && exit 1; exit 0");
    s.run(&[]).code(0);
    for task in ["quiet", "loud", "stubborn", "daemon", "after"] {
        assert_eq!(s.outcome(&format!("one/{task}")), "ok/none", "{task}");
    }
    s.assert_nothing_left();
}

#[test]
fn what_was_printed_before_the_end_is_read_whole() {
    // More than a pipe holds, and the program is gone at once.
    let s = Sandbox::new().shell("a", &format!("seq 1 300000; {METRIC}"));
    s.run(&[]).code(0);
    let log = String::from_utf8(s.log("one/a/attempt-1.main.out")).unwrap();
    assert_eq!(log.lines().count(), 300_001);
    assert_eq!(s.samples("one/a", "m"), [2.0]);
}

#[test]
fn a_workload_gets_its_setup_files_environment_and_folder() {
    let s = Sandbox::new()
        .workload(
            "a",
            "files: [data/input.txt, tool.sh], env: { GREETING: 'hi $X ${NOT_FILLED_IN:-default}' }, setup: 'echo ready >state', \
             command: 'cat input.txt state; ./tool.sh; echo \"$GREETING\"; pwd >$SEEN/pwd; env >$SEEN/env'",
        )
        .stage("id: a, repeat: 2, command: { workload: a, gpus: 1 }")
        .workload("b", &format!("workdir: {0}, files: [tool.sh], command: 'pwd >here; ls $PLANRUN_FILES >files'", "/tmp"))
        .shell("c", "ls -A; pwd");
    fs::create_dir(s.path("plan/data")).unwrap();
    fs::write(s.path("plan/data/input.txt"), "input\n").unwrap();
    fs::write(s.path("plan/tool.sh"), "#!/bin/sh\necho tool\n").unwrap();
    fs::set_permissions(s.path("plan/tool.sh"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    s.run(&[]).code(0);
    let out = String::from_utf8(s.log("one/a#1/attempt-1.main.out")).unwrap();
    assert_eq!(out, "input\nready\ntool\nhi $X default\n");
    let env = s.seen("env");
    for entry in [
        "PLANRUN_STAGE=a",
        "PLANRUN_REPEAT=2",
        "PLANRUN_GPUS=1",
        "PLANRUN_STEPS=200",
        "PLANRUN_WARMUP=0",
        "PLANRUN_SECONDS=0",
        "PLANRUN_NODES=1",
        "PLANRUN_NODE_RANK=0",
        "PLANRUN_MASTER_ADDR=127.0.0.1",
        "PLANRUN_CHECKPOINT_DIR=",
        "PLANRUN_CHECKPOINT_REQUEST=",
        "PLANRUN_RUN=",
        "PLANRUN_TASK=one/a#2",
        "LC_ALL=C",
        "TZ=UTC",
    ] {
        assert!(env.lines().any(|l| l.starts_with(entry)), "no {entry} in\n{env}");
    }
    let folder = s.seen("pwd");
    assert!(folder.starts_with(&s.path("tmp").display().to_string()), "{folder}");
    assert!(!fs::exists(folder.trim()).unwrap(), "the task's folder is gone");
    let fresh = String::from_utf8(s.log("one/c/attempt-1.main.out")).unwrap();
    assert_eq!(fresh.lines().count(), 1, "a fresh folder for each task: {fresh}");
    s.assert_nothing_left();
}

#[test]
fn the_plans_text_is_never_templated_into_commands() {
    let s = Sandbox::new()
        .env("EVIL", "$(touch $SEEN/pwned); `touch $SEEN/pwned`")
        .shell("a", r#"printf '%s|%s|%s' "${EVIL}" "$${x" '{{ x }}' | tee $SEEN/out"#);
    s.run(&[]).code(0);
    assert!(s.seen("out").starts_with("$(touch $SEEN/pwned); `touch $SEEN/pwned`|"), "{}", s.seen("out"));
    assert!(s.seen("out").ends_with("|{{ x }}"), "{}", s.seen("out"));
    assert_eq!(entries(&s.path("seen")), ["out"]);
}

#[test]
fn two_files_of_one_name_are_refused() {
    let s = Sandbox::new()
        .workload("a", "files: [x/run.sh, y/run.sh], command: cat run.sh")
        .stage("id: a, command: { workload: a }");
    for (dir, text) in [("x", "one"), ("y", "two")] {
        fs::create_dir(s.path(&format!("plan/{dir}"))).unwrap();
        fs::write(s.path(&format!("plan/{dir}/run.sh")), text).unwrap();
    }
    let ended = s.run(&[]);
    assert!(ended.code != Some(0), "one would silently be appended to the other");
}

#[test]
fn a_server_runs_beside_and_is_ended() {
    let s = Sandbox::new()
        .workload("good", "serve: 'echo $$ >$SEEN/server; exec sleep 1000', command: 'while ! [ -s $SEEN/server ]; do sleep 0.01; done; kill -0 $(cat $SEEN/server)'")
        .stage("id: good, timeout: 60s, command: { workload: good }")
        .workload("bad", "serve: 'echo no port >&2; exit 5', command: 'exec sleep 1000'")
        .stage("id: bad, timeout: 60s, command: { workload: bad }");
    s.run(&[]).code(3);
    assert_eq!(s.outcome("one/good"), "ok/none", "{}", s.reason("one/good"));
    assert_eq!(s.outcome("one/bad"), "failed/command_failed");
    assert!(s.reason("one/bad").contains("the server of workload `bad`"), "{}", s.reason("one/bad"));
    s.assert_nothing_left();
}

#[test]
fn collected_files_are_artifacts_and_nothing_outside_is() {
    let s = Sandbox::new()
        .workload(
            "a",
            "command: 'mkdir -p out/deep; printf \"\\377\\001\" >out/deep/x.bin; echo y >out/y; ln -s /etc/passwd out/link; ln -s /etc folder; echo z >z', \
             collect: [out, folder/passwd, absent, z]",
        )
        .stage("id: a, command: { workload: a }");
    s.run(&[]).code(0);
    let artifacts = s.out().join("artifacts/one/a");
    assert_eq!(entries(&artifacts), ["out", "z"]);
    assert_eq!(entries(&artifacts.join("out")), ["deep", "y"]);
    assert_eq!(fs::read(artifacts.join("out/deep/x.bin")).unwrap(), b"\xff\x01");
    let notes = s.notes().join("\n");
    for left_out in ["out/link", "folder/passwd", "absent"] {
        assert!(notes.contains(&format!("not collected: {left_out}")), "{left_out}: {notes}");
    }
    for outside in ["../../secret", "/etc/passwd", "out/../../x"] {
        let s = Sandbox::new().shell_with("a", "", &format!("collect: ['{outside}'],"), METRIC);
        s.run(&[]).code(2).says("leaves the working folder");
    }
}

/// A sandbox whose PATH has a `docker` of our own, and none of the machine's.
fn with_docker(script: Option<&str>) -> Sandbox {
    let s = Sandbox::new();
    let bin = s.path("bin");
    fs::create_dir(&bin).unwrap();
    for tool in ["sh", "sleep", "cat", "env", "touch", "echo", "rm", "mkdir"] {
        let from =
            ["/bin", "/usr/bin"].map(|d| format!("{d}/{tool}")).into_iter().find(|p| fs::exists(p).unwrap());
        std::os::unix::fs::symlink(from.unwrap(), bin.join(tool)).unwrap();
    }
    if let Some(script) = script {
        fs::write(bin.join("docker"), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(bin.join("docker"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    s.env("PATH", &bin.display().to_string())
}

/// Records how it is called; `run` takes the last argument as the script.
const DOCKER: &str = r#"
for a; do printf '%s\n' "$a"; done >>$SEEN/docker
[ "$1" = run ] || { echo "$PLANRUN_RUN" >$SEEN/undone; exit 0; }
for a; do last=$a; done
exec sh -c "$last"
"#;

#[test]
fn an_image_runs_by_the_runtime_and_is_removed() {
    let s = with_docker(Some(DOCKER)).shell_with("a", "", "image: 'img:1', env: { TOKEN: hush },", METRIC);
    s.run(&[]).code(0);
    let calls = s.seen("docker");
    let lines: Vec<&str> = calls.lines().collect();
    for word in ["--rm", "img:1", "TOKEN", "PLANRUN_STEPS"] {
        assert!(lines.contains(&word), "no {word} in\n{calls}");
    }
    assert!(!calls.contains("hush"), "values stay out of the process table");
    assert_eq!(&lines[lines.len() - 3..lines.len() - 1], ["rm", "-f"], "{calls}");
    assert_eq!(s.seen("undone").trim(), s.journal()[0].1["run"], "what undoes knows its run");
    assert_eq!(s.samples("one/a", "m"), [2.0]);
}

#[test]
fn an_image_without_a_runtime_is_unsupported_and_never_run_bare() {
    for script in [None, Some("exit 1")] {
        let s =
            with_docker(script).shell_with("a", "", "image: 'img:1',", "touch $SEEN/bare").shell("b", METRIC);
        s.run(&[]).code(3);
        assert_eq!(s.outcome("one/a"), "unsupported/not_there");
        assert_eq!(entries(&s.path("seen")), Vec::<String>::new());
    }
}

/// Every file below a folder, and its name.
fn everything_in(folder: PathBuf) -> String {
    let (mut all, mut waiting) = (String::new(), vec![folder]);
    while let Some(path) = waiting.pop() {
        all.push_str(&format!("{}\n", path.display()));
        if path.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else {
            all.push_str(&String::from_utf8_lossy(&fs::read(&path).unwrap()));
        }
    }
    all
}

#[test]
fn a_canary_shows_nowhere() {
    let canary = "k\u{e9}y/4711 canary";
    let number = "471100815";
    let script = r#"
        echo "$URL" | sed 's/.*://;s/@.*//'; echo "$TOKEN" >&2; echo "$NUMBER"
        echo "{\"note\": \"$JSON\"}"; echo "GET /?$PERCENT"
        echo "{\"metric\": \"m\", \"value\": $NUMBER}"; echo '{"metric": "m", "value": 2}'
        echo "{\"step\": 1, \"seconds\": $NUMBER}"; echo "{\"fact\": \"f\", \"value\": $NUMBER}"
        mkdir kept; printf 'one %s\n%s' "$TOKEN" "$JSON" > kept/text
        printf '\0\001%s' "$TOKEN" > kept/binary; : > "kept/$NUMBER""#;
    let sandbox = || {
        Sandbox::new()
            .env("TOKEN", canary)
            .env("NUMBER", number)
            .env("JSON", r"k\u00e9y\/4711 canary")
            .env("PERCENT", "k%C3%A9y%2F4711+canary")
            .header("secrets: [TOKEN, NUMBER]")
    };
    let s = sandbox()
        .platform("one", r#"{ main: { local: true }, far: { ssh: "h${NUMBER}", identity: "/${TOKEN}" } }"#)
        .shell_with(
            "a",
            "retries: { errors: 1 },",
            r#"collect: [kept/], env: { URL: "u://x:${TOKEN}@h" },"#,
            script,
        )
        .stage("id: far, at: far, command: { workload: a }");
    let ended = s.run(&["-vv"]).code(3);
    let all = format!("{}{}{}", ended.stdout, ended.stderr, everything_in(s.out()));
    for leak in ["canary", "4711"] {
        assert!(
            !all.contains(leak),
            "`{leak}` stands in {}",
            &all[all.find(leak).unwrap().saturating_sub(200)..]
        );
    }
    assert_eq!(s.samples("one/a", "m"), [2.0]);
    let kept = s.out().join("artifacts/one/a/kept");
    assert_eq!(fs::read(kept.join("text")).unwrap(), b"one ****\n****");
    assert_eq!(fs::read(kept.join("binary")).unwrap(), b"\0\x01****");

    for (header, stage) in [
        ("headline: [\"a.${TOKEN}\"]", "inventory: {}"),
        ("rubric: \"${TOKEN}.yaml\"", "inventory: {}"),
        ("report: { language: \"${TOKEN}\" }", "inventory: {}"),
        ("", r#"id: "${TOKEN}", inventory: {}"#),
        ("", r#"inventory: { paths: ["/${TOKEN}"] }"#),
        ("", "inventory: {}, timeout: \"${NUMBER}s\""),
    ] {
        let s = sandbox().header(header).stage(stage);
        let ended = s.run(&["-vv"]).code(2);
        let all = format!("{}{}", ended.stdout, ended.stderr);
        assert!(all.contains("is a secret") && !all.contains("canary") && !all.contains("4711"), "{all}");
        assert!(!s.out().exists());
    }
}

#[test]
fn secrets_are_masked_everywhere() {
    let secret = "hunter2-\"quoted\"-and-long";
    let script = r#"
        echo "plain $TOKEN and $TOKEN_TWO"; echo "aside $TOKEN" >&2
        printf '%s' "$TOKEN" | head -c 9; sleep 0.3; printf '%s\n' "$TOKEN" | tail -c +10
        e=$(printf '%s' "$TOKEN" | sed 's/"/\\"/g')
        echo "{\"metric\": \"m\", \"value\": 1, \"unit\": \"$e\", \"labels\": {\"l\": \"$e\"}}"
        echo "{\"fact\": \"f\", \"value\": {\"deep\": [\"$e\"]}}"
        echo "{\"note\": \"$e\"}"
        echo "{\"metric\": \"$e\", \"value\": 1}"
        echo "fails with $TOKEN" >&2; exit 1"#;
    let s = Sandbox::new()
        .env("TOKEN", secret)
        .env("TOKEN_TWO", &format!("{secret}-and-longer"))
        .env("STARS", "****")
        .header("secrets: [TOKEN, TOKEN_TWO, STARS, NOT_SET]")
        .shell("a", script);
    let ended = s.run(&[]).code(3);
    let all = format!("{}{}{}", ended.stdout, ended.stderr, everything_in(s.out()));
    for leak in ["hunter2", "quoted", "-and-longer"] {
        assert!(
            !all.contains(leak),
            "`{leak}` stands in {}",
            &all[all.find(leak).unwrap().saturating_sub(200)..]
        );
    }
    let log = String::from_utf8(s.log("one/a/attempt-1.main.out")).unwrap();
    assert!(log.starts_with("plain **** and ****\n****\n"), "{log}");
    assert_eq!(s.log("one/a/attempt-1.main.err"), b"aside ****\nfails with ****\n");
}
