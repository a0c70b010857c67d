//! A place of its own for each test: folder, folder for temporary files, plan, processes, and waits with an end.

pub(crate) mod processes;
pub(crate) mod sshd;

use std::{
    collections::BTreeMap,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use serde_json::Value;

/// How long anything may take before a test gives up; far more than a busy machine needs.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// How often a state is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The variable that every process of a sandbox carries.
const MARK: &str = "PLANRUN_IT";

/// Waits until there is an answer.
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "waited {PATIENCE:?} in vain for: {what}");
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Waits until something holds.
pub(crate) fn wait_until(what: &str, mut look: impl FnMut() -> bool) {
    wait_for(what, || look().then_some(()));
}

/// A folder with a plan, and everything that happens in it.
#[must_use]
pub(crate) struct Sandbox {
    root: tempfile::TempDir,
    mark: String,
    header: String,
    workloads: String,
    platforms: String,
    stages: String,
    env: BTreeMap<String, String>,
    count: AtomicU32,
}

impl Sandbox {
    pub(crate) fn new() -> Self {
        let root = tempfile::Builder::new().prefix("planrun-it-").tempdir().unwrap();
        for folder in ["tmp", "seen", "plan"] {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        let mark = root.path().file_name().unwrap().to_string_lossy().into_owned();
        let sandbox = Self {
            root,
            mark,
            header: String::new(),
            workloads: String::new(),
            platforms: String::new(),
            stages: String::new(),
            env: BTreeMap::new(),
            count: AtomicU32::new(0),
        };
        let seen = sandbox.path("seen");
        sandbox.env("SEEN", &seen.display().to_string())
    }

    /// Adds lines to the head of the plan.
    pub(crate) fn header(mut self, yaml: &str) -> Self {
        self.header.push_str(yaml);
        self.header.push('\n');
        self
    }

    /// Adds a workload: the keys of its map.
    pub(crate) fn workload(mut self, name: &str, yaml: &str) -> Self {
        self.workloads.push_str(&format!("  {name}: {{ {yaml} }}\n"));
        self
    }

    /// Adds a platform with the endpoints of this map; without any, there is one with one local endpoint.
    pub(crate) fn platform(mut self, name: &str, endpoints: &str) -> Self {
        self.platforms
            .push_str(&format!("  {name}: {{ title: {name}, tier: owned, endpoints: {endpoints} }}\n"));
        self
    }

    /// Adds a stage: the keys of its map.
    pub(crate) fn stage(mut self, yaml: &str) -> Self {
        self.stages.push_str(&format!("  - {{ {yaml} }}\n"));
        self
    }

    /// Adds a stage that runs this script by the shell, and its workload.
    pub(crate) fn shell(self, id: &str, script: &str) -> Self {
        self.shell_with(id, "", "", script)
    }

    /// Adds a stage that runs this script, with more keys for the stage and the workload, each ending in a comma.
    pub(crate) fn shell_with(self, id: &str, stage: &str, workload: &str, script: &str) -> Self {
        let script = serde_json::to_string(script).unwrap();
        self.workload(id, &format!("{workload} command: {script}"))
            .stage(&format!("id: {id}, timeout: 100s, {stage} command: {{ workload: {id} }}"))
    }

    /// Sets a variable of every process.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    /// A path in the sandbox.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// The folder of the run.
    pub(crate) fn out(&self) -> PathBuf {
        self.path("out")
    }

    /// What a script has written to `$SEEN/NAME`; empty when it has not.
    pub(crate) fn seen(&self, name: &str) -> String {
        fs::read_to_string(self.path("seen").join(name)).unwrap_or_default()
    }

    /// The plan's text.
    pub(crate) fn text(&self) -> String {
        let local = "  one: { title: One, tier: owned, endpoints: { main: { local: true } } }\n";
        let platforms = if self.platforms.is_empty() { local } else { &self.platforms };
        let workloads =
            if self.workloads.is_empty() { String::new() } else { format!("workloads:\n{}", self.workloads) };
        format!(
            "schema: 1\nname: it\nperiod: 2026-Q4\ncurrency: CNY\n{}{workloads}platforms:\n{platforms}stages:\n{}",
            self.header, self.stages
        )
    }

    /// Writes the plan.
    pub(crate) fn plan(&self) -> PathBuf {
        let path = self.path("plan/plan.yaml");
        if !path.exists() {
            fs::write(&path, self.text()).unwrap();
        }
        path
    }

    /// A command of planrun in this sandbox, not started.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_planrun"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PLANRUN") {
                command.env_remove(name);
            }
        }
        command.args(args).current_dir(self.root.path());
        command.env("TMPDIR", self.path("tmp")).env("HOME", self.root.path()).env("NO_COLOR", "1");
        command.env(MARK, &self.mark).envs(&self.env).stdin(Stdio::null());
        command
    }

    /// Starts a command; its output goes to files.
    pub(crate) fn spawn(&self, mut command: Command) -> Running {
        let n = self.count.fetch_add(1, Ordering::Relaxed);
        let (out, err) = (self.path(&format!("{n}.stdout")), self.path(&format!("{n}.stderr")));
        command.stdout(File::create(&out).unwrap()).stderr(File::create(&err).unwrap());
        self.spawn_as_is(command, out, err)
    }

    /// Starts a command whose outputs have been set, and says where they go.
    #[expect(clippy::unused_self, reason = "reads like the others: `s.spawn…`")]
    pub(crate) fn spawn_as_is(&self, mut command: Command, out: PathBuf, err: PathBuf) -> Running {
        Running { child: command.spawn().unwrap(), out, err }
    }

    /// Starts planrun.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        self.spawn(self.command(args))
    }

    /// Runs planrun to its end.
    pub(crate) fn planrun(&self, args: &[&str]) -> Ended {
        self.start(args).wait()
    }

    /// Starts a run of the plan.
    pub(crate) fn start_run(&self, args: &[&str]) -> Running {
        let (plan, out) = (self.plan().display().to_string(), self.out().display().to_string());
        self.start(&[&["run", plan.as_str(), "-o", out.as_str()], args].concat())
    }

    /// Runs the plan to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        self.start_run(args).wait()
    }

    /// Goes on with the run.
    pub(crate) fn resume(&self) -> Ended {
        self.planrun(&["resume", &self.out().display().to_string()])
    }

    /// The bodies of all whole lines of the journal: kind and fields.
    pub(crate) fn journal(&self) -> Vec<(String, Value)> {
        bodies(&self.out())
    }

    /// The last `task_ended` of a task that is not retried.
    pub(crate) fn end_of(&self, task: &str) -> Value {
        self.journal()
            .into_iter()
            .rfind(|(kind, body)| kind == "task_ended" && body["task"] == task && body["retried"] != true)
            .unwrap_or_else(|| panic!("{task} has not ended: {:#?}", self.journal()))
            .1
    }

    /// `kind/cause` of a task's end.
    pub(crate) fn outcome(&self, task: &str) -> String {
        let end = self.end_of(task);
        let text = |key: &str| end["outcome"][key].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", text("kind"), text("cause"))
    }

    /// The reason of a task's end.
    pub(crate) fn reason(&self, task: &str) -> String {
        self.end_of(task)["outcome"]["reason"].as_str().unwrap_or_default().to_owned()
    }

    /// Notes of a task.
    pub(crate) fn notes(&self) -> Vec<String> {
        let notes = self.journal().into_iter().filter(|(kind, _)| kind == "note");
        notes.map(|(_, body)| body["text"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// All values of a series of a task's journal lines, telemetry left out.
    pub(crate) fn samples(&self, task: &str, name: &str) -> Vec<f64> {
        self.journal()
            .iter()
            .filter(|(kind, body)| {
                kind == "samples" && body["task"] == task && body["series"]["name"] == name
            })
            .flat_map(|(_, body)| body["values"].as_array().unwrap().clone())
            .filter_map(|v| v.as_f64())
            .collect()
    }

    /// The bytes of a log.
    pub(crate) fn log(&self, name: &str) -> Vec<u8> {
        let path = self.out().join("logs").join(name);
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    /// The scorecard.
    pub(crate) fn scorecard(&self) -> Value {
        serde_json::from_slice(&fs::read(self.out().join("scorecard.json")).unwrap()).unwrap()
    }

    /// Processes of this sandbox that are there now, with what they are.
    pub(crate) fn processes(&self) -> Vec<(u32, String)> {
        processes::carrying(&format!("{MARK}={}", self.mark))
    }

    /// Waits until no process of this sandbox is left, and sees that nothing else is.
    pub(crate) fn assert_nothing_left(&self) {
        wait_until("all processes of the sandbox to end", || self.processes().is_empty());
        assert_eq!(entries(&self.path("tmp")), Vec::<String>::new(), "left in TMPDIR");
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Only what a failed test left behind.
        for (pid, _) in self.processes() {
            processes::signal(pid, rustix::process::Signal::KILL);
        }
    }
}

/// The folder of the agent that runs on old hosts, too, and the agent for this machine in it.
pub(crate) fn portable_agent() -> (PathBuf, PathBuf) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/agents");
    let file = dir.join(format!("planrun-agent-{}", std::env::consts::ARCH));
    assert!(file.exists(), "{} is missing: scripts/build_agent makes it (tests/run.sh does)", file.display());
    (dir, file)
}

/// The names in a folder.
pub(crate) fn entries(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The bodies of all whole lines of the journal in a folder.
pub(crate) fn bodies(dir: &Path) -> Vec<(String, Value)> {
    let text = fs::read_to_string(dir.join("journal.jsonl")).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| {
            let record: Value = serde_json::from_str(line).unwrap();
            let (kind, body) = record["body"].as_object().unwrap().iter().next().unwrap();
            (kind.clone(), body.clone())
        })
        .collect()
}

/// A planrun at work.
#[must_use]
pub(crate) struct Running {
    pub(crate) child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        processes::signal(self.pid(), signal);
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> Ended {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                use std::os::unix::process::ExitStatusExt as _;
                let text =
                    |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
                return Ended {
                    code: status.code(),
                    signal: status.signal(),
                    stdout: text(&self.out),
                    stderr: text(&self.err),
                };
            }
            if begun.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("planrun did not end: {}", fs::read_to_string(&self.err).unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// How planrun ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    /// Sees the exit code.
    #[track_caller]
    pub(crate) fn code(self, code: i32) -> Self {
        assert_eq!((self.code, self.signal), (Some(code), None), "stderr:\n{}", self.stderr);
        assert!(!self.stderr.contains("panicked"), "{}", self.stderr);
        self
    }

    /// Sees a text on stderr.
    #[track_caller]
    pub(crate) fn says(self, text: &str) -> Self {
        assert!(self.stderr.contains(text), "no `{text}` in stderr:\n{}", self.stderr);
        self
    }
}
