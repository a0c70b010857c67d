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
    open: HashMap<PathBuf, Target>,
    tell: mpsc::UnboundedSender<Tell>,
    secrets: Arc<Secrets>,
    failed: bool,
}

/// A file that is written.
struct Target {
    /// `None`: it cannot be.
    file: Option<File>,
    /// Bytes held back because a secret may begin in them.
    held: Vec<u8>,
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
            failed: false,
        }
    }

    /// Writes a piece to a file, with secrets masked.
    fn write(&mut self, path: &Path, how: &OpenOptions, bytes: &[u8], last: bool) {
        let target = self.open.entry(path.to_owned()).or_insert_with(|| {
            let made = path.parent().is_some_and(|dir| create_dir_all(dir).is_ok());
            Target { file: made.then(|| how.open(path).ok()).flatten(), held: Vec::new() }
        });
        let masked = self.secrets.mask_stream(&mut target.held, bytes, last);
        let written = target.file.as_mut().is_some_and(|f| f.write_all(&masked).is_ok());
        if last {
            self.open.remove(path);
        }
        if !written && !self.failed {
            self.failed = true;
            let _ = self.tell.send(Tell::Note(true, format!("{} cannot be written", path.display())));
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
        let path = self.dir.join(format!("attempt-{}.{role}.{end}", self.attempt));
        self.write(&path, OpenOptions::new().append(true).create(true), bytes, false);
    }

    fn artifact(&mut self, path: &str, bytes: &[u8], last: bool) {
        let path = self.secrets.mask(path);
        let path = Path::new(&path);
        // The name comes from the host: it must stay below the folder.
        if path.components().all(|c| matches!(c, Component::Normal(_))) {
            let how = OpenOptions::new().write(true).create(true).truncate(true).clone();
            self.write(&self.artifacts.join(path), &how, bytes, last);
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
        for (_, mut target) in self.open.drain() {
            let rest = self.secrets.mask_stream(&mut target.held, &[], true);
            let _ = target.file.as_mut().map(|file| file.write_all(&rest));
        }
    }
}

/// Labels of a series in the journal: those of the task and its own.
pub(super) fn series_labels(task: &Labels, own: Labels) -> Labels {
    task.0.iter().map(|(k, v)| (k.clone(), v.clone())).chain(own.0).collect()
}
