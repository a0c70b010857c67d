//! What a journal that was cut, changed or taken by another says.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::{
    measure::{Better, Finite, Labels, Unit},
    record::{Body, Level, Outcome, PlanRef, Record, RunStarted, SCHEMA, Series, TaskId},
};

fn started() -> RunStarted {
    RunStarted {
        schema: SCHEMA,
        planrun: "0.1.0".into(),
        run: "r".into(),
        plan: PlanRef { name: "n".into(), period: "p".into(), digest: "d".into() },
        plan_text: "schema: 1\n# \u{2028} \"quoted\" \u{1f680}\n".into(),
        set: vec![],
        plan_path: "/plan.yaml".into(),
        judgement: serde_json::json!({ "a": [1, null] }),
        tasks: vec![],
        quick: false,
    }
}

fn ended(task: &TaskId) -> Body {
    Body::TaskEnded {
        task: task.clone(),
        attempt: 1,
        outcome: Outcome::ok(),
        retried: false,
        seconds: Finite::default(),
        expectations: vec![],
        log: None,
    }
}

/// A journal of a few lines of every length, in a folder of its own; its bytes and its records.
fn journal(texts: &[String]) -> (tempfile::TempDir, Vec<u8>, Vec<Record>) {
    let dir = tempfile::tempdir().unwrap();
    let mut journal =
        Journal::create(dir.path(), started(), vec![ended(&TaskId("p/settled".into()))]).unwrap();
    for (n, text) in texts.iter().enumerate() {
        let task = TaskId(format!("p/s{n}"));
        journal.append(Body::TaskStarted { task: task.clone(), attempt: 1 }).unwrap();
        let note = Body::Note { task: Some(task.clone()), level: Level::Info, text: text.clone() };
        journal.append(note).unwrap();
        let series =
            Series { name: "m".into(), labels: Labels::none(), unit: Unit::SECONDS, better: Better::Lower };
        let values = text.bytes().map(|b| Finite::try_from(f64::from(b)).unwrap()).collect();
        journal.append(Body::Samples { task: task.clone(), series, values }).unwrap();
        journal.append(ended(&task)).unwrap();
    }
    drop(journal);
    let bytes = std::fs::read(dir.path().join(FILE)).unwrap();
    let records = all(dir.path()).unwrap().0;
    (dir, bytes, records)
}

fn all(dir: &Path) -> Result<(Vec<Record>, Tail), JournalError> {
    let mut records = Vec::new();
    let tail = read(&dir.join(FILE), |record| records.push(record))?;
    Ok((records, tail))
}

fn put(dir: &Path, bytes: &[u8]) {
    std::fs::write(dir.join(FILE), bytes).unwrap();
}

/// Where each line ends.
fn ends(bytes: &[u8]) -> Vec<usize> {
    bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i + 1).collect()
}

#[test]
fn cut_at_any_byte_it_reads_back_as_a_prefix() {
    let (dir, bytes, records) = journal(&["a".into(), "line\nbreaks \u{0} and \"crc\":\"00000000\"}".into()]);
    let ends = ends(&bytes);
    for cut in 0..=bytes.len() {
        put(dir.path(), &bytes[..cut]);
        let whole = ends.iter().filter(|end| **end <= cut).count();
        let kept = if whole == 0 { 0 } else { ends[whole - 1] };
        match all(dir.path()) {
            Err(JournalError::Empty(_)) => assert_eq!(whole, 0, "cut at {cut}"),
            Ok((read, tail)) => {
                assert_eq!(read, records[..whole], "cut at {cut}");
                assert_eq!(tail, Tail { lines: whole as u64, bytes: kept as u64, torn: (cut - kept) as u64 });
            }
            Err(e) => panic!("cut at {cut}: {e}"),
        }
    }
}

#[test]
fn going_on_after_any_cut_gives_a_whole_journal() {
    let (dir, bytes, _) = journal(&["text".into()]);
    let first = ends(&bytes)[0];
    for cut in (first..=bytes.len()).step_by(3) {
        put(dir.path(), &bytes[..cut]);
        let mut before = 0;
        let mut resumed = Journal::resume(dir.path(), |_| before += 1).unwrap();
        let body = Body::RunResumed { planrun: "x".into(), dropped_bytes: resumed.tail.torn };
        resumed.journal.append(body.clone()).unwrap();
        let (records, tail) = all(dir.path()).unwrap();
        assert_eq!((records.len(), tail.torn), (before + 1, 0), "cut at {cut}");
        assert_eq!(records.last().unwrap().body, body);
        assert!(records.iter().enumerate().all(|(n, r)| r.seq == n as u64));
    }
}

