//! `run`: a plan becomes a schedule, the schedule a journal, the journal a scorecard.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    cli::RunArgs,
    commands::{self, dry_run, print, produce, source::Source, talk},
    error::{Error, Exit},
    journal::{Journal, JournalError},
    outcome::{Cause, Outcome, OutcomeKind},
    plan::model::{self, Plan, Report},
    progress::{Progress, Talk},
    record::{PlanRef, RunStarted, SCHEMA, TaskId},
    runner::{self, Choice, Place, Ran, Run, Schedule, Stop, Ways, schedule},
    score::rubric::Rubric,
    transport::{
        Transport,
        local::Local,
        ssh::{Ssh, controller::Controller},
    },
};

/// Runs a plan.
///
/// # Errors
/// When the plan or the command line is wrong, or the run's folder cannot be written.
pub fn run(args: &RunArgs, ssh_config: Option<&Path>, talking: Talk) -> commands::Result {
    let source = Source::open(args.plan.as_deref())?;
    let (plan, rubric) = source.load_to_run(&args.set, talking <= Talk::Little)?;
    let choice = Choice { only: args.only.clone(), skip: args.skip.clone(), quick: args.quick };
    if let Some((unknown, meant)) = choice.unknown(&plan).first() {
        if let Some(meant) = meant {
            let text = format!("`{unknown}` is a stage, and no platform of the plan");
            return Err(Error::new(Exit::USAGE, text)
                .hint(format!("write '{meant}' for the stage on every platform")));
        }
        let names: Vec<&str> = plan.platforms.keys().map(|k| k.value.as_str()).collect();
        let stages: Vec<&str> = plan.stages.iter().filter_map(|e| e.stage_id()).collect();
        let known = format!("platforms: {}; stages: {}", names.join(", "), stages.join(", "));
        return Err(Error::new(Exit::USAGE, format!("`{unknown}` names nothing in the plan")).hint(known));
    }
    let schedule = schedule(&plan, &choice, &source.dir);
    if args.dry_run {
        print(&dry_run::text(&plan, &schedule))?;
        return Ok(Exit::OK);
    }
    let ways = ways(controller(&schedule, &plan, ssh_config)?);
    let dir = make_dir(args.output.as_deref(), &plan)?;
    let id = runner::new_run_id();
    let first = first_line(&id, &source, &plan, rubric, args, &schedule)?;
    let finished: BTreeMap<TaskId, Outcome> = schedule.settled.iter().cloned().collect();
    let settled = schedule.settled.iter().map(|(task, outcome)| runner::settled(task, outcome)).collect();
    let mut journal = Journal::create(&dir, first, settled).map_err(|e| journal_error(&e, &dir))?;
    if talking >= Talk::Normal {
        talk(&format!("writing to {}\n", dir.display()));
    }
    let run = Settings { id, dir: &dir, plan: &plan, quick: args.quick, spent_seconds: 0.0, ways, talking };
    execute(run, schedule, Earlier { finished, ..Earlier::default() }, &mut journal)
}

fn first_line(
    id: &str,
    source: &Source,
    plan: &Plan,
    rubric: Rubric,
    args: &RunArgs,
    schedule: &Schedule,
) -> Result<RunStarted, Error> {
    let plan_text = String::from_utf8_lossy(&source.bytes).into_owned();
    let judgement = serde_json::to_value(plan.judgement(rubric))
        .map_err(|e| Error::caused(Exit::BUG, "failed to write down the plan's judgement part", &e))?;
    let path = args.plan.as_ref().map(|p| std::path::absolute(p).unwrap_or_else(|_| p.clone()));
    Ok(RunStarted {
        schema: SCHEMA,
        planrun: env!("CARGO_PKG_VERSION").to_owned(),
        run: id.to_owned(),
        plan: PlanRef {
            name: plan.name.clone(),
            period: plan.period.clone(),
            digest: model::digest(&plan_text, &args.set),
        },
        plan_text,
        set: args.set.clone(),
        plan_path: path.map_or_else(String::new, |p| p.display().to_string()),
        judgement,
        tasks: schedule.planned.clone(),
        quick: args.quick,
    })
}

