use std::fs::File;
use std::os::unix::fs::FileExt as _;

use super::*;

const ROOMY: u64 = 1 << 50;

fn roomy() -> Volume {
    Volume { kind: "ext4".into(), bytes: ROOMY, free_bytes: ROOMY }
}

fn small_spec(place: &Path) -> StorageSpec {
    StorageSpec {
        path: place.display().to_string(),
        size_bytes: 2 << 20,
        block_bytes: 128 << 10,
        seconds: 0.1,
        small_files: 20,
        random_jobs: 2,
        ..StorageSpec::default()
    }
}

fn run_small(change: impl FnOnce(&mut StorageSpec)) -> (Vec<Value>, usize) {
    let place = tempfile::tempdir().unwrap();
    let mut spec = small_spec(place.path());
    change(&mut spec);
    let mut out = Vec::new();
    measure(&spec, &roomy(), &mut Lines::new(&mut out)).unwrap();
    let lines =
        String::from_utf8(out).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (lines, std::fs::read_dir(place.path()).unwrap().count())
}

fn named<'a>(lines: &'a [Value], name: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["metric"] == name).collect()
}

#[test]
fn a_run_gives_labelled_numbers_and_leaves_nothing() {
    let (lines, left) = run_small(|_| {});
    assert_eq!(left, 0);
    for name in ["write_bandwidth", "read_bandwidth", "read_iops", "write_iops", "fsync_seconds"] {
        let found = named(&lines, name);
        assert_eq!(found.len(), 1, "{name}");
        assert!(found[0]["value"].as_f64().unwrap() > 0.0, "{name}");
    }
    let ops: Vec<&str> = named(&lines, "small_files_per_second")
        .iter()
        .map(|line| line["labels"]["op"].as_str().unwrap())
        .collect();
    assert_eq!(ops, ["create", "read", "delete"]);
    for line in lines.iter().filter(|line| line.get("metric").is_some()) {
        let (_, unit, _) = STORAGE.iter().find(|(name, ..)| line["metric"] == *name).expect("listed");
        assert_eq!(line["unit"], *unit);
        for label in ["direct", "cache", "jobs", "block_bytes"] {
            assert!(line["labels"][label].is_string(), "{line}");
        }
    }
    assert_eq!(named(&lines, "read_iops")[0]["labels"]["jobs"], "2");
    assert_eq!(named(&lines, "write_bandwidth")[0]["labels"]["block_bytes"], "131072");
}

#[test]
fn through_the_page_cache_it_says_so() {
    let (lines, left) = run_small(|spec| (spec.direct, spec.jobs) = (false, 3));
    assert_eq!(left, 0);
    let read = named(&lines, "read_bandwidth");
    assert_eq!(
        (&read[0]["labels"]["direct"], &read[0]["labels"]["cache"]),
        (&"false".into(), &"unknown".into())
    );
    assert!(lines.iter().any(|line| line["note"].as_str().is_some_and(|note| note.contains("page cache"))));
}

#[test]
fn data_that_changed_on_the_disk_is_found() {
    let place = tempfile::tempdir().unwrap();
    let spec = StorageSpec { jobs: 2, ..small_spec(place.path()) };
    let (target, _) = Target::make(place.path(), &roomy(), false).unwrap();
    let mut work = Work::new(&spec, &target);
    work.write().unwrap();
    work.read().unwrap();
    work.read_random().unwrap();
    let file = File::options().write(true).open(target.file()).unwrap();
    file.write_all_at(b"x", spec.size_bytes - 1000).unwrap();
    let error = work.read().unwrap_err();
    assert_eq!(error.cause(), "wrong_data");
    assert!(error.to_string().contains("is damaged"), "{error}");
    drop(target);
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "also after an error");
}

#[test]
fn random_writes_are_read_again() {
    let place = tempfile::tempdir().unwrap();
    let spec = small_spec(place.path());
    let (target, _) = Target::make(place.path(), &roomy(), true).unwrap();
    let mut work = Work::new(&spec, &target);
    assert_eq!(work.write_random().unwrap().ops.len(), 0, "nothing was written yet");
    work.write().unwrap();
    assert!(!work.write_random().unwrap().ops.is_empty());
    // Some sectors now are of the random pass, so the check in order must object.
    assert_eq!(work.read().unwrap_err().cause(), "wrong_data");
}

#[test]
fn what_would_fill_the_disk_is_refused_before_the_first_byte() {
    let place = tempfile::tempdir().unwrap();
    let spec = small_spec(place.path());
    let full = Volume { free_bytes: (1 << 30) + (1 << 20), bytes: 1 << 31, ..roomy() };
    let error = measure(&spec, &full, &mut Lines::new(&mut Vec::new())).unwrap_err();
    assert_eq!(error.cause(), "refused");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn impossible_specs_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().display().to_string();
    for (key, value) in [
        ("block_bytes", 1000.into()),
        ("random_block", 8191.into()),
        ("size_bytes", 4097.into()),
        ("seconds", 0.into()),
        ("jobs", 0.into()),
        ("path", "".into()),
        ("sise", 1.into()),
    ] {
        let mut spec = serde_json::json!({ "path": path });
        spec[key] = value;
        let error = run(spec, &mut Vec::new()).unwrap_err();
        assert_eq!(error.cause(), "bad_spec", "{key}");
    }
    let gone = serde_json::json!({"path": place.path().join("none")});
    assert_eq!(run(gone, &mut Vec::new()).unwrap_err().cause(), "not_found");
}
