//! `init`: a first plan to start from, for this machine or from what a host reports.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;

use crate::{
    cli::InitArgs,
    commands::{
        self, replace, run,
        source::{LOCAL_PLAN, Source},
        talk,
    },
    error::{Error, Exit},
    outcome::printable,
    platform::SshAddress,
    runner::{self, Look, Place},
    transport::ssh::{Ssh, Target},
};

/// Says which accelerators there are, by name.
const ACCELERATORS: &str = "command -v nvidia-smi >/dev/null 2>&1 && \
                            timeout 20 nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null";

/// Writes a first plan.
///
/// # Errors
/// When the folder has a plan already or cannot be written, or the host cannot be reached.
pub fn init(args: &InitArgs, ssh_config: Option<&Path>) -> commands::Result {
    std::fs::create_dir_all(&args.dir).map_err(|e| {
        Error::caused(Exit::USAGE, format!("failed to make the folder {}", args.dir.display()), &e)
    })?;
    let path = args.dir.join("plan.yaml");
    if path.exists() {
        return Err(
            Error::new(Exit::USAGE, format!("{} exists already", path.display())).hint("name another folder")
        );
    }
    let text = match &args.from_host {
        None => LOCAL_PLAN.to_owned(),
        Some(host) => from_host(host, ssh_config)?,
    };
    replace(&path, &text)?;
    talk(&format!("wrote {0}; next: `planrun check {0}`, then `planrun {0}`\n", path.display()));
    Ok(Exit::OK)
}

fn from_host(text: &str, ssh_config: Option<&Path>) -> Result<String, Error> {
    let address: SshAddress = text.parse().map_err(|why: String| Error::new(Exit::USAGE, why))?;
    let controller = run::new_controller(ssh_config, false)?;
    let target =
        Target { host: address.host.clone(), user: address.user, port: address.port, ..Target::default() };
    let name = "first".to_owned();
    let place = Place { name: name.clone(), lane: name, ssh: None, local: false, cpus: None, workdir: None };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|e| Error::caused(Exit::NOT_MEASURED, "failed to start", &e))?;
    let look = runtime
        .block_on(runner::look(&place, Arc::new(Ssh::new(target, controller)), ACCELERATORS, &[]))
        .map_err(|outcome| Error::new(Exit::NOT_MEASURED, outcome.reason))?;
    let plan = plan(text, &address.host, &look);
    // What a host says of itself must not make a plan that cannot be read.
    let source =
        Source { name: "plan.yaml".to_owned(), bytes: plan.clone().into_bytes(), dir: PathBuf::from(".") };
    source.load_to_run(&[], true)?;
    Ok(plan)
}

/// The plan that a look at a host comes to. Only what the host said stands in it.
fn plan(ssh: &str, host: &str, look: &Look) -> String {
    let facts: BTreeMap<String, Value> = look
        .facts
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|v| Some((v.get("fact")?.as_str()?.to_owned(), v.get("value")?.clone())))
        .collect();
    let number = |name: &str| facts.get(name).and_then(Value::as_u64);
    let quoted = |text: &str| serde_json::to_string(&printable(text)).unwrap_or_default();
    let mut promises = Vec::new();
    if let Some(gpu) = look.lines.first() {
        promises.push(format!("gpu: {}", quoted(gpu)));
        promises.push(format!("gpus: {}", look.lines.len()));
    }
    promises.extend(number("cpu.logical").map(|n| format!("vcpus: {n}")));
    promises.extend(number("memory.total_bytes").map(|n| format!("memory: {} MiB", n >> 20)));
    let gpus = if look.lines.is_empty() { String::new() } else { format!(", gpus: {}", look.lines.len()) };
    let name: String =
        host.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    let name = name.trim_matches('-');
    let name = if name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.to_owned()
    } else {
        format!("host-{name}")
    };
    let today = jiff::Timestamp::now().to_string();
    let (year, month) = (&today[..4], today[5..7].parse::<u32>().unwrap_or(1));
    let mut text = String::new();
    let _ = write!(
        text,
        "# A first plan, from what {host} reported on {day}. Correct `promises` to what you pay for, and add a second\n\
         # candidate, offers and jobs: `planrun schema plan` has every key, the README an example.\n\
         schema: 1\nname: first\nperiod: {year}-Q{quarter}\ncurrency: USD\n\nlimits: {{ stop_after: 2h }}\n\n\
         workloads:\n  gpt:                            # planrun's own small GPT; put your program in its place\n    \
         reference: {{ layers: 2, heads: 4, width: 64, sequence: 64, batch: 8 }}\n\n\
         platforms:\n  {name}:\n    title: {title}\n    tier: rental\n    promises: {{ {promises} }}\n    \
         # offers: {{ on-demand: {{ rate: 0 USD/gpu-hour, seen_on: {day}, source: the page where you saw it }} }}\n    \
         endpoints: {{ main: {{ ssh: {ssh}{gpus} }} }}\n\n\
         stages:\n  - inventory: {{}}\n  - {{ timeout: 1h, throughput: {{ workload: gpt, steps: 200 }} }}\n  \
         - {{ timeout: 30m, storage: {{ size: 1 GiB }} }}\n",
        day = &today[..10],
        quarter = month.div_ceil(3),
        title = quoted(host),
        promises = promises.join(", "),
        ssh = quoted(ssh),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_from_a_host_can_be_run_whatever_the_host_says() {
        let fact = |name: &str, value: Value| serde_json::json!({ "fact": name, "value": value }).to_string();
        let look = Look {
            facts: vec![fact("cpu.logical", 96.into()), fact("memory.total_bytes", (2_u64 << 40).into())],
            lines: vec!["NVIDIA H100 80GB HBM3".to_owned(); 8],
            ..Look::default()
        };
        let text = plan("root@10.0.0.7:2222", "10.0.0.7", &look);
        for wanted in
            ["gpus: 8", "vcpus: 96", "memory: 2097152 MiB", "host-10-0-0-7:", "\"root@10.0.0.7:2222\""]
        {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        assert!(loads(&text), "{text}");
        let hostile = Look { lines: vec!["x\": }\n - \u{1b}[2J".to_owned()], ..Look::default() };
        assert!(loads(&plan("h", "-", &hostile)));
        assert!(loads(&plan("h", "h", &Look::default())), "a host that says nothing promises nothing");
    }

    fn loads(text: &str) -> bool {
        let source =
            Source { name: "p".to_owned(), bytes: text.as_bytes().to_vec(), dir: PathBuf::from(".") };
        source.load_to_run(&[], true).is_ok()
    }
}
