//! Going on with a run: after its journal was cut anywhere, with another plan, in a damaged or empty folder.

use std::fs;

use crate::support::{Sandbox, bodies, entries, wait_until};

/// A small finished run: a repetition, a need, a retry, a task that is not offered, one that was left out.
fn finished() -> (Sandbox, Vec<u8>) {
    let note = |name: &str| {
        format!("echo x >>$SEEN/$RUNNO.{name}$PLANRUN_REPEAT; echo '{{\"metric\": \"m\", \"value\": 1}}'")
    };
    let s = Sandbox::new()
        .env("RUNNO", "first")
        .shell_with("a", "repeat: 2,", "", &note("a"))
        .shell_with("b", "needs: [a], expect: { m: '== 1' },", "", &note("b"))
        .shell_with(
            "c",
            "retries: { errors: 1 },",
            "",
            &format!("{}; [ -e $SEEN/c-again ] || {{ touch $SEEN/c-again; exit 1; }}", note("c")),
        )
        .shell_with("d", "at: elsewhere,", "", &note("d"))
        .shell("e", &note("e"))
        .platform("one", "{ main: { local: true } }")
        .platform("two", "{ elsewhere: { local: true } }");
    s.run(&["--skip", "one/e", "--skip", "two/a", "--skip", "two/b", "--skip", "two/c", "--skip", "two/e"])
        .code(0);
    let journal = fs::read(s.out().join("journal.jsonl")).unwrap();
    (s, journal)
}

