//! Software that a training job stands on: Python, `PyTorch`, the CUDA toolkit, container runtimes.
//!
//! Here: what is installed, asked of the programs themselves within a time limit. Not here:
//! whether the parts fit together ([`crate::probe::checks`]).
//!
//! Invariant: "not installed" and "did not answer" are different facts.

use std::time::Duration;

use serde_json::Value;

use super::FactsSpec;
use crate::probe::child::Output;
use crate::probe::lines::Facts;
use crate::probe::root::{Missing, Root};
use crate::probe::text::clean;

/// How long `nvcc` and the like may take.
const HELPER_LIMIT: Duration = Duration::from_secs(5);
/// How long the import of `PyTorch` and the start of CUDA may take.
const TORCH_LIMIT: Duration = Duration::from_secs(20);
/// Stands before the answer, since any imported module may print.
const MARK: &str = "planrun-python ";
/// Asked of the interpreter; without the working folder, where a file may be called `torch.py`.
const SCRIPT: &str = r#"
import sys
sys.path[:] = [p for p in sys.path if p]
import json, platform
said = {"python": platform.python_version()}
try:
    import torch
    said["torch"] = str(torch.__version__)
    said["cuda"] = torch.version.cuda
    said["hip"] = getattr(torch.version, "hip", None)
    said["available"] = bool(torch.cuda.is_available())
    said["count"] = int(torch.cuda.device_count())
except ModuleNotFoundError as error:
    if getattr(error, "name", None) == "torch":
        said["absent"] = True
    else:
        said["error"] = repr(error)
except BaseException as error:
    said["error"] = repr(error)
print("\nplanrun-python " + json.dumps(said), flush=True)
"#;
const TORCH_FACTS: [&str; 4] =
    ["torch.version", "torch.cuda_version", "torch.cuda_available", "torch.device_count"];

pub(super) fn read(root: &Root, spec: &FactsSpec, facts: &mut Facts) {
    for program in ["docker", "podman"] {
        facts.set(format!("{program}.present"), root.system().has_program(program));
    }
    facts.put("cuda.toolkit_version", toolkit(root));
    if spec.ask_python {
        read_python(root, &spec.python, facts);
    }
}

/// The CUDA toolkit, by its own version file, else by its compiler.
fn toolkit(root: &Root) -> Result<String, Missing> {
    if let Ok(text) = root.text("/usr/local/cuda/version.json")
        && let Ok(versions) = serde_json::from_str::<Value>(&text)
        && let Some(version) = versions.pointer("/cuda/version").and_then(Value::as_str)
    {
        return Ok(version.to_owned());
    }
    // `CUDA Version 10.2.89`, before 11.1
    if let Ok(line) = root.line("/usr/local/cuda/version.txt")
        && let Some(version) = line.strip_prefix("CUDA Version ")
    {
        return Ok(version.to_owned());
    }
    // `Cuda compilation tools, release 12.4, V12.4.131`
    let output = match root.system().run(&["nvcc", "--version"], HELPER_LIMIT) {
        Err(Missing::NotThere) => {
            root.system().run(&["/usr/local/cuda/bin/nvcc", "--version"], HELPER_LIMIT)?
        }
        other => other?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split_once("release ").and_then(|(_, rest)| rest.split([',', '\n']).next());
    version.map(str::to_owned).ok_or_else(|| Missing::Unreadable("nvcc tells no release".into()))
}

fn read_python(root: &Root, python: &str, facts: &mut Facts) {
    // Asked by itself: where PyTorch hangs, the interpreter's version is still known.
    let version =
        root.system().run(&[python, "--version"], HELPER_LIMIT).and_then(|output| python_version(&output));
    let there = version.is_ok();
    facts.put("python.version", version.clone());
    if !there {
        for name in TORCH_FACTS {
            facts.put(name, version.clone());
        }
        return;
    }
    let answer = root.system().run(&[python, "-c", SCRIPT], TORCH_LIMIT).and_then(|output| answer(&output));
    match answer {
        Ok(said) => read_torch(&said, facts),
        Err(missing) => {
            let reason = match missing {
                Missing::NotThere => "the interpreter could not be started".into(),
                Missing::Unreadable(reason) => reason,
            };
            for name in TORCH_FACTS {
                facts.set_unreadable(name, &reason);
            }
        }
    }
}

/// `Python 3.10.12`, on stderr before 3.4.
fn python_version(output: &Output) -> Result<String, Missing> {
    let line = clean(if output.stdout.is_empty() { &output.stderr } else { &output.stdout });
    line.strip_prefix("Python ")
        .map(str::to_owned)
        .ok_or_else(|| Missing::Unreadable(format!("said `{line}`")))
}

fn answer(output: &Output) -> Result<Value, Missing> {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().rev().find_map(|line| line.strip_prefix(MARK));
    match line.map(serde_json::from_str) {
        Some(Ok(said)) => Ok(said),
        _ => Err(Missing::Unreadable(format!(
            "the interpreter ended without an answer: {}",
            clean(&output.stderr)
        ))),
    }
}

fn read_torch(said: &Value, facts: &mut Facts) {
    if said.get("absent").is_some() {
        for name in TORCH_FACTS {
            facts.set_nothing(name);
        }
        return;
    }
    // What was answered before an error still holds.
    let reason = said.get("error").and_then(Value::as_str).unwrap_or("PyTorch does not tell");
    let names = ["torch", "cuda", "available", "count"];
    for (fact, key) in TORCH_FACTS.into_iter().zip(names) {
        match said.get(key) {
            Some(value) => facts.set(fact, value.clone()),
            None => facts.set_unreadable(fact, reason),
        }
    }
}