fn make_dir(asked: Option<&Path>, plan: &Plan) -> Result<PathBuf, Error> {
    let failed = |dir: &Path, e: &std::io::Error| {
        Error::caused(Exit::USAGE, format!("failed to make the folder {}", dir.display()), e)
            .hint("name another one with -o DIR")
    };
    if let Some(dir) = asked {
        std::fs::create_dir_all(dir).map_err(|e| failed(dir, &e))?;
        return Ok(dir.to_owned());
    }
    let now = jiff::Timestamp::now().to_string();
    let stamp: String = now.chars().take(19).filter(|c| !"-:".contains(*c)).collect();
    let name = format!("{}-{}-{stamp}Z", plan.period, plan.name);
    let fit = |c: char| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' };
    let name: String = name.chars().map(fit).collect();
    let runs = Path::new("runs");
    std::fs::create_dir_all(runs).map_err(|e| failed(runs, &e))?;
    // Runs that begin in the same second get folders of their own.
    for n in 1_u32.. {
        let dir = runs.join(if n == 1 { name.clone() } else { format!("{name}-{n}") });
        match std::fs::create_dir(&dir) {
            Ok(()) => return Ok(dir),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(failed(&dir, &e)),
        }
    }
    Ok(runs.join(name))
}

/// The error of a journal, with its exit code and what to do.
pub(super) fn journal_error(e: &JournalError, dir: &Path) -> Error {
    let code = match e {
        JournalError::Io { .. } => Exit::NOT_MEASURED,
        _ => Exit::JOURNAL,
    };
    let source = std::error::Error::source(e);
    let message = format!("failed to use the journal: {e}");
    let error =
        source.map_or_else(|| Error::new(code, message.clone()), |s| Error::caused(code, message.clone(), s));
    match e {
        JournalError::Exists(_) => {
            error.hint(format!("go on with `planrun resume {}`, or name another folder", dir.display()))
        }
        JournalError::Locked(_) => error.hint("wait for it, or end it; its journal stays whole"),
        JournalError::Damaged { .. } => error.hint(
            "restore the file from a copy: results before the damage cannot be told from those after it",
        ),
        JournalError::Newer { .. } => error.hint("use the planrun that wrote it, or a newer one"),
        JournalError::Empty(_) => error.hint("the run never began: start a new one"),
        JournalError::Io { .. } => {
            error.hint("check that the folder can be written and the disk has room; then `planrun resume`")
        }
    }
}

/// What earlier processes of a run came to.
#[derive(Default)]
pub(super) struct Earlier {
    /// Tasks that have ended for good.
    pub(super) finished: BTreeMap<TaskId, Outcome>,
    /// Whether there was one.
    pub(super) resumed: bool,
    /// Tries that were begun.
    pub(super) begun: BTreeMap<TaskId, u32>,
    /// What finished tasks found.
    pub(super) found: Vec<(TaskId, crate::stage::drive::Earlier)>,
}

/// What a run goes by, beside its schedule.
pub(super) struct Settings<'a> {
    pub(super) id: String,
    pub(super) dir: &'a Path,
    pub(super) plan: &'a Plan,
    pub(super) quick: bool,
    /// Seconds that earlier processes of this run took.
    pub(super) spent_seconds: f64,
    pub(super) ways: Ways,
    pub(super) talking: Talk,
}

/// Takes a schedule to its end, writes the scorecard whatever happened, and gives the exit code.
pub(super) fn execute(
    settings: Settings<'_>,
    schedule: Schedule,
    earlier: Earlier,
    journal: &mut Journal,
) -> commands::Result {
    let Settings { id, dir, plan, quick, spent_seconds, ways, talking } = settings;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| Error::caused(Exit::NOT_MEASURED, "failed to start", &e))?;
    let mut progress = Progress::new(talking, &schedule.planned, earlier.finished.len());
    let limit = |of: fn(&crate::platform::Limits) -> Option<f64>| {
        plan.limits.as_ref().and_then(|l| of(&l.value)).map(|seconds| (seconds - spent_seconds).max(0.0))
    };
    let ran = runtime.block_on(async {
        let run = Run {
            id,
            dir: dir.to_owned(),
            schedule,
            finished: earlier.finished,
            resumed: earlier.resumed,
            begun: earlier.begun,
            earlier: earlier.found,
            quick,
            lease: Duration::from_secs_f64(plan.lease().seconds.max(1.0)),
            warn_after: limit(|l| l.warn_after.as_ref().map(|d| d.value.seconds)),
            stop_after: limit(|l| l.stop_after.as_ref().map(|d| d.value.seconds)),
            secrets: secrets(plan),
            transport: ways,
            stop: signals(dir.to_owned())?,
        };
        runner::run(run, journal, &mut progress).await.map_err(|e| journal_error(&e, dir))
    });
    progress.clear();
    let code = ran.and_then(|ran| conclude(&ran, dir, plan, talking, journal));
    // Only now: until the scorecard is written somebody must hear a second Ctrl-C.
    runtime.shutdown_timeout(Duration::from_secs(1));
    code
}

