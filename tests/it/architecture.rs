//! Who may know whom: the table of rooms, held against every `crate::` path of the sources.
//!
//! Tests inside the sources are left out: they may build what they test from anywhere.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// A room, what it may import, and what it must never know.
const ROOMS: &[(&str, &str, &str)] = &[
    ("measure", "", "a leaf: units, numbers and statistics know nothing else"),
    ("findings", "", "a leaf: a finding knows places in a text, not what the text means"),
    ("outcome", "", "a leaf: hosts, stages, journal and score all speak of outcomes"),
    ("platform", "measure findings", "a platform knows no plan, no stage and no way to a host"),
    ("record", "measure platform outcome", "a line does not know how it is stored, sent or shown"),
    ("wire", "measure platform outcome", "a message does not know how it is stored, sent or shown"),
    ("probe", "measure wire platform outcome", "a probe knows no stage, journal, plan, score or report"),
    (
        "workload",
        "measure wire platform",
        "the reference training knows no stage, journal, plan, score or report",
    ),
    ("readers", "measure wire platform outcome", "a reader knows no stage, journal, plan, score or report"),
    ("agent", "measure wire", "the agent does not know what a task measures: binaries hand it the probes"),
    ("transport", "outcome", "a way to a host knows neither stages nor what its bytes mean"),
    (
        "stage",
        "measure findings outcome platform wire probe workload readers transport",
        "a stage knows no record, journal, score, report, runner or plan",
    ),
    ("plan", "measure findings platform stage score readers", "a plan knows no runner, transport or journal"),
    ("journal", "measure record", "the journal does not know what a number means"),
    (
        "runner",
        "measure platform wire plan stage transport journal record readers outcome",
        "the runner knows no score and no report: everything right of the journal is pure",
    ),
    (
        "score",
        "measure findings outcome platform record",
        "judgement knows no files, no report and no stage's inside",
    ),
    ("report", "score measure", "a report does not know how a number was made"),
    ("error", "findings", "how a command ends is the matter of commands and main"),
    ("cli", "error", "the command line, and nothing but it"),
    ("progress", "findings record outcome runner", "progress sees records go by"),
    ("commands", "*", "the only place that knows all rooms"),
    ("child", "agent probe workload", "what the agent's children do, and nothing that a host need not have"),
    ("main", "*", "hands over to commands"),
    ("lib", "*", "lists the rooms"),
    ("bin", "agent child", "the small binary is agent and probes only"),
];

/// Only these may use the rooms on the right.
const ONLY: &[(&str, &str)] =
    &[("commands main", "cli progress"), ("commands main cli", "error"), ("commands main bin", "commands")];

#[test]
fn rooms_import_only_what_they_may() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let table: BTreeMap<&str, (&str, &str)> =
        ROOMS.iter().map(|(room, may, why)| (*room, (*may, *why))).collect();
    let mut wrong = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for file in sources(&src) {
        let name = file.strip_prefix(&src).unwrap().display().to_string();
        let room = name.split('/').next().unwrap().trim_end_matches(".rs").to_owned();
        let Some((may, why)) = table.get(room.as_str()) else {
            wrong.insert(format!("{name}: the room `{room}` is not in the table"));
            continue;
        };
        seen.insert(room.clone());
        for other in imports(&without_tests(&fs::read_to_string(&file).unwrap())) {
            if other == room || !table.contains_key(other.as_str()) {
                continue; // macros and items of the crate's root are nobody's room
            }
            let one_of = |list: &str, name: &str| list.split(' ').any(|n| n == name || n == "*");
            if !one_of(may, &other) {
                wrong.insert(format!("{name}: {room} -> {other}: {why}"));
            }
            for (who, what) in ONLY {
                if one_of(what, &other) && !one_of(who, &room) {
                    wrong.insert(format!("{name}: {room} -> {other}: only {who} may"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
    let gone: Vec<&&str> = table.keys().filter(|room| !seen.contains(**room)).collect();
    assert!(gone.is_empty(), "rooms in the table that are not in src: {gone:?}");
}

fn sources(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()) {
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        if entry.is_dir() && name != "tests" {
            files.extend(sources(&entry));
        } else if entry.extension().is_some_and(|e| e == "rs")
            && name != "tests.rs"
            && !is_test_module(&entry)
        {
            files.push(entry);
        }
    }
    files
}

/// Whether the file's module is declared under `#[cfg(test)]` next door.
fn is_test_module(file: &Path) -> bool {
    let (Some(dir), Some(stem)) = (file.parent(), file.file_stem()) else { return false };
    let beside = [dir.join("mod.rs"), dir.with_extension("rs")];
    let stem = stem.to_string_lossy();
    beside.iter().filter_map(|f| fs::read_to_string(f).ok()).any(|text| {
        ["mod ", "pub(crate) mod ", "pub mod "]
            .iter()
            .any(|m| text.contains(&format!("#[cfg(test)]\n{m}{stem};")))
    })
}

/// The text without comments and without what stands under `#[cfg(test)]`.
fn without_tests(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "#[cfg(test)]" {
            let indent = line.len() - line.trim_start().len();
            // An item ends with the first line of the same indent that closes it.
            for line in lines.by_ref() {
                let own = line.len() - line.trim_start().len();
                if own == indent && (line.trim_end().ends_with(';') || line.trim_start().starts_with('}')) {
                    break;
                }
            }
            continue;
        }
        out.push_str(line.split("//").next().unwrap_or_default());
        out.push('\n');
    }
    out
}

/// The rooms that a text names as `crate::room`, `planrun::room`, or within braces behind these.
fn imports(text: &str) -> BTreeSet<String> {
    let mut rooms = BTreeSet::new();
    let flat: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for root in ["crate::", "planrun::"] {
        for (at, _) in flat.match_indices(root) {
            if flat[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            let rest = &flat[at + root.len()..];
            let word = |text: &str| {
                text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>()
            };
            let Some(list) = rest.strip_prefix('{') else {
                rooms.insert(word(rest));
                continue;
            };
            let (mut depth, mut begin) = (0, true);
            for (i, c) in list.char_indices() {
                match c {
                    '{' => depth += 1,
                    '}' if depth == 0 => break,
                    '}' => depth -= 1,
                    ',' if depth == 0 => begin = true,
                    c if begin && !c.is_whitespace() => {
                        rooms.insert(word(&list[i..]));
                        begin = false;
                    }
                    _ => {}
                }
            }
        }
    }
    rooms
}

#[test]
fn paths_are_found_in_all_their_forms() {
    let text = "use crate::{\n    measure::{Unit, quantity::Bound}, // score::x\n    record,\n};\nfn f() -> crate::wire::Up {}\n\
                #[cfg(test)]\nmod tests {\n    use crate::report;\n}\nmy_crate::plan();\n$crate::stage::X;\n";
    let found: Vec<String> = imports(&without_tests(text)).into_iter().collect();
    assert_eq!(found, ["measure", "record", "stage", "wire"]);
}
