//! Running a workload on a host: its files, set-up, server, program and container, and the environment it gets.
//!
//! What the program's numbers mean is the matter of the stage that runs it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use crate::{
    outcome::{Cause, Outcome, OutcomeKind},
    platform::Command,
    readers::{JsonLines, PatternReader, Reader as LineReader, Said},
    stage::{
        drive::{Amount, Drive},
        host::{Ended, Line, Run},
        program::{Precision, Reader, Reference, Workload},
        scaling::Mode,
    },
    wire::{Program, Status, Stream},
};

/// No more than this of what a workload asks to collect is fetched.
const MOST_COLLECTED: u64 = 1 << 30;

/// What a stage wants of a workload.
#[derive(Debug, Clone, Copy)]
pub struct Ask {
    /// How many accelerators.
    pub gpus: u32,
    /// How much work.
    pub amount: Amount,
    /// What stays the same as accelerators are added.
    pub mode: Mode,
    /// CPU cores for each rank of the reference workload where cores stand in for accelerators.
    pub cores_per_rank: u32,
}

/// Says whether the host has as many devices as are asked for.
///
/// # Errors
/// `unsupported` when it has fewer.
pub fn enough_devices(cx: &Drive<'_>, gpus: u32) -> Result<(), Outcome> {
    let (has, what) = match cx.site.gpus {
        0 => (cx.host.cpus, "CPU cores that tasks may use, and no accelerator"),
        n => (n, "accelerators"),
    };
    if gpus <= has {
        return Ok(());
    }
    let reason = format!("{gpus} are asked for, the host has {has} {what}");
    Err(Outcome::new(OutcomeKind::Unsupported, Cause::NotEnoughDevices, reason))
}

/// Runs the drive's workload once and hands on all that it says, with the host's time.
///
/// # Errors
/// The outcome when it cannot run here or does not end well.
pub async fn run(
    cx: &mut Drive<'_>,
    ask: Ask,
    each: &mut (dyn FnMut(Said, f64) + Send),
) -> Result<Ended, Outcome> {
    let Some((name, workload)) = cx.workload else {
        return Err(Outcome::new(OutcomeKind::Failed, Cause::Internal, "the stage has no workload"));
    };
    enough_devices(cx, ask.gpus)?;
    if let Some(reference) = &workload.reference {
        return run_reference(cx, name, reference, ask, each).await;
    }
    run_command(cx, name, workload, ask, each).await
}

async fn run_reference(
    cx: &mut Drive<'_>,
    name: &str,
    reference: &Reference,
    ask: Ask,
    each: &mut (dyn FnMut(Said, f64) + Send),
) -> Result<Ended, Outcome> {
    if cx.site.gpus > 0 {
        let reason = "the reference workload of this version runs on CPU cores only, and the endpoint has accelerators";
        return Err(Outcome::new(OutcomeKind::Unsupported, Cause::NotThere, reason));
    }
    if reference.precision != Precision::Fp32 {
        cx.note(format!(
            "workload `{name}` ran in fp32: on CPU cores the reference workload knows no other precision"
        ));
    }
    let spec = serde_json::json!({
        "model": {
            "layers": reference.layers, "heads": reference.heads, "width": reference.width,
            "sequence": reference.sequence, "batch": reference.batch, "seed": reference.seed,
        },
        "world": ask.gpus,
        "mode": ask.mode,
        "cores_per_rank": ask.cores_per_rank.max(1),
        "steps": ask.amount.steps,
        "seconds": ask.amount.seconds,
    });
    let main = Run { env: environment(cx, ask), ..Run::probe("main", "reference", &spec) };
    let ended = listen(cx, main, &mut JsonLines, each).await?;
    ended.check("the reference workload")?;
    Ok(ended)
}

