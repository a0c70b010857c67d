//! `probe`: one probe on this machine, for people or as JSON lines.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use crate::{
    agent::CHILD,
    child::{self, REFERENCE},
    cli::ProbeArgs,
    commands,
    error::{Error, Exit},
    measure::summary,
    probe::{self, PROBES},
    workload::reference::{Spec, StepLine},
};

/// What the reference workload is, beside the probes.
const REFERENCE_ABOUT: &str = "planrun's own small GPT, trained on the CPU";

/// Runs one probe for a person.
///
/// # Errors
/// When there is no such probe or it fails.
pub fn probe(args: &ProbeArgs) -> commands::Result {
    let unreadable =
        |e: serde_json::Error| Error::caused(Exit::USAGE, "failed to read --options as JSON", &e);
    let options: serde_json::Value = match &args.options {
        None => serde_json::Value::Null,
        Some(text) => serde_json::from_str(text).map_err(unreadable)?,
    };
    if args.kind == REFERENCE {
        let spec = child::spec(options).map_err(unreadable)?;
        return train(&spec, args.json);
    }
    if !PROBES.iter().any(|p| p.kind == args.kind) {
        let probes = PROBES.iter().map(|p| (p.kind, p.about)).chain([(REFERENCE, REFERENCE_ABOUT)]);
        let known: Vec<String> = probes.map(|(kind, about)| format!("{kind} ({about})")).collect();
        return Err(Error::new(Exit::USAGE, format!("no probe `{}`", args.kind)).hint(known.join(", ")));
    }
    let failed = |e: &probe::ProbeError| {
        let error = Error::caused(Exit::NOT_MEASURED, "failed to measure", e);
        e.hint().map_or(Error::caused(Exit::NOT_MEASURED, "failed to measure", e), |hint| error.hint(hint))
    };
    let mut table = Table::default();
    let out: &mut dyn Write = if args.json { &mut std::io::stdout() } else { &mut table };
    match probe::main(&args.kind, options, out) {
        Ok(()) => Ok(Exit::OK),
        // A reader that has gone away is no error; a full disk is.
        Err(probe::ProbeError::Output { source }) if source.kind() == std::io::ErrorKind::BrokenPipe => {
            Ok(Exit::OK)
        }
        Err(e) => Err(failed(&e)),
    }
}

/// Trains the reference workload in processes of their own, by the entry that the agent uses.
fn train(spec: &Spec, json: bool) -> commands::Result {
    spec.check().map_err(|why| Error::new(Exit::USAGE, format!("failed to use --options: {why}")))?;
    let lost = |e: std::io::Error| Error::caused(Exit::NOT_MEASURED, "failed to start the training", &e);
    let mut training = Command::new("/proc/self/exe")
        .args([CHILD, "probe", REFERENCE])
        .stdin(Stdio::piped())
        .stdout(if json { Stdio::inherit() } else { Stdio::piped() })
        .spawn()
        .map_err(lost)?;
    if let Some(mut input) = training.stdin.take() {
        let _ = writeln!(input, "{}", serde_json::json!(spec));
    }
    let mut written = Ok(());
    let mut table = Table { warmup: spec.warmup, ..Table::default() };
    if let Some(mut output) = training.stdout.take() {
        // A reader of ours that is gone ends the training, too: the pipe closes.
        written = std::io::copy(&mut output, &mut table).map(drop);
    }
    let status = training.wait().map_err(lost)?;
    if let Err(e) = written.and_then(|()| table.steps())
        && e.kind() != std::io::ErrorKind::BrokenPipe
    {
        return Err(Error::caused(Exit::NOT_MEASURED, "failed to write to stdout", &e));
    }
    if status.success() {
        return Ok(Exit::OK);
    }
    // It has said why.
    Ok(if status.code() == Some(2) { Exit::USAGE } else { Exit::NOT_MEASURED })
}

/// JSON lines as a table, line by line.
#[derive(Default)]
struct Table {
    rest: Vec<u8>,
    /// Steps that do not count.
    warmup: u64,
    /// Seconds of those that do.
    seconds: Vec<f64>,
    /// Tokens of each.
    tokens: usize,
}

impl Table {
    /// Training comes to two numbers.
    fn steps(&self) -> std::io::Result<()> {
        let Some(median) = summary::median(&summary::sorted(&self.seconds)) else { return Ok(()) };
        let mut out = std::io::stdout().lock();
        let label = format!("median of {} steps", self.seconds.len());
        writeln!(out, "{:28} {:>18.6} {:8} {label}", "step_time", median, "s")?;
        writeln!(
            out,
            "{:28} {:>18.0} {:8} {label}",
            "tokens_per_second",
            self.tokens as f64 / median,
            "tokens/s"
        )
    }
}

impl Write for Table {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let line = serde_json::from_slice(&line).unwrap_or_default();
            let text = row(&line);
            if let Ok(step) = serde_json::from_value::<StepLine>(line)
                && step.step > self.warmup
            {
                self.seconds.push(step.seconds);
                self.tokens = step.tokens;
            }
            let mut out = std::io::stdout().lock();
            out.write_all(text.as_bytes())?;
        }
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        std::io::stdout().flush()
    }
}

fn row(line: &serde_json::Value) -> String {
    let plain = |v: &serde_json::Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
    if let Some(name) = line["fact"].as_str() {
        let value = match (&line["unreadable"], &line["value"]) {
            (serde_json::Value::String(why), _) => format!("not readable: {why}"),
            (_, serde_json::Value::Null) => "none".to_owned(),
            (_, value) => plain(value),
        };
        return format!("{name:36} {value}\n");
    }
    if let Some(name) = line["metric"].as_str() {
        let labels: Vec<String> = line["labels"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(k, v)| format!("{k}={}", plain(v)))
            .collect();
        let unit = line["unit"].as_str().filter(|u| *u != "1").unwrap_or_default();
        return format!("{name:28} {:>18} {unit:8} {}\n", plain(&line["value"]), labels.join(" "));
    }
    match line["note"].as_str() {
        Some(note) => format!("note: {note}\n"),
        None => String::new(),
    }
}
