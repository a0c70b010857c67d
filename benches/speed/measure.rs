//! Running a program and weighing it.
//!
//! This process stays small on purpose: a child's peak memory starts at that of the process that made it.

use std::{
    error::Error,
    path::Path,
    process::{Command, Stdio},
};

use wait4::Wait4 as _;

/// What is measured and what it may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// In words.
    pub(crate) what: &'static str,
    /// CPU seconds, user and system.
    pub(crate) cpu: f64,
    /// Bytes of resident memory at the peak.
    pub(crate) rss: u64,
    /// The exit code that it must have.
    pub(crate) exit: i32,
}

impl Row {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, cpu: f64::INFINITY, rss: u64::MAX, exit: 0 }
    }
}

/// Runs rows and prints them.
pub(crate) struct Runner {
    program: String,
    rounds: u32,
    only: Option<String>,
    /// Whether the inputs stay for a closer look.
    pub(crate) keep: bool,
    /// Whether every limit so far was held.
    pub(crate) all_held: bool,
}

pub(crate) fn header() {
    println!("{:38} {:>9} {:>9} {:>8} {:>9} {:>8}", "what", "input MB", "CPU s", "limit", "peak MB", "limit");
}

impl Runner {
    /// `[--rounds N] [--keep] [--program FILE] [NAME]`; `--bench` is cargo's.
    pub(crate) fn from_args(program: &str) -> Self {
        let mut runner =
            Self { program: program.to_owned(), rounds: 5, only: None, keep: false, all_held: true };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--rounds" => runner.rounds = args.next().and_then(|n| n.parse().ok()).unwrap_or(1).max(1),
                "--program" => runner.program = args.next().unwrap_or_default(),
                "--keep" => runner.keep = true,
                "--bench" => {}
                _ => runner.only = Some(arg),
            }
        }
        runner
    }

    pub(crate) fn wants(&self, row: &Row) -> bool {
        self.only.as_ref().is_none_or(|only| row.what.contains(only.as_str()))
    }

    /// Writes `text` to a file and runs `planrun args… FILE`.
    pub(crate) fn file(
        &mut self,
        row: &Row,
        dir: &Path,
        name: &str,
        text: String,
        args: &[&str],
    ) -> Result<(), Box<dyn Error>> {
        // A text that is too long is refused at once and says nothing.
        if text.len() > planrun::plan::MOST_BYTES {
            return Err(format!("{}: {} bytes are too many", row.what, text.len()).into());
        }
        let path = dir.join(name);
        std::fs::write(&path, &text)?;
        let bytes = text.len() as u64;
        drop(text);
        self.run(row, bytes, |command| command.args(args).arg(&path))
    }

    /// Runs `planrun` with the arguments that `with` adds, some rounds, and prints the least CPU time and the largest
    /// memory.
    pub(crate) fn run(
        &mut self,
        row: &Row,
        bytes: u64,
        with: impl Fn(&mut Command) -> &mut Command,
    ) -> Result<(), Box<dyn Error>> {
        if !self.wants(row) {
            return Ok(());
        }
        let (mut cpu, mut rss) = (f64::INFINITY, 0);
        for _ in 0..self.rounds {
            let mut command = Command::new(&self.program);
            let used = with(&mut command)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?
                .wait4()?;
            if used.status.code() != Some(row.exit) {
                println!("{:38} over: {} in place of exit code {}", row.what, used.status, row.exit);
                self.all_held = false;
                return Ok(());
            }
            cpu = cpu.min((used.rusage.utime + used.rusage.stime).as_secs_f64());
            rss = rss.max(used.rusage.maxrss);
        }
        let held = cpu <= row.cpu && rss <= row.rss;
        self.all_held &= held;
        println!(
            "{:38} {:9.2} {cpu:9.3} {:8.2} {:9.1} {:8.0} {}",
            row.what,
            bytes as f64 / 1e6,
            row.cpu,
            rss as f64 / 1e6,
            row.rss as f64 / 1e6,
            word(held)
        );
        Ok(())
    }

    /// Runs `planrun` once, to make an input of a later row.
    pub(crate) fn quietly(&self, with: impl Fn(&mut Command) -> &mut Command) -> Result<(), Box<dyn Error>> {
        let mut command = Command::new(&self.program);
        let done = with(&mut command).stdin(Stdio::null()).stdout(Stdio::null()).output()?;
        if done.status.success() {
            return Ok(());
        }
        Err(format!("{command:?}: {}: {}", done.status, String::from_utf8_lossy(&done.stderr)).into())
    }

    /// Prints the size of a binary, the newest glibc symbol in it, and which of the crates that it has no use for are
    /// in it all the same.
    pub(crate) fn binary(
        &mut self,
        name: &str,
        path: &str,
        most: u64,
        without: &[&str],
    ) -> Result<(), Box<dyn Error>> {
        if self.only.as_ref().is_some_and(|only| !name.contains(only.as_str())) {
            return Ok(());
        }
        let bytes = std::fs::read(path)?;
        // A crate's panics name its source files.
        let inside = |name: &&&str| {
            let mark = format!("/{name}-");
            bytes.windows(mark.len()).any(|window| window == mark.as_bytes())
        };
        let inside: Vec<&str> = without.iter().filter(inside).copied().collect();
        let held = bytes.len() as u64 <= most && inside.is_empty();
        self.all_held &= held;
        println!(
            "{:38} {:9.2} of {:.1} MB, {}{}{}: {}",
            format!("size: {name}"),
            bytes.len() as f64 / 1e6,
            most as f64 / 1e6,
            newest_glibc(&bytes).unwrap_or_else(|| "no glibc".to_owned()),
            if inside.is_empty() { "" } else { ", holds " },
            inside.join(", "),
            word(held)
        );
        Ok(())
    }
}

fn word(held: bool) -> &'static str {
    if held { "ok" } else { "over" }
}

/// The highest `GLIBC_x.y` that the binary names.
fn newest_glibc(bytes: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"GLIBC_2.";
    let versions =
        bytes.windows(MARK.len()).enumerate().filter(|(_, window)| *window == MARK).filter_map(|(at, _)| {
            let digits: Vec<u8> =
                bytes[at + MARK.len()..].iter().copied().take_while(u8::is_ascii_digit).collect();
            String::from_utf8(digits).ok()?.parse::<u32>().ok()
        });
    versions.max().map(|minor| format!("GLIBC_2.{minor}"))
}
