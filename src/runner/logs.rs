//! Raw output and fetched files of a task, as files in the run's folder.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions, create_dir_all},
    io::Write as _,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use tokio::sync::mpsc;

use super::secrets::Secrets;
use crate::{
    measure::{Better, Labels, Unit},
    readers::{JsonLines, Reader as _, Said},
    record::PlannedTask,
    stage::{
        drive::{Found, Tell},
        host::{TELEMETRY, Tap},
    },
    wire::Stream,
};

/// The name before telemetry metrics, so that they cannot be taken for the stage's own.
const TELEMETRY_PREFIX: &str = "host_";

/// Where a task's output goes.
pub(super) struct Logs {
    dir: PathBuf,
    artifacts: PathBuf,
    attempt: u32,
    open: HashMap<String, Option<File>>,
    tell: mpsc::UnboundedSender<Tell>,
    secrets: Arc<Secrets>,
    /// Bytes held back because a secret may begin in them, by file.
    held: HashMap<String, Vec<u8>>,
    failed: bool,
}

/// The folder of a task's logs, relative to the run's folder: made of plain characters only.
pub(super) fn task_dir(task: &PlannedTask) -> PathBuf {
    let last = task.id.0.strip_prefix(&task.platform).unwrap_or(&task.id.0);
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-_.=@#,".contains(c) { c } else { '_' };
    let last: String = last.trim_start_matches('/').replace(['{', '}'], ",").chars().map(plain).collect();
    Path::new(&task.platform).join(last.trim_end_matches(','))
}

impl Logs {
    pub(super) fn new(
        run_dir: &Path,
        task: &PlannedTask,
        attempt: u32,
        tell: mpsc::UnboundedSender<Tell>,
        secrets: Arc<Secrets>,
    ) -> Self {
        let name = task_dir(task);
        Self {
            dir: run_dir.join("logs").join(&name),
            artifacts: run_dir.join("artifacts").join(&name),
            attempt,
            open: HashMap::new(),
            tell,
            secrets,
            held: HashMap::new(),
            failed: false,
        }
    }

    fn write(&mut self, name: String, bytes: &[u8]) {
        let path = self.dir.join(&name);
        let file = self.open.entry(name).or_insert_with(|| {
            create_dir_all(path.parent()?).ok()?;
            OpenOptions::new().append(true).create(true).open(&path).ok()
        });
        let written = file.as_mut().is_some_and(|f| f.write_all(bytes).is_ok());
        if !written && !self.failed {
            self.failed = true;
            let _ = self.tell.send(Tell::Note(true, format!("the log {} cannot be written", path.display())));
        }
    }
}

impl Tap for Logs {
    fn output(&mut self, role: &str, stream: Stream, bytes: &[u8]) {
        // The sampler's lines are in the journal; they would only drown the log.
        if role == TELEMETRY && stream == Stream::Out {
            return;
        }
        let end = match stream {
            Stream::Out => "out",
            Stream::Err => "err",
        };
        let name = format!("attempt-{}.{role}.{end}", self.attempt);
        if self.secrets.is_empty() {
            self.write(name, bytes);
        } else {
            let held = self.held.entry(name.clone()).or_default();
            let masked = self.secrets.mask_stream(held, bytes, false);
            self.write(name, &masked);
        }
    }

    fn artifact(&mut self, path: &str, bytes: &[u8], last: bool) {
        let path = Path::new(path);
        // The name comes from the host: it must stay below the folder.
        if !path.components().all(|c| matches!(c, Component::Normal(_))) {
            return;
        }
        let target = self.artifacts.join(path);
        let name = format!("artifact:{}", target.display());
        let file = self.open.entry(name.clone()).or_insert_with(|| {
            create_dir_all(target.parent()?).ok()?;
            OpenOptions::new().write(true).create(true).truncate(true).open(&target).ok()
        });
        let written = file.as_mut().is_some_and(|f| f.write_all(bytes).is_ok());
        if !written && !self.failed {
            self.failed = true;
            let _ = self.tell.send(Tell::Note(true, format!("{} cannot be written", target.display())));
        }
        if last {
            self.open.remove(&name);
        }
    }

    fn takes(&mut self, role: &str, line: &str) -> bool {
        if role != TELEMETRY {
            return false;
        }
        let mut said = Vec::new();
        JsonLines.line(line, &mut said);
        for what in said {
            if let Said::Number { name, value, unit, labels, .. } = what {
                let (unit, better) = (unit.unwrap_or(Unit::RATIO), Better::Neither);
                let name = format!("{TELEMETRY_PREFIX}{name}");
                let _ =
                    self.tell.send(Tell::Found(Found { name, labels, unit, better, values: vec![value] }));
            }
        }
        true
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        for (name, mut held) in std::mem::take(&mut self.held) {
            let rest = self.secrets.mask_stream(&mut held, &[], true);
            if !rest.is_empty() {
                self.write(name, &rest);
            }
        }
    }
}

/// Labels of a series in the journal: those of the task and its own.
pub(super) fn series_labels(task: &Labels, own: Labels) -> Labels {
    task.0.iter().map(|(k, v)| (k.clone(), v.clone())).chain(own.0).collect()
}
