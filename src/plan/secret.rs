//! Variables that the plan lists under `secrets`: where their values may stand.
//!
//! Only where nothing of them is written down: the environment of a workload, and how a machine is reached and made. Everywhere
//! else they would show in the journal and in every report, so the plan is refused. Looked at before the plan is read:
//! a value that may not be there is never filled in, and so reaches no finding either.

use super::{
    load::at_offset,
    read::Context,
    tree::{Node, Tree, Value},
    variables,
};

/// Where they may stand; `*` is any name. Commands are the shell's, and what is under `x-…` is nothing yet.
const FREE: [&[&str]; 10] = [
    &["workloads", "*", "env", "*"],
    &["workloads", "*", "command"],
    &["workloads", "*", "setup"],
    &["workloads", "*", "serve"],
    &["platforms", "*", "endpoints", "*", "ssh"],
    &["platforms", "*", "endpoints", "*", "user"],
    &["platforms", "*", "endpoints", "*", "identity"],
    &["platforms", "*", "endpoints", "*", "notice"],
    &["platforms", "*", "endpoints", "*", "state"],
    &["platforms", "*", "endpoints", "*", "lifecycle"],
];

/// The shortest value that is looked for in the text: shorter ones are words that any plan may hold.
const SHORTEST: usize = 8;

/// Says where secrets stand that may not; from then on the context knows which variables are secrets.
pub(super) fn look(tree: &Tree, text: &str, arguments: &[String], context: &mut Context<'_>) {
    let names = match tree.root.get("secrets").map(|node| &node.value) {
        Some(Value::Seq(items)) => items.iter().filter_map(scalar).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    context.hide(names);
    if context.secrets().is_empty() {
        return;
    }
    walk(&tree.root, &mut Vec::new(), context);
    for (name, value) in context.secrets() {
        let Some(value) = value.as_ref().filter(|value| value.len() >= SHORTEST) else { continue };
        let message =
            format!("the value of the secret `{name}` stands in the plan: the journal would keep it");
        let help = Some(format!("write `${{{name}}}`"));
        if let Some(offset) = text.find(value.as_str()) {
            context.error_with(at_offset(text, offset, value.len()), message, help);
        } else if arguments.iter().any(|argument| argument.contains(value.as_str())) {
            let start = tree.root.entries().first().map_or(tree.root.place, |(key, _)| key.place);
            let message =
                format!("the value of the secret `{name}` stands in a `--set`: the journal would keep it");
            context.error_with(start, message, help);
        }
    }
}

/// All secrets that stand in a text of which nothing is kept secret.
pub(super) fn look_everywhere(root: &Node, context: &Context<'_>) {
    if !context.secrets().is_empty() {
        walk(root, &mut Vec::new(), context);
    }
}

fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

fn walk<'n>(node: &'n Node, path: &mut Vec<&'n str>, context: &Context<'_>) {
    let is_free = |free: &&[&str]| {
        free.len() == path.len()
            && free.iter().zip(&*path).all(|(wanted, key)| *wanted == "*" || wanted == key)
    };
    match &node.value {
        _ if FREE.iter().any(is_free) => {}
        Value::Map(entries) => {
            let top = path.is_empty();
            for (key, node) in entries.iter().filter(|(key, _)| !(top && key.text.starts_with("x-"))) {
                path.push(&key.text);
                walk(node, path, context);
                path.pop();
            }
        }
        Value::Seq(items) => {
            path.push("[]");
            for item in items {
                walk(item, path, context);
            }
            path.pop();
        }
        Value::Scalar { text, .. } => {
            let named = variables::names(text).find(|name| context.is_secret(name));
            if let Some(name) = named {
                let help = "a secret may stand in a workload's `env` and in an endpoint's `ssh`, `user` and `identity`";
                let message = format!("`{name}` is a secret, and this value shows in journal and reports");
                context.error_with(node.place, message, Some(help.to_owned()));
                context.forget(node.place);
            }
        }
        Value::Null => {}
    }
}