#[test]
fn a_missing_or_doubled_line_is_damage() {
    let (dir, bytes, _) = journal(&["one".into(), "two".into()]);
    let lines: Vec<&[u8]> = bytes.split_inclusive(|b| *b == b'\n').collect();
    for n in 0..lines.len() - 1 {
        let without: Vec<&[u8]> =
            lines.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, l)| *l).collect();
        put(dir.path(), &without.concat());
        let found = all(dir.path());
        assert!(
            matches!(found, Err(JournalError::Damaged { line, .. }) if line == n as u64 + 1),
            "{n}: {found:?}"
        );
        let mut twice = lines.clone();
        twice.insert(n, lines[n]);
        put(dir.path(), &twice.concat());
        assert!(matches!(all(dir.path()), Err(JournalError::Damaged { .. })), "{n} twice");
    }
}

#[test]
fn a_last_line_that_is_whole_and_unknown_is_not_dropped() {
    // Written by a later version without a new schema number: dropping it would lose what it says.
    let (dir, mut bytes, records) = journal(&["one".into()]);
    let seq = records.len();
    let mut line = format!(r#"{{"seq":{seq},"at":"x","since":0.0,"body":{{"later":{{}}}}}}"#);
    seal(&mut line);
    bytes.extend(line.into_bytes());
    put(dir.path(), &bytes);
    assert!(matches!(Journal::resume(dir.path(), |_| ()), Err(JournalError::Damaged { .. })));
    assert_eq!(std::fs::read(dir.path().join(FILE)).unwrap(), bytes, "nothing was cut off");
}

#[test]
fn a_newer_schema_is_refused() {
    let (dir, bytes, _) = journal(&[]);
    let text = String::from_utf8(bytes).unwrap();
    let first = text.lines().next().unwrap();
    let mut object = first[..first.len() - SEAL].replace("\"schema\":1", "\"schema\":7") + "}";
    seal(&mut object);
    put(dir.path(), object.as_bytes());
    assert!(matches!(all(dir.path()), Err(JournalError::Newer { found: 7, known: SCHEMA, .. })));
    assert!(matches!(Journal::resume(dir.path(), |_| ()), Err(JournalError::Newer { .. })));
}

#[test]
fn one_process_writes_and_nobody_begins_twice() {
    let dir = tempfile::tempdir().unwrap();
    let journal = Journal::create(dir.path(), started(), vec![]).unwrap();
    assert!(matches!(Journal::create(dir.path(), started(), vec![]), Err(JournalError::Exists(_))));
    // Locks belong to open files: a second opening in this process is as good as another process.
    assert!(matches!(Journal::resume(dir.path(), |_| ()), Err(JournalError::Locked(_))));
    drop(journal);
    let mut lines = 0;
    Journal::resume(dir.path(), |_| lines += 1).unwrap();
    assert_eq!(lines, 1);
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, [FILE], "no draft is left");
}

#[test]
fn a_clock_that_goes_back_does_not_matter() {
    let (dir, bytes, records) = journal(&["one".into()]);
    let mut text = String::new();
    for (n, line) in String::from_utf8(bytes).unwrap().lines().enumerate() {
        let mut object =
            line[..line.len() - SEAL].replacen("\"at\":\"2", &format!("\"at\":\"{}", 9 - n), 1) + "}";
        seal(&mut object);
        text.push_str(&object);
    }
    put(dir.path(), text.as_bytes());
    assert_eq!(all(dir.path()).unwrap().0.len(), records.len());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_text_reads_back_cut_anywhere(texts in prop::collection::vec(".{0,40}", 0..4), share in 0.0..1.0_f64) {
        let (dir, bytes, records) = journal(&texts);
        let cut = (bytes.len() as f64 * share) as usize;
        put(dir.path(), &bytes[..cut]);
        let whole = ends(&bytes).iter().filter(|end| **end <= cut).count();
        match all(dir.path()) {
            Err(e) => prop_assert!(whole == 0 && matches!(e, JournalError::Empty(_)), "{}", e),
            Ok((read, _)) => prop_assert_eq!(&read[..], &records[..whole]),
        }
    }

    #[test]
    fn a_changed_byte_never_passes(texts in prop::collection::vec(".{0,20}", 1..3), at in any::<prop::sample::Index>(), flip in 1..=255_u8) {
        let (dir, mut bytes, records) = journal(&texts);
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        put(dir.path(), &bytes);
        let line = ends(&bytes).iter().filter(|end| **end <= at).count();
        match all(dir.path()) {
            Err(JournalError::Damaged { .. } | JournalError::Newer { .. }) => {}
            // Only at the end it looks like a write that was cut short.
            Ok((read, tail)) => {
                prop_assert_eq!(line, records.len() - 1);
                prop_assert_eq!(&read[..], &records[..records.len() - 1]);
                prop_assert!(tail.torn > 0);
            }
            Err(e) => prop_assert!(false, "{}", e),
        }
    }
}
