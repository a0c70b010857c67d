//! What planrun costs: CPU time and memory of whole runs of the release binary, against limits. See `benches/README.md`.

mod inputs;
mod measure;

use std::{error::Error, path::Path, process::ExitCode};

use measure::{Row, Runner};

const MB: u64 = 1_000_000;

fn main() -> ExitCode {
    match speed() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("failed to measure: {e}");
            ExitCode::FAILURE
        }
    }
}

fn speed() -> Result<bool, Box<dyn Error>> {
    let mut runner = Runner::from_args(env!("CARGO_BIN_EXE_planrun"));
    let mut dir = tempfile::Builder::new().prefix("speed-").tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    dir.disable_cleanup(runner.keep);
    let dir = dir.path();
    measure::header();
    check(&mut runner, dir)?;
    score(&mut runner, dir)?;
    cards(&mut runner, dir)?;
    binaries(&mut runner)?;
    if runner.keep {
        println!("inputs: {}", dir.display());
    }
    Ok(runner.all_held)
}

/// Plans as large as `check` takes, right and wrong, and texts that want to hurt it.
fn check(runner: &mut Runner, dir: &Path) -> Result<(), Box<dyn Error>> {
    let large = Row { cpu: 0.2, rss: 200 * MB, exit: 0, ..Row::new("check: a plan of 1 MB") };
    runner.file(&large, dir, "large.yaml", inputs::plan(inputs::Faults::None), &["check"])?;
    let faulty = Row { cpu: 1.5, rss: 200 * MB, exit: 2, ..Row::new("check: the same with 60 faults") };
    runner.file(&faulty, dir, "faulty.yaml", inputs::plan(inputs::Faults::Sixty), &["check"])?;
    let names = Row { cpu: 1.5, rss: 200 * MB, exit: 2, ..Row::new("check: the same, no name known") };
    runner.file(&names, dir, "names.yaml", inputs::plan(inputs::Faults::EveryName), &["check"])?;
    let refused = |what| Row { cpu: 0.2, rss: 100 * MB, exit: 2, ..Row::new(what) };
    let bomb = inputs::bomb();
    runner.file(&refused("check: aliases of aliases, 9 levels"), dir, "bomb.yaml", bomb, &["check"])?;
    for (what, name, piece) in [
        ("check: 100,000 x `[`", "seq.yaml", "["),
        ("check: 100,000 x `{a: `", "map.yaml", "{a: "),
        ("check: 100,000 x `- `", "items.yaml", "- "),
    ] {
        runner.file(&refused(what), dir, name, piece.repeat(100_000), &["check"])?;
    }
    Ok(())
}

/// Journals of a million samples.
fn score(runner: &mut Runner, dir: &Path) -> Result<(), Box<dyn Error>> {
    let limits = [
        ("score: 10^6 samples, 1,000 a line", "many", 1_000, 2.0, 100 * MB),
        ("score: 10^6 samples, 1 a line", "single", 1, 5.0, 100 * MB),
    ];
    for (what, name, per_line, cpu, rss) in limits {
        let row = Row { cpu, rss, ..Row::new(what) };
        if runner.wants(&row) {
            let run = dir.join(name);
            inputs::journal(&run, &inputs::Shape { per_line, ..inputs::Shape::MILLION })?;
            let bytes = std::fs::metadata(run.join(planrun::journal::FILE))?.len();
            runner.run(&row, bytes, |command| command.arg("score").arg(&run))?;
        }
    }
    Ok(())
}

/// Scorecards of 10,000 metrics.
fn cards(runner: &mut Runner, dir: &Path) -> Result<(), Box<dyn Error>> {
    // The aim is 0.1 s and 50 MB; this is what must not be broken.
    let row = |what| Row { cpu: 0.3, rss: 65 * MB, ..Row::new(what) };
    let reports = [
        ("report: 10,000 metrics, Markdown", "md"),
        ("report: 10,000 metrics, HTML", "html"),
        ("report: 10,000 metrics, CSV", "csv"),
        ("report: 10,000 metrics, JUnit", "junit"),
    ];
    let diffs = [
        ("diff: 2 x 10,000 metrics, text", "text"),
        ("diff: 2 x 10,000 metrics, Markdown", "md"),
        ("diff: 2 x 10,000 metrics, HTML", "html"),
        ("diff: 2 x 10,000 metrics, JSON", "json"),
    ];
    if !reports.iter().chain(&diffs).any(|(what, _)| runner.wants(&row(what))) {
        return Ok(());
    }
    let (old, new) = (dir.join("old"), dir.join("new"));
    for (run, seed) in [(&old, 1), (&new, 2)] {
        inputs::journal(run, &inputs::Shape { seed, ..inputs::Shape::WIDE })?;
        runner.quietly(|command| command.arg("score").arg(run))?;
    }
    let size = |run: &Path| std::fs::metadata(run.join("scorecard.json")).map(|m| m.len());
    let (one, both) = (size(&old)?, size(&old)? + size(&new)?);
    for (what, format) in reports {
        runner.run(&row(what), one, |command| command.args(["report", "--format", format]).arg(&old))?;
    }
    for (what, format) in diffs {
        runner.run(&row(what), both, |command| {
            command.args(["diff", "--format", format]).arg(&old).arg(&new)
        })?;
    }
    Ok(())
}

/// How much is sent to a host, how fast it starts, and on how old a system.
fn binaries(runner: &mut Runner) -> Result<(), Box<dyn Error>> {
    let start = Row { cpu: 0.02, rss: 20 * MB, ..Row::new("start: planrun --version") };
    runner.run(&start, 0, |command| command.arg("--version"))?;
    runner.binary("planrun", env!("CARGO_BIN_EXE_planrun"), 12 * MB, &[])?;
    let heavy = ["clap_builder", "indicatif", "minijinja", "serde-saphyr", "tokio"];
    runner.binary("planrun-agent", env!("CARGO_BIN_EXE_planrun-agent"), 2 * MB, &heavy)
}
