//! `--set PATH=VALUE`: changes to the tree before it is read.
//!
//! A changed value is read and checked like any other; what is wrong with it is said with the argument, at the place
//! of the value that it replaces. The file itself is never changed.

use super::{
    read::Context,
    suggest,
    tree::{self, Key, Node, Tree, Value},
};
use crate::{
    findings::{Finding, Place, Pos},
    stage::Kind,
};

/// The arguments, with the places that stand for them in the text.
///
/// Until findings are printed, a changed value has a place outside the text: line 0, and the argument's number as the
/// offset. So a finding about it is told from one about what it replaced.
pub(super) struct Changes<'a> {
    arguments: &'a [String],
    anchors: Vec<Pos>,
}

/// Why an argument changes nothing.
struct Refused {
    message: String,
    help: Option<String>,
}

impl Refused {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }
}

/// Maps whose keys are names that a plan gives: a new name there needs more than one value.
const NAMED: [&[&str]; 9] = [
    &["workloads"],
    &["platforms"],
    &["jobs"],
    &["rates"],
    &["scenarios"],
    &["platforms", "*", "offers"],
    &["platforms", "*", "endpoints"],
    &["platforms", "*", "declared"],
    &["platforms", "*", "peaks"],
];

impl<'a> Changes<'a> {
    /// Changes the tree; what cannot be done is a finding.
    pub(super) fn apply(tree: &mut Tree, arguments: &'a [String], context: &Context<'_>) -> Self {
        let mut anchors = Vec::with_capacity(arguments.len());
        for (argument, number) in arguments.iter().zip(0_u32..) {
            let pos = Pos { offset: number, len: 0, line: 0, column: 0 };
            let place = Place { at: pos, defined: pos };
            let start = tree.root.entries().first().map_or(tree.root.place, |(key, _)| key.place).defined;
            let mut change = Change { place, last_id: tree.last_id, anchor: start, trail: Vec::new() };
            let done = change.apply(&mut tree.root, argument);
            tree.last_id = change.last_id;
            anchors.push(change.anchor);
            if let Err(Refused { message, help }) = done {
                context.error_with(place, message, help);
            }
        }
        Self { arguments, anchors }
    }

    /// Findings with places in the text only: those about an argument name it.
    pub(super) fn located(&self, mut findings: Vec<Finding>) -> Vec<Finding> {
        for finding in &mut findings {
            if finding.pos.line > 0 {
                continue;
            }
            let number = finding.pos.offset as usize;
            let (Some(argument), Some(anchor)) = (self.arguments.get(number), self.anchors.get(number))
            else {
                continue;
            };
            // The value may be a secret from a shell variable; the path names the argument well enough.
            let path = argument.split_once('=').map_or(argument.as_str(), |(path, _)| path);
            finding.message = format!("--set {path}: {}", finding.message);
            finding.shorten();
            finding.pos = *anchor;
            finding.used_at = None;
        }
        findings.sort();
        findings
    }
}

/// One argument at work.
struct Change {
    place: Place,
    last_id: u32,
    anchor: Pos,
    /// Keys on the way down.
    trail: Vec<String>,
}

impl Change {
    fn apply(&mut self, root: &mut Node, argument: &str) -> Result<(), Refused> {
        let Some((path, value)) = argument.split_once('=') else {
            return Err(Refused::new(format!("`{argument}` has no `=`: write PATH=VALUE")));
        };
        let path = path.trim();
        if path.is_empty() || path.split('.').any(str::is_empty) {
            return Err(Refused::new(format!("`{path}` is no path: write keys with `.` between them")));
        }
        let value = self.value(value.trim())?;
        self.put(root, path, value)
    }

    /// A value as it would stand behind a key: text, a number, or a flow list or map.
    fn value(&mut self, text: &str) -> Result<Node, Refused> {
        if text.starts_with(['{', '[', '"', '\'']) {
            let tree = tree::parse(text)
                .map_err(|finding| Refused::new(format!("no value: {}", finding.message)))?;
            if let Some(finding) = tree.findings.first() {
                return Err(Refused::new(finding.message.clone()));
            }
            let mut node = tree.root;
            self.adopt(&mut node);
            return Ok(node);
        }
        Ok(match text {
            "" | "~" | "null" => self.new_node(Value::Null),
            _ => self.new_node(Value::Scalar { text: text.to_owned(), plain: true }),
        })
    }

    fn new_node(&mut self, value: Value) -> Node {
        self.last_id += 1;
        Node { id: self.last_id, place: self.place, value }
    }