async fn run_command(
    cx: &mut Drive<'_>,
    name: &str,
    workload: &Workload,
    ask: Ask,
    each: &mut (dyn FnMut(Said, f64) + Send),
) -> Result<Ended, Outcome> {
    let Some(command) = &workload.command else {
        return Err(Outcome::new(OutcomeKind::Failed, Cause::Internal, "the workload has no command"));
    };
    let mut reader = reader_of(workload)?;
    let mut names = BTreeSet::new();
    for file in &workload.files {
        let from = cx.site.plan_dir.join(&file.value);
        let name = Path::new(&file.value).file_name().map(|n| n.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        if !names.insert(name.clone()) {
            let reason = format!("two files of workload are called {name}, and both would lie in one folder");
            return Err(Outcome::new(OutcomeKind::Failed, Cause::NotThere, reason));
        }
        cx.host.put(&from, &name).await?;
    }
    let mut env = environment(cx, ask);
    env.extend(workload.env.iter().map(|(k, v)| (k.clone(), v.clone())));
    // A working folder of the user's own: files still lie in the task's folder, which programs find by this name.
    env.insert("PLANRUN_FILES".to_owned(), cx.host.folder.clone());
    let container = match &workload.image {
        Some(image) => {
            Some(Container { runtime: container_runtime(cx).await?, image, task: cx.host.folder.clone() })
        }
        None => None,
    };
    let start = |role, command: &Command| {
        let run = Run { env: env.clone(), dir: workload.workdir.clone(), ..Run::new(role, plain(command)) };
        match &container {
            Some(container) => container.wrap(run, command, cx.site.gpus > 0),
            None => run,
        }
    };
    let (setup, serve, main) = (
        workload.setup.as_ref().map(|c| start("setup", c)),
        workload.serve.as_ref().map(|c| start("serve", c)),
        Run { beside: workload.serve.is_some().then_some("serve"), ..start("main", command) },
    );
    if let Some(setup) = setup {
        cx.host.run(setup, |_| {}).await?.check(&format!("the setup of workload `{name}`"))?;
    }
    let server = match serve {
        Some(serve) => Some(cx.host.start(serve).await?),
        None => None,
    };
    let ended = listen(cx, main, reader.as_mut(), each).await?;
    if let Some(server) = server {
        // Only the end of a server that came before we stopped it says something about the server.
        let early = cx.host.ended_beside("serve").cloned();
        cx.host.stop(server).await?;
        if let Some(status) = early.filter(|s| *s != Status::Exited(0)) {
            let server = Ended { status, seconds: 0.0, last_words: Vec::new() };
            server.check(&format!("the server of workload `{name}`"))?;
        }
    }
    for path in &workload.collect {
        for left_out in cx.host.get(path, workload.workdir.clone(), MOST_COLLECTED).await? {
            cx.warn(format!("not collected: {left_out}"));
        }
    }
    ended.check(&format!("the command of workload `{name}`"))?;
    Ok(ended)
}

/// Runs the main program and reads what it says.
async fn listen(
    cx: &mut Drive<'_>,
    run: Run,
    reader: &mut dyn LineReader,
    each: &mut (dyn FnMut(Said, f64) + Send),
) -> Result<Ended, Outcome> {
    let mut said = Vec::new();
    cx.host
        .run(run, |Line { stream, at, text }| {
            if stream == Stream::Out {
                reader.line(text, &mut said);
                for what in said.drain(..) {
                    each(what, at);
                }
            }
        })
        .await
}

fn plain(command: &Command) -> Program {
    match command {
        Command::Shell(line) => Program::Shell(line.clone()),
        Command::Argv(argv) => Program::Argv(argv.clone()),
    }
}

fn reader_of(workload: &Workload) -> Result<Box<dyn LineReader>, Outcome> {
    match workload.reader.as_ref().map(|r| &r.value) {
        None | Some(Reader::JsonLines) => Ok(Box::new(JsonLines)),
        Some(Reader::Pattern(patterns)) => {
            let mut reader = PatternReader::default();
            for p in patterns {
                let Ok(unit) = p.unit.parse();
                reader
                    .add(&p.metric, &p.regex.value, unit, p.better)
                    .map_err(|e| Outcome::new(OutcomeKind::Failed, Cause::Unreadable, e))?;
            }
            Ok(Box::new(reader))
        }
    }
}

/// The parameters that a program gets, as the contract for programs has them.
fn environment(cx: &Drive<'_>, ask: Ask) -> BTreeMap<String, String> {
    let folder = &cx.host.folder;
    [
        ("PLANRUN_STAGE", cx.stage.to_owned()),
        ("PLANRUN_REPEAT", cx.repeat.to_string()),
        ("PLANRUN_GPUS", ask.gpus.to_string()),
        ("PLANRUN_STEPS", ask.amount.steps.to_string()),
        ("PLANRUN_WARMUP", "0".to_owned()),
        ("PLANRUN_SECONDS", ask.amount.seconds.to_string()),
        ("PLANRUN_NODES", "1".to_owned()),
        ("PLANRUN_NODE_RANK", "0".to_owned()),
        ("PLANRUN_MASTER_ADDR", "127.0.0.1".to_owned()),
        ("PLANRUN_CHECKPOINT_DIR", format!("{folder}/checkpoints")),
        ("PLANRUN_CHECKPOINT_REQUEST", format!("{folder}/checkpoint-request")),
    ]
    .into_iter()
    .map(|(k, v)| (k.to_owned(), v))
    .collect()
}

/// Finds a container runtime that answers, not only one that is installed.
async fn container_runtime(cx: &mut Drive<'_>) -> Result<String, Outcome> {
    let ask =
        r#"for r in docker podman; do "$r" version >/dev/null 2>&1 && { echo "$r"; exit 0; }; done; exit 1"#;
    let mut name = String::new();
    let run = Run::new("runtime", Program::Shell(ask.to_owned()));
    let ended = cx.host.run(run, |line| line.text.clone_into(&mut name)).await?;
    if ended.status == Status::Exited(0) && ["docker", "podman"].contains(&name.as_str()) {
        return Ok(name);
    }
    let reason = "the workload names an image, and neither docker nor podman works on the host";
    Err(Outcome::new(OutcomeKind::Unsupported, Cause::NotThere, reason))
}

/// A container to run a workload's commands in.
struct Container<'a> {
    runtime: String,
    image: &'a str,
    task: String,
}