/// Ends the journal, writes the scorecard and gives the exit code.
fn conclude(ran: &Ran, dir: &Path, plan: &Plan, talking: Talk, journal: &mut Journal) -> commands::Result {
    let reason = match &ran.stopped {
        None if ran.complete => "all planned tasks have ended".to_owned(),
        None => "some planned tasks have not ended".to_owned(),
        Some(Stop::Signal(n)) => format!("signal {n}"),
        Some(Stop::Limit(what)) => what.clone(),
        Some(Stop::Journal) => "the journal could not be written".to_owned(),
        Some(Stop::Bug) => "a fault of planrun".to_owned(),
    };
    journal
        .append(crate::record::Body::RunEnded { complete: ran.complete, reason })
        .map_err(|e| journal_error(&e, dir))?;
    let code = show(dir, &plan.report, talking)?;
    match &ran.stopped {
        Some(Stop::Signal(n)) => {
            talk(&format!("interrupted; go on with `planrun resume {}`\n", dir.display()));
            Ok(Exit::SIGNAL + u8::try_from(*n).unwrap_or(0))
        }
        _ => Ok(code),
    }
}

/// Writes the scorecard of a journal, shows it, and gives the exit code that its outcomes come to.
pub(super) fn show(dir: &Path, asked: &Report, talking: Talk) -> commands::Result {
    let made = produce::from_journal(dir, None, None)?;
    let written = made.write(dir, asked)?;
    if talking >= Talk::Normal {
        talk(&format!("\nwrote {}\n\n", written.join(", ")));
    }
    if talking > Talk::Silent {
        print(&made.summary()?)?;
    }
    let code = made.exit_code();
    if talking >= Talk::Normal {
        match code {
            Exit::EXPECT => talk("exit code 1: an expectation of the plan failed\n"),
            Exit::NOT_MEASURED => talk("exit code 3: something that was planned could not be measured\n"),
            _ => {}
        }
    }
    Ok(code)
}

/// The values that must not be written anywhere.
pub(super) fn secrets(plan: &Plan) -> Vec<String> {
    plan.secrets.iter().filter_map(|name| std::env::var(&name.value).ok()).collect()
}

/// The ways to places, those over SSH by this controller.
pub(super) fn ways(controller: Option<Arc<Controller>>) -> Ways {
    Arc::new(move |place: &Place| -> Result<Arc<dyn Transport>, Outcome> {
        match (&place.ssh, &controller) {
            _ if place.local => Ok(Arc::new(Local)),
            (Some(target), Some(controller)) => Ok(Arc::new(Ssh::new(target.clone(), controller.clone()))),
            _ => {
                let reason = "this version does not create instances: name one that is there by `ssh`";
                Err(Outcome::new(OutcomeKind::Unsupported, Cause::NotThere, reason))
            }
        }
    })
}

/// ssh as this run uses it, if a place of the schedule is behind it.
///
/// # Errors
/// When its folder cannot be made or its settings cannot be read.
pub(super) fn controller(
    schedule: &Schedule,
    plan: &Plan,
    ssh_config: Option<&Path>,
) -> Result<Option<Arc<Controller>>, Error> {
    let needed = schedule.lanes.values().flatten().any(|task| task.place.ssh.is_some());
    needed.then(|| new_controller(ssh_config, plan.keep_agent)).transpose()
}

/// ssh with these settings.
///
/// # Errors
/// As [`controller`].
pub(super) fn new_controller(ssh_config: Option<&Path>, keep_agent: bool) -> Result<Arc<Controller>, Error> {
    let what = || match ssh_config {
        Some(file) => format!("failed to prepare ssh with {}", file.display()),
        None => "failed to prepare ssh".to_owned(),
    };
    let made = Controller::new(ssh_config, keep_agent);
    made.map(Arc::new).map_err(|e| {
        Error::caused(Exit::USAGE, what(), &e).hint("check the file and the folder for temporary files")
    })
}

/// INT, TERM and HUP: the first stops the run in order, a second one at once.
fn signals(dir: PathBuf) -> Result<watch::Receiver<Option<Stop>>, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let (send, receive) = watch::channel(None);
    let listen = |kind| {
        signal(kind).map_err(|e| Error::caused(Exit::NOT_MEASURED, "failed to listen for signals", &e))
    };
    let (mut int, mut term, mut hup) =
        (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?, listen(SignalKind::hangup())?);
    tokio::spawn(async move {
        let mut second = false;
        loop {
            let signal = tokio::select! {
                _ = int.recv() => 2,
                _ = term.recv() => 15,
                _ = hup.recv() => 1,
            };
            if second {
                talk(&format!("\nstopped at once; go on with `planrun resume {}`\n", dir.display()));
                #[expect(
                    clippy::exit,
                    reason = "a second signal means now; agents end by themselves when we are gone"
                )]
                std::process::exit(128 + signal);
            }
            second = true;
            talk("\nstopping: what runs is ended and written down; once more to stop at once\n");
            send.send_replace(Some(Stop::Signal(signal)));
        }
    });
    Ok(receive)
}
