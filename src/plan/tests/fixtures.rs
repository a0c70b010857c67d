//! Whole plans in `fixtures/plans`: the good ones have no findings but notes, each bad one has exactly the findings
//! that stand beside it in `NAME.expected`. `PLANRUN_BLESS=1` writes those anew.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::*;

fn plans(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/plans").join(folder);
    let mut found: Vec<PathBuf> = fs::read_dir(&folder)
        .unwrap_or_else(|e| panic!("{}: {e}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "yaml"))
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no plans in {}", folder.display());
    found
}

/// Loads a fixture as `check` does; rubric files stand beside it.
fn check(path: &Path) -> (Loaded, String) {
    let bytes = fs::read(path).unwrap();
    let name = path.file_name().unwrap().to_string_lossy().into_owned();
    let folder = path.parent().unwrap().to_owned();
    let read_file =
        move |file: &str| fs::read_to_string(folder.join(file)).map_err(|_| "no such file".to_owned());
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let mut options = options();
    options.read_file = &read_file;
    let loaded = load_bytes(&name, &bytes, &options);
    let rendered = loaded.render(Form::Human, &name, &text);
    (loaded, rendered)
}

#[test]
fn good_plans_have_no_findings() {
    for path in plans("good") {
        let (loaded, rendered) = check(&path);
        let only_notes = !rendered.contains(": error: ") && !rendered.contains(": warning: ");
        assert!(
            loaded.plan.is_some() && loaded.rubric.is_some() && only_notes,
            "{}\n{rendered}",
            path.display()
        );
    }
}

#[test]
fn bad_plans_have_exactly_these_findings() {
    let bless = std::env::var_os("PLANRUN_BLESS").is_some();
    let mut differing = String::new();
    for path in plans("bad") {
        let (_, rendered) = check(&path);
        assert!(!rendered.is_empty(), "{} has nothing wrong with it", path.display());
        let expected = path.with_extension("expected");
        if bless {
            fs::write(&expected, &rendered).unwrap();
        } else {
            let wanted = fs::read_to_string(&expected).unwrap_or_default();
            if wanted != rendered {
                differing += &format!("== {}: wanted\n{wanted}== got\n{rendered}", path.display());
            }
        }
    }
    assert!(differing.is_empty(), "{differing}");
}

/// The plan that comes with planrun says which variables it wants, and nothing else is wrong with it.
#[test]
fn the_quarterly_plan_only_wants_variables() {
    let text = include_str!("../../../plans/q1.yaml");
    let loaded = load("q1.yaml", text, &options());
    assert!(
        loaded.plan.is_some() && loaded.rubric.is_some(),
        "{}",
        loaded.render(Form::Human, "q1.yaml", text)
    );
    let warnings: Vec<&str> = loaded
        .findings
        .iter()
        .filter(|finding| finding.severity == crate::findings::Severity::Warning)
        .map(|finding| finding.message.as_str())
        .collect();
    let (unset, other): (Vec<&str>, Vec<&str>) =
        warnings.iter().partition(|message| message.contains("is not set:"));
    // The rubric of the tests asks people nothing.
    assert!(other.iter().all(|message| message.contains("does not ask")), "{other:?}");
    assert_eq!(unset.len(), 4, "{unset:?}");
}
