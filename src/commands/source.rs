//! Plans on disk and built in: reading them with the right environment, files and rubrics.

use std::path::{Path, PathBuf};

use crate::{
    commands::{read_bytes, read_regular, read_text},
    error::{Error, Exit},
    findings::Form,
    measure::quantity::Date,
    plan::{Loaded, Options, Unset, load_bytes, model::Plan},
    score::{builtin, rubric::Rubric},
};

/// The plan that runs without any file: two candidates on the machine at hand.
pub const LOCAL_PLAN: &str = include_str!("../../plans/local.yaml");

/// The name of the built-in plan in messages.
pub const LOCAL_NAME: &str = "plans/local.yaml (built in)";

/// A plan's bytes, its name for messages, and the folder that its files are relative to.
pub struct Source {
    /// The name as the user gave it.
    pub name: String,
    /// Its text.
    pub bytes: Vec<u8>,
    /// The folder.
    pub dir: PathBuf,
}

impl Source {
    /// Reads a plan from a file, or takes the built-in one.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn open(path: Option<&Path>) -> Result<Self, Error> {
        let Some(path) = path else {
            let (name, bytes) = (LOCAL_NAME.to_owned(), LOCAL_PLAN.as_bytes().to_vec());
            return Ok(Self { name, bytes, dir: PathBuf::from(".") });
        };
        let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Ok(Self { name: path.display().to_string(), bytes: read_bytes(path)?, dir: dir.to_owned() })
    }

    /// Loads and checks the plan.
    pub fn load(&self, set: &[String], unset: Unset) -> Loaded {
        let read_file = |file: &str| {
            let path = self.dir.join(file);
            let bytes = read_regular(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            String::from_utf8(bytes).map_err(|_| format!("{}: it is no text (UTF-8)", path.display()))
        };
        let options = Options {
            set: set.to_vec(),
            env: &|name| std::env::var(name).ok(),
            unset,
            read_file: &read_file,
            has_file: &|file| self.dir.join(file).is_file(),
            builtin_rubric: &builtin::text,
            today: today(),
        };
        load_bytes(&self.name, &self.bytes, &options)
    }

    /// Loads a plan that is to be run: its findings go to stderr, errors end the command.
    ///
    /// # Errors
    /// When the plan has errors.
    pub fn load_to_run(&self, set: &[String], quiet: bool) -> Result<(Plan, Rubric), Error> {
        let loaded = self.load(set, Unset::Error);
        let text = String::from_utf8_lossy(&self.bytes);
        let rendered = loaded.render(Form::Human, &self.name, &text);
        if loaded.has_errors() || !quiet {
            super::talk(&rendered);
        }
        let wrong = || {
            Error::new(Exit::USAGE, format!("{} cannot be run as it is: nothing was contacted", self.name))
        };
        if loaded.has_errors() {
            return Err(wrong());
        }
        loaded.plan.zip(loaded.rubric).ok_or_else(wrong)
    }
}

/// A rubric by its built-in name or from a file.
///
/// # Errors
/// When there is no such rubric, or it cannot be used.
pub fn rubric(name: &str) -> Result<Rubric, Error> {
    let (label, text) = match builtin::text(name) {
        Some(text) => (name.to_owned(), text.to_owned()),
        None => (name.to_owned(), read_text(Path::new(name))?),
    };
    let options = Options {
        set: Vec::new(),
        env: &|name| std::env::var(name).ok(),
        unset: Unset::Error,
        read_file: &|file| Err(format!("{file}: a rubric refers to no file")),
        has_file: &|_| true,
        builtin_rubric: &builtin::text,
        today: today(),
    };
    let (rubric, findings) = crate::plan::load_rubric(&text, &options);
    let source = crate::findings::Source { name: &label, text: &text };
    super::talk(&crate::findings::render(Form::Human, &[(source, &findings)]));
    rubric.ok_or_else(|| Error::new(Exit::USAGE, format!("{label} cannot be used as a rubric")))
}

fn today() -> Option<Date> {
    let now = jiff::Timestamp::now().to_string();
    now.get(..10)?.parse().ok()
}
