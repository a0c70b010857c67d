//! `doctor`: whether the hosts of a plan can do what it asks, before anything is measured. Spends nothing, leaves
//! nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::Path,
    sync::Arc,
};

use serde::Serialize;
use serde_json::Value;

use crate::{
    cli::DoctorArgs,
    commands::{self, print, run, source::Source},
    error::{Error, Exit},
    outcome::{CheckOutcome, CheckResult, printable},
    platform::Command,
    runner::{self, Choice, Look, Place, Secrets, schedule},
    stage::program::Workload,
    transport::ssh::Ssh,
};

/// Says line by line what a shell can tell: tools in `$TOOLS`, containers, accelerators, rights.
const SCRIPT: &str = r#"
for t in $TOOLS; do p=$(command -v "$t" 2>/dev/null) && echo "tool $t yes $p" || echo "tool $t no"; done
for t in docker podman; do
    if command -v $t >/dev/null 2>&1; then
        if timeout 10 $t info >/dev/null 2>&1; then echo "container $t usable"; else echo "container $t unusable"; fi
    fi
done
if command -v nvidia-smi >/dev/null 2>&1; then
    n=$(timeout 20 nvidia-smi -L 2>/dev/null | grep -c '^GPU ') || n=0
    echo "gpu nvidia-smi $n"
fi
if command -v sudo >/dev/null 2>&1 && timeout 5 sudo -n true >/dev/null 2>&1; then echo "sudo yes"; else echo "sudo no"; fi
echo "disk $(df -Pk . | awk 'NR == 2 { print $4 }')"
"#;

/// First words that are no programs.
const SHELL: [&str; 20] = [
    "for", "while", "until", "if", "case", "set", "cd", "exec", "export", "echo", "printf", "trap", "umask",
    "ulimit", "eval", "test", "true", "read", "exit", "wait",
];

/// Less room than this for a run's folder is worth a word, in bytes.
const LITTLE_ROOM: u64 = 1 << 30;

/// A clock that is further off is worth a word, in seconds.
const FAR_OFF: f64 = 1.0;

/// What was found at one place.
#[derive(Debug, Serialize)]
struct Patient {
    place: String,
    checks: Vec<CheckResult>,
}

/// Looks at every host of a plan.
///
/// # Errors
/// When the plan is wrong, or ssh cannot be prepared.
pub fn doctor(args: &DoctorArgs, ssh_config: Option<&Path>) -> commands::Result {
    let source = Source::open(args.plan.as_deref())?;
    let (plan, _) = source.load_to_run(&args.set, true)?;
    let schedule = schedule(&plan, &Choice::default(), &source.dir);
    let controller = run::controller(&schedule, &plan, ssh_config)?;
    let ways = run::ways(controller.clone());
    let mut places: BTreeMap<String, (Arc<Place>, Needs)> = BTreeMap::new();
    for task in schedule.lanes.values().flatten() {
        let (_, needs) =
            places.entry(task.place.name.clone()).or_insert_with(|| (task.place.clone(), Needs::default()));
        if let Some((_, workload)) = &task.workload {
            needs.add(workload);
        }
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| Error::caused(Exit::NOT_MEASURED, "failed to start", &e))?;
    let mut patients: Vec<Patient> = runtime.block_on(async {
        let mut all = tokio::task::JoinSet::new();
        for (name, (place, needs)) in places {
            let (ways, controller) = (ways.clone(), controller.clone());
            all.spawn(async move {
                let mut checks = Vec::new();
                if let (Some(target), Some(controller)) = (&place.ssh, controller) {
                    checks = Ssh::new(target.clone(), controller).preflight().await;
                    if checks.iter().any(|c| c.outcome == CheckOutcome::Fail) {
                        return Patient { place: name, checks };
                    }
                }
                let tools = needs.tools.iter().cloned().collect::<Vec<_>>().join(" ");
                let looked = match ways(&place) {
                    Ok(transport) => runner::look(&place, transport, SCRIPT, &[("TOOLS", tools)]).await,
                    Err(outcome) => Err(outcome),
                };
                match looked {
                    Ok(look) => checks.extend(of_look(&look, &needs)),
                    Err(outcome) => checks.push(check("agent", CheckOutcome::Fail, None, &outcome.reason)),
                }
                Patient { place: name, checks }
            });
        }
        all.join_all().await
    });
    drop((ways, controller));
    patients.sort_by(|a, b| a.place.cmp(&b.place));
    let secrets = Secrets::new(&run::secrets(&plan));
    for patient in &mut patients {
        patient.checks =
            std::mem::take(&mut patient.checks).into_iter().map(|c| secrets.mask_check(c)).collect();
    }
    if args.json {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "hosts": patients }))
            .map_err(|e| Error::caused(Exit::BUG, "failed to write down what was found", &e))?;
        print(&format!("{text}\n"))?;
    } else {
        print(&table(&patients))?;
    }
    let sick = patients.iter().flat_map(|p| &p.checks).any(|c| c.outcome == CheckOutcome::Fail);
    Ok(if sick { Exit::NOT_MEASURED } else { Exit::OK })
}