impl Container<'_> {
    /// The same program inside the container: the task's folder is its working folder, its variables are handed in,
    /// and it is removed by name should its client be killed.
    fn wrap(&self, mut run: Run, command: &Command, gpus: bool) -> Run {
        let name: String = format!("planrun{}-{}", self.task.replace('/', "-"), run.role);
        let dir = run.dir.take().unwrap_or_else(|| self.task.clone());
        let mut argv: Vec<String> = ["run", "--rm", "--init", "--network", "host", "--ipc", "host", "--name"]
            .into_iter()
            .map(str::to_owned)
            .collect();
        argv.insert(0, self.runtime.clone());
        argv.extend([name.clone(), "-v".into(), format!("{0}:{0}", self.task)]);
        if dir != self.task {
            argv.extend(["-v".into(), format!("{dir}:{dir}")]);
        }
        argv.extend(["-w".into(), dir]);
        if gpus {
            argv.extend(["--gpus".into(), "all".into()]);
        }
        // By name only: values stay out of the process table.
        argv.extend(run.env.keys().flat_map(|key| ["-e".to_owned(), key.clone()]));
        argv.push(self.image.to_owned());
        match command {
            Command::Shell(line) => argv.extend(["/bin/sh".into(), "-c".into(), line.clone()]),
            Command::Argv(more) => argv.extend(more.iter().cloned()),
        }
        let undo = vec![self.runtime.clone(), "rm".into(), "-f".into(), name];
        Run { program: Program::Argv(argv), undo: Some(undo), ..run }
    }
}
