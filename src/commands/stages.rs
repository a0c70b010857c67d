//! `stages`: what can be measured.

use std::fmt::Write as _;

use crate::{
    cli::StagesArgs,
    commands::{self, print},
    error::{Error, Exit},
    plan,
    stage::{KINDS, Kind},
};

/// Prints stages with their options and metrics.
///
/// # Errors
/// When there is no such stage.
pub fn stages(args: &StagesArgs) -> commands::Result {
    let kinds: Vec<&Kind> = match &args.kind {
        None => KINDS.iter().collect(),
        Some(name) => {
            if let Some(kind) = Kind::named(name) {
                vec![kind]
            } else {
                let known: Vec<&str> = KINDS.iter().map(|k| k.name).collect();
                return Err(Error::new(Exit::USAGE, format!("no stage `{name}`")).hint(known.join(", ")));
            }
        }
    };
    let schema = plan::schema();
    let options = |kind: &Kind| schema["definitions"][kind.options]["properties"].clone();
    if args.json {
        let list: Vec<serde_json::Value> = kinds.iter().map(|kind| json(kind, &options(kind))).collect();
        print(&format!("{:#}\n", serde_json::Value::Array(list)))?;
        return Ok(Exit::OK);
    }
    let mut out = String::new();
    for kind in kinds {
        let _ = writeln!(out, "{}: {}", kind.name, kind.doc);
        for (name, option) in options(kind).as_object().into_iter().flatten() {
            let doc = option["description"].as_str().unwrap_or_default().replace('\n', " ");
            let _ = writeln!(out, "  {name:14} {doc}");
        }
        out.push_str("  metrics:\n");
        for metric in kind.metrics {
            let _ = writeln!(out, "    {:24} {:10} {}", metric.name, metric.unit.as_str(), metric.doc);
        }
        if kind.open {
            out.push_str("    and whatever the program reports\n");
        }
        out.push('\n');
    }
    print(&out)?;
    Ok(Exit::OK)
}

fn json(kind: &Kind, options: &serde_json::Value) -> serde_json::Value {
    let metrics: Vec<serde_json::Value> = kind
        .metrics
        .iter()
        .map(|m| serde_json::json!({ "name": m.name, "unit": m.unit, "better": m.better, "doc": m.doc }))
        .collect();
    serde_json::json!({ "kind": kind.name, "doc": kind.doc, "open": kind.open, "options": options, "metrics": metrics })
}