/// What the workloads of a place need there.
#[derive(Debug, Default)]
struct Needs {
    tools: BTreeSet<String>,
    container: bool,
}

impl Needs {
    fn add(&mut self, workload: &Workload) {
        if workload.image.is_some() {
            // What stands in the image is not looked for on the host.
            self.container = true;
            return;
        }
        for command in [&workload.setup, &workload.command, &workload.serve].into_iter().flatten() {
            let word = match command {
                Command::Argv(argv) => argv.first().cloned(),
                Command::Shell(line) => line.split_whitespace().next().map(str::to_owned),
            };
            // A plain word names a program unless the shell knows it; a path may be one of the workload's own files.
            let plain = |w: &String| {
                w.chars().all(|c| c.is_ascii_alphanumeric() || "-_.+".contains(c))
                    && !SHELL.contains(&w.as_str())
            };
            self.tools.extend(word.filter(plain));
        }
    }
}

/// What the facts and the script's lines mean.
fn of_look(look: &Look, needs: &Needs) -> Vec<CheckResult> {
    use CheckOutcome::{Fail, NotObservable, Pass, Warn};
    let facts: BTreeMap<String, Value> = look
        .facts
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|v| Some((v.get("fact")?.as_str()?.to_owned(), v.get("value")?.clone())))
        .collect();
    let text = |name: &str| facts.get(name).and_then(Value::as_str).map(printable);
    let lines: Vec<Vec<&str>> = look.lines.iter().map(|l| l.split_whitespace().collect()).collect();
    let mut checks = vec![check("write", Pass, Some(look.folder.clone()), "the agent's folder")];
    for (id, fact) in [("machine", "os.arch"), ("libc", "os.libc"), ("system", "os.name")] {
        let value = text(fact);
        let outcome = if value.is_some() { Pass } else { NotObservable };
        checks.push(check(id, outcome, value, ""));
    }
    if let Some((offset, error)) = look.offset {
        let value = format!("{:+.1} ms ± {:.1} ms", offset * 1e3, error * 1e3);
        let far = offset.abs() > FAR_OFF;
        let reason =
            if far { "the clock is off: times of its logs cannot be compared" } else { "against this one" };
        checks.push(check("clock", if far { Warn } else { Pass }, Some(value), reason));
    }
    match facts.get("host.own_name_resolves").and_then(Value::as_bool) {
        Some(true) => checks.push(check("own name", Pass, text("host.name"), "")),
        Some(false) => {
            let reason = "it cannot resolve its own name: torchrun's rendezvous fails; add it to /etc/hosts";
            checks.push(check("own name", Warn, text("host.name"), reason));
        }
        None => checks.push(check("own name", NotObservable, None, "")),
    }
    let mut runtime = None;
    for words in &lines {
        match words.as_slice() {
            ["tool", tool, "yes", path] => {
                checks.push(check(tool, Pass, Some(printable(path)), "a workload runs it"));
            }
            ["tool", tool, "yes"] => checks.push(check(tool, Pass, None, "a workload runs it")),
            ["tool", tool, "no"] => {
                let reason =
                    "a workload begins with it, and it is not in PATH: install it, or let `setup` do so";
                checks.push(check(tool, Warn, None, reason));
            }
            ["container", tool, how] if runtime != Some(true) => {
                runtime = Some(*how == "usable");
                let bad = *how != "usable" && needs.container;
                let reason = if bad { "a workload has an `image`, and this user may not use it" } else { "" };
                let outcome = if bad { Fail } else { Pass };
                checks.push(check("containers", outcome, Some(format!("{tool}, {how}")), reason));
            }
            ["gpu", tool, count] => {
                checks.push(check("accelerators", Pass, Some(format!("{count} by {tool}")), ""));
            }
            ["sudo", how] => {
                let value = if *how == "yes" { "without a password" } else { "no" };
                checks.push(check("sudo", Pass, Some(value.to_owned()), "not needed"));
            }
            ["disk", kib] => checks.push(match kib.parse::<u64>().map(|k| k.saturating_mul(1024)) {
                Ok(free) => {
                    let little = free < LITTLE_ROOM;
                    let value = format!("{:.1} GB free", free as f64 / 1e9);
                    let reason = if little { "little room: set `workdir` to a larger disk" } else { "" };
                    check("disk", if little { Warn } else { Pass }, Some(value), reason)
                }
                Err(_) => check("disk", NotObservable, None, "df does not say"),
            }),
            _ => {}
        }
    }
    if needs.container && runtime.is_none() {
        let reason = "a workload has an `image`, and there is neither docker nor podman";
        checks.push(check("containers", Fail, None, reason));
    }
    if !lines.iter().any(|words| words.first() == Some(&"gpu")) {
        let count = facts.get("gpu.pci_count").and_then(Value::as_u64);
        let value = count.map(|n| format!("{n} on the PCI bus"));
        checks.push(match count {
            Some(0) => check("accelerators", Pass, value, "CPU cores take their place"),
            Some(_) => check("accelerators", Warn, value, "no nvidia-smi: is the driver installed?"),
            None => check("accelerators", NotObservable, None, "neither nvidia-smi nor a PCI bus to look at"),
        });
    }
    checks
}