    /// Gives a node of another tree ids of this one and the argument's place.
    fn adopt(&mut self, node: &mut Node) {
        self.last_id += 1;
        node.id = self.last_id;
        node.place = self.place;
        match &mut node.value {
            Value::Seq(items) => items.iter_mut().for_each(|item| self.adopt(item)),
            Value::Map(entries) => {
                for (key, value) in entries {
                    key.place = self.place;
                    self.adopt(value);
                }
            }
            Value::Null | Value::Scalar { .. } => {}
        }
    }

    fn put(&mut self, node: &mut Node, path: &str, new: Node) -> Result<(), Refused> {
        if node.place.defined.line > 0 {
            self.anchor = node.place.defined;
        }
        match &mut node.value {
            Value::Seq(items) => {
                let (name, rest) =
                    path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
                let Some(item) = find_item(items, name) else { return Err(self.no_item(items, name)) };
                self.trail.push(name.to_owned());
                self.go_on(item, rest, new)
            }
            Value::Map(entries) => {
                // Names may hold dots: the longest key that fits is meant.
                let fits = |key: &str| {
                    path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                };
                let found = entries
                    .iter_mut()
                    .filter(|(key, _)| fits(&key.text))
                    .max_by_key(|(key, _)| key.text.len());
                if let Some((key, value)) = found {
                    let rest = path[key.text.len()..].strip_prefix('.');
                    self.trail.push(key.text.clone());
                    return self.go_on(value, rest, new);
                }
                self.create(entries, path, new)
            }
            Value::Null => {
                let mut entries = Vec::new();
                self.create(&mut entries, path, new)?;
                node.value = Value::Map(entries);
                Ok(())
            }
            Value::Scalar { .. } => {
                Err(Refused::new(format!("`{}` is a single value: it has no `{path}`", self.trail.join("."))))
            }
        }
    }

    fn go_on(&mut self, node: &mut Node, rest: Option<&str>, new: Node) -> Result<(), Refused> {
        if let Some(rest) = rest {
            return self.put(node, rest, new);
        }
        if node.place.defined.line > 0 {
            self.anchor = node.place.defined;
        }
        *node = new;
        Ok(())
    }

    /// Adds what is not there yet. Unknown keys are found when the tree is read; a misspelt name would only look like
    /// an incomplete new one, so it is refused here.
    fn create(&mut self, entries: &mut Vec<(Key, Node)>, path: &str, new: Node) -> Result<(), Refused> {
        let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
        let names_here = NAMED.iter().any(|pattern| {
            pattern.len() == self.trail.len()
                && pattern.iter().zip(&self.trail).all(|(wanted, key)| *wanted == "*" || wanted == key)
        });
        if names_here && rest.is_some() {
            let help = suggest::help(name, entries.iter().map(|(key, _)| key.text.as_str()));
            return Err(Refused { message: format!("no `{name}` under `{}`", self.trail.join(".")), help });
        }
        let value = match rest {
            None => new,
            Some(rest) => {
                self.trail.push(name.to_owned());
                let mut inner = Vec::new();
                self.create(&mut inner, rest, new)?;
                self.new_node(Value::Map(inner))
            }
        };
        entries.push((Key { text: name.to_owned(), place: self.place }, value));
        Ok(())
    }

    fn no_item(&self, items: &[Node], name: &str) -> Refused {
        let ids = items.iter().filter_map(id_of);
        let message = format!("no `{name}` in the list `{}`", self.trail.join("."));
        let help = suggest::help(name, ids).map(|help| format!("{help}; items also go by number, from 0"));
        Refused { message, help: help.or_else(|| Some("items go by number, from 0".to_owned())) }
    }
}

/// The item of a number, or the stage of an id.
fn find_item<'n>(items: &'n mut [Node], name: &str) -> Option<&'n mut Node> {
    let index = match items.iter().position(|item| id_of(item) == Some(name)) {
        Some(index) => index,
        None if name.bytes().all(|b| b.is_ascii_digit()) => name.parse::<usize>().ok()?,
        None => return None,
    };
    items.get_mut(index)
}

/// The id of a stage: the one given, else its kind.
fn id_of(item: &Node) -> Option<&str> {
    match item.get("id").map(|node| &node.value) {
        Some(Value::Scalar { text, .. }) => Some(text),
        _ => item.entries().iter().find_map(|(key, _)| Kind::named(&key.text)).map(|kind| kind.name),
    }
}
