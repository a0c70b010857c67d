//! `probe`: one probe on this machine, for people or as JSON lines; and the entry of the agent's children.

use std::io::{BufReader, Write};

use crate::{
    agent::CHILD,
    cli::ProbeArgs,
    commands,
    error::{Error, Exit},
    probe::{self, PROBES},
    workload::reference::{self, RankLauncher},
};

/// The probe that trains the reference workload.
const REFERENCE: &str = "reference";

/// The probe that is one rank of it.
const RANK: &str = "reference-rank";

/// Runs one probe for a person.
///
/// # Errors
/// When there is no such probe or it fails.
pub fn probe(args: &ProbeArgs) -> commands::Result {
    let options = match &args.options {
        None => serde_json::Value::Null,
        Some(text) => serde_json::from_str(text)
            .map_err(|e| Error::caused(Exit::USAGE, "failed to read --options as JSON", &e))?,
    };
    if !PROBES.iter().any(|p| p.kind == args.kind) {
        let known: Vec<String> = PROBES.iter().map(|p| format!("{} ({})", p.kind, p.about)).collect();
        return Err(Error::new(Exit::USAGE, format!("no probe `{}`", args.kind)).hint(known.join(", ")));
    }
    let failed = |e: &probe::ProbeError| {
        let error = Error::caused(Exit::NOT_MEASURED, "failed to measure", e);
        e.hint().map_or(Error::caused(Exit::NOT_MEASURED, "failed to measure", e), |hint| error.hint(hint))
    };
    if args.json {
        return match probe::main(&args.kind, options, &mut std::io::stdout()) {
            Ok(()) | Err(probe::ProbeError::Output { .. }) => Ok(Exit::OK),
            Err(e) => Err(failed(&e)),
        };
    }
    let mut table = Table::default();
    match probe::main(&args.kind, options, &mut table) {
        Ok(()) | Err(probe::ProbeError::Output { .. }) => Ok(Exit::OK),
        Err(e) => Err(failed(&e)),
    }
}

/// JSON lines as a table, line by line.
#[derive(Default)]
struct Table {
    rest: Vec<u8>,
}

impl Write for Table {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        while let Some(end) = self.rest.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            let text = row(&serde_json::from_slice(&line).unwrap_or_default());
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

/// The entry of a child that the agent starts to run a probe: options on stdin, JSON lines on stdout. Returns the
/// exit code.
pub fn child(kind: &str) -> i32 {
    if kind == RANK {
        return reference::rank_main();
    }
    let options = match probe::read_spec(&mut BufReader::new(std::io::stdin())) {
        Ok(options) => options,
        Err(e) => return complain(&e),
    };
    if kind == REFERENCE {
        let spec = match serde_json::from_value(options) {
            Ok(spec) => spec,
            Err(e) => return complain(&e),
        };
        // The link, not the path: the file may have been replaced since the agent started.
        let launcher = RankLauncher {
            program: Some("/proc/self/exe".into()),
            ..RankLauncher::this_program([CHILD, "0", "probe", RANK])
        };
        return reference::main(&spec, &launcher);
    }
    match probe::main(kind, options, &mut std::io::stdout()) {
        Ok(()) => 0,
        Err(e) => {
            complain(&e);
            e.exit_code()
        }
    }
}

fn complain(e: &dyn std::error::Error) -> i32 {
    let chain: Vec<String> =
        std::iter::successors(Some(e), |e| e.source()).map(ToString::to_string).collect();
    let _ = writeln!(std::io::stderr(), "{}", chain.join(": "));
    probe::EXIT_FAILED
}