/// Tasks that have ended for good in a journal.
fn ended(bodies: &[(String, serde_json::Value)]) -> Vec<String> {
    let ends = bodies.iter().filter(|(kind, body)| kind == "task_ended" && body["retried"] != true);
    ends.map(|(_, body)| body["task"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_run_goes_on_from_every_line() {
    let (s, journal) = finished();
    let ends: Vec<usize> =
        journal.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect();
    // What is settled before anything runs is there with the first line, or there is no journal.
    let settled = bodies(&s.out()).iter().skip(1).take_while(|(kind, _)| kind == "task_ended").count();
    assert_eq!(settled, 7);
    let mut cuts: Vec<usize> = ends.iter().skip(settled).copied().collect();
    cuts.extend(ends.iter().skip(settled + 1).step_by(3).map(|end| end - 7));
    for (n, cut) in cuts.into_iter().enumerate() {
        let dir = s.path(&format!("cut-{n}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("journal.jsonl"), &journal[..cut]).unwrap();
        let before = ended(&bodies(&dir));
        let mut command = s.command(&["resume", "-qq", &dir.display().to_string()]);
        command.env("RUNNO", format!("cut{n}"));
        let _ = fs::remove_file(s.path("seen/c-again"));
        s.spawn(command).wait().code(0);
        let after = bodies(&dir);
        let mut all = ended(&after);
        assert_eq!(all.len(), 12, "cut at {cut}: {all:?}");
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 12, "cut at {cut}: a task ended twice");
        let ran: Vec<String> = entries(&s.path("seen"))
            .into_iter()
            .filter_map(|f| f.strip_prefix(&format!("cut{n}.")).map(str::to_owned))
            .collect();
        let tasks = [("a1", "one/a#1"), ("a2", "one/a#2"), ("b1", "one/b"), ("c1", "one/c"), ("d1", "two/d")];
        for (file, task) in tasks {
            let expected = !before.contains(&task.to_owned());
            assert_eq!(ran.contains(&file.to_owned()), expected, "cut at {cut}: {task}, ran: {ran:?}");
        }
        assert!(!ran.contains(&"e1".to_owned()), "cut at {cut}: what was left out stays so");
        let (last, body) = after.last().unwrap();
        assert_eq!((last.as_str(), &body["complete"]), ("run_ended", &true.into()), "cut at {cut}");
    }
}

#[test]
fn logs_of_an_interrupted_try_are_not_mixed_with_the_next() {
    let s =
        Sandbox::new().shell("a", "echo x >>$SEEN/a; echo $(wc -l <$SEEN/a); [ -e $SEEN/go ] || sleep 1000");
    let run = s.start_run(&[]);
    let log = s.out().join("logs/one/a/attempt-1.main.out");
    wait_until("the first line of the log", || fs::read(&log).is_ok_and(|l| !l.is_empty()));
    run.signal(rustix::process::Signal::KILL);
    run.wait();
    s.assert_nothing_left();
    fs::write(s.path("seen/go"), "").unwrap();
    s.resume().code(0);
    assert_eq!(s.log("one/a/attempt-1.main.out"), b"1\n");
    assert_eq!(s.log("one/a/attempt-2.main.out"), b"2\n");
    assert_eq!(s.end_of("one/a")["attempt"], 2);
}

#[test]
fn a_run_that_ended_is_shown_again_and_nothing_is_done() {
    let (s, journal) = finished();
    let before = s.seen("first.a1");
    let card = fs::read(s.out().join("scorecard.md")).unwrap();
    s.resume().code(0);
    assert_eq!(s.seen("first.a1"), before);
    assert!(fs::read(s.out().join("journal.jsonl")).unwrap().starts_with(&journal), "only appended to");
    assert!(!card.is_empty());
}

#[test]
fn a_journal_of_another_plan_is_refused() {
    let (s, _) = finished();
    let plan = s.plan();
    let text = fs::read_to_string(&plan).unwrap();
    fs::write(&plan, text.replace("100s", "99s")).unwrap();
    s.resume().code(4).says("has changed since the run began");
    // A plan that is gone is no other plan: its text stands in the journal.
    fs::remove_file(&plan).unwrap();
    s.resume().code(0);
}

#[test]
fn a_damaged_journal_is_refused_and_left_as_it_is() {
    let (s, journal) = finished();
    let file = s.out().join("journal.jsonl");
    let lines: Vec<&[u8]> = journal.split_inclusive(|b| *b == b'\n').collect();
    let without = |n: usize| {
        lines.iter().enumerate().filter(|(i, _)| *i != n).flat_map(|(_, l)| l.to_vec()).collect::<Vec<u8>>()
    };
    let flipped = |at: usize| {
        let mut bytes = journal.clone();
        bytes[at] ^= 1;
        bytes
    };
    let middle = lines[..9].iter().map(|l| l.len()).sum::<usize>() + 20;
    for (what, bytes) in [
        ("first byte", flipped(1)),
        ("middle", flipped(middle)),
        ("no first line", without(0)),
        ("gap", without(8)),
    ] {
        fs::write(&file, &bytes).unwrap();
        s.resume().code(4).says("damaged");
        s.planrun(&["score", &s.out().display().to_string()]).code(4);
        assert_eq!(fs::read(&file).unwrap(), bytes, "{what}");
    }
}

#[test]
fn folders_without_a_run_are_told_apart() {
    let (s, journal) = finished();
    let empty = s.path("empty");
    s.planrun(&["resume", &empty.display().to_string()]).code(2);
    fs::create_dir(&empty).unwrap();
    s.planrun(&["resume", &empty.display().to_string()]).code(2).says("holds no run");
    fs::write(empty.join("journal.jsonl"), &journal[..100]).unwrap();
    s.planrun(&["resume", &empty.display().to_string()]).code(4).says("start a new one");
    s.planrun(&["score", &empty.display().to_string()]).code(4);
}

#[test]
fn a_folder_with_a_run_is_not_written_over_and_a_running_one_is_locked() {
    let s = Sandbox::new().shell("a", "touch $SEEN/a; while ! [ -e $SEEN/go ]; do sleep 0.02; done");
    let run = s.start_run(&[]);
    wait_until("the task to work", || s.path("seen/a").exists());
    s.run(&[]).code(4).says("exists already");
    s.resume().code(4).says("in use");
    fs::write(s.path("seen/go"), "").unwrap();
    run.wait().code(0);
    s.run(&[]).code(4).says("exists already");
    s.resume().code(0);
}

#[test]
fn a_newer_journal_is_refused() {
    let (s, journal) = finished();
    let text = String::from_utf8(journal).unwrap();
    let (first, rest) = text.split_once('\n').unwrap();
    let object = first.rsplit_once(",\"crc\"").unwrap().0.replacen("\"schema\":1", "\"schema\":2", 1);
    let crc = crc32fast::hash(object.as_bytes());
    fs::write(s.out().join("journal.jsonl"), format!("{object},\"crc\":\"{crc:08x}\"}}\n{rest}")).unwrap();
    s.resume().code(4).says("schema 2");
    s.planrun(&["score", &s.out().display().to_string()]).code(4);
}