fn check(id: &str, outcome: CheckOutcome, value: Option<String>, reason: &str) -> CheckResult {
    let (id, reason) = (id.to_owned(), reason.to_owned());
    CheckResult { id, outcome, value, promised: None, reason, action: None }
}

/// One line a check, by host.
fn table(patients: &[Patient]) -> String {
    let mut out = String::new();
    for patient in patients {
        let _ = writeln!(out, "{}", patient.place);
        for check in &patient.checks {
            let word = match check.outcome {
                CheckOutcome::Pass => "ok",
                CheckOutcome::Warn => "warn",
                CheckOutcome::Fail => "FAIL",
                CheckOutcome::NotObservable => "unknown",
            };
            let says = [check.value.as_deref(), Some(check.reason.as_str()), check.action.as_deref()];
            let says: Vec<&str> = says.into_iter().flatten().filter(|s| !s.is_empty()).collect();
            let _ = writeln!(out, "  {word:<8}{:<14}{}", check.id, says.join("; "));
        }
        out.push('\n');
    }
    let count = |outcome| patients.iter().flat_map(|p| &p.checks).filter(|c| c.outcome == outcome).count();
    let (fails, warns) = (count(CheckOutcome::Fail), count(CheckOutcome::Warn));
    let _ = writeln!(out, "{} hosts, {fails} failed and {warns} warned checks", patients.len());
    out
}
