//! From text to a tree of values that know their place.
//!
//! It knows YAML and no plans. A scalar keeps its spelling and whether it was quoted, so that the field that reads it
//! decides its type, never YAML. Merge keys are applied and duplicate keys are found here, since both are matters of
//! the text. A text that is no YAML gives one finding; everything else gives a tree.

use std::{
    collections::{HashMap, HashSet},
    fmt,
};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{
    DuplicateKeyPolicy, Location, MergeKeyPolicy, NonFiniteFloatPolicy, Options, Spanned, alias_limits,
    budget, options,
};

use super::syntax;
use crate::findings::{Finding, Place, Pos, Severity};

/// A value of the document. Behind an alias it is a copy of its own, with an id of its own.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// Unique in its tree.
    pub(crate) id: u32,
    /// Where it stands.
    pub(crate) place: Place,
    /// What it is.
    pub(crate) value: Value,
}

/// The key of a map.
#[derive(Debug, Clone)]
pub(crate) struct Key {
    /// Its text.
    pub(crate) text: String,
    /// Where it stands.
    pub(crate) place: Place,
}

/// What a node is.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    /// Nothing, `~` or `null`.
    Null,
    /// Text as written; `plain` without quotes and on one line.
    Scalar { text: String, plain: bool },
    /// A list.
    Seq(Vec<Node>),
    /// A map, in order, without duplicates, merges applied.
    Map(Vec<(Key, Node)>),
}

impl Node {
    /// The value under a key of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|(k, _)| k.text == key).map(|(_, node)| node)
    }

    /// The entries of a map; none for everything else.
    pub(crate) fn entries(&self) -> &[(Key, Node)] {
        match &self.value {
            Value::Map(entries) => entries,
            _ => &[],
        }
    }
}

/// A document, and what is wrong with it although it is YAML.
#[derive(Debug)]
pub(crate) struct Tree {
    /// The whole.
    pub(crate) root: Node,
    /// Ids up to this one are taken.
    pub(crate) last_id: u32,
    /// Duplicate keys, empty keys, merges of what is no map.
    pub(crate) findings: Vec<Finding>,
}

/// How the parser is set: nothing gets a type, nothing is merged or dropped, and a bomb is refused.
fn parser_options() -> Options {
    options! {
        strict_booleans: true,
        reject_unsupported_tags: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        // An empty key would end the parse otherwise; it becomes a finding below.
        null_as_string: true,
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
        alias_limits: alias_limits! { max_total_replayed_events: 50_000 },
        budget: budget! {
            // The size of the text bounds it anyway.
            max_nodes: 600_000,
            max_events: 2_000_000,
            // One anchor for the SSH options of hundreds of endpoints is good style; replay is limited above.
            enforce_alias_anchor_ratio: false,
        },
    }
}

/// Parses one document.
///
/// # Errors
/// The one finding that says why the text is no YAML document.
pub(crate) fn parse(text: &str) -> Result<Tree, Finding> {
    // Positions count characters of the text without its byte order mark; offsets count all bytes.
    let (mark, body) = text.strip_prefix('\u{feff}').map_or((0, text), |body| (3, body));
    match serde_yaml::from_str_with_options::<Spanned<Raw>>(body, parser_options()) {
        Ok(raw) => {
            let mut builder = Builder { body, mark, last_id: 0, findings: Vec::new() };
            let root = builder.node(raw);
            Ok(Tree { root, last_id: builder.last_id, findings: builder.findings })
        }
        Err(error) => Err(syntax::finding(body, mark, &error)),
    }
}

/// What the parser found, before it gets places.
enum Raw {
    Null,
    /// A scalar that the parser gave a type; its text is in the source.
    Typed,
    Text(String),
    Seq(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct RawVisitor;
        impl<'de> Visitor<'de> for RawVisitor {
            type Value = Raw;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("any value")
            }
            fn visit_bool<E>(self, _: bool) -> Result<Raw, E> {
                Ok(Raw::Typed)
            }
            fn visit_i64<E>(self, _: i64) -> Result<Raw, E> {
                Ok(Raw::Typed)
            }
            fn visit_u64<E>(self, _: u64) -> Result<Raw, E> {
                Ok(Raw::Typed)
            }
            fn visit_i128<E>(self, _: i128) -> Result<Raw, E> {
                Ok(Raw::Typed)
            }
            fn visit_u128<E>(self, _: u128) -> Result<Raw, E> {
                Ok(Raw::Typed)
            }
            fn visit_f64<E>(self, _: f64) -> Result<Raw, E> {
                Ok(Raw::Typed)
            }
            fn visit_str<E>(self, v: &str) -> Result<Raw, E> {
                Ok(Raw::Text(v.to_owned()))
            }
            fn visit_string<E>(self, v: String) -> Result<Raw, E> {
                Ok(Raw::Text(v))
            }
            fn visit_unit<E>(self) -> Result<Raw, E> {
                Ok(Raw::Null)
            }
            fn visit_none<E>(self) -> Result<Raw, E> {
                Ok(Raw::Null)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut a: A) -> Result<Raw, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = a.next_element()? {
                    items.push(item);
                }
                Ok(Raw::Seq(items))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut a: A) -> Result<Raw, A::Error> {
                let mut entries = Vec::new();
                while let Some(key) = a.next_key()? {
                    entries.push((key, a.next_value()?));
                }
                Ok(Raw::Map(entries))
            }
        }
        d.deserialize_any(RawVisitor)
    }
}

/// A place of the parser as ours; `mark` is the length of the byte order mark before the body.
pub(super) fn pos(location: &Location, mark: u32) -> Pos {
    let span = location.span();
    Pos {
        offset: u32::try_from(span.byte_offset().unwrap_or(0)).unwrap_or(u32::MAX).saturating_add(mark),
        len: u32::try_from(span.byte_len().unwrap_or(0)).unwrap_or(u32::MAX),
        line: u32::try_from(location.line()).unwrap_or(u32::MAX),
        column: u32::try_from(location.column()).unwrap_or(u32::MAX),
    }
}

/// Turns what the parser found into nodes.
struct Builder<'a> {
    body: &'a str,
    mark: u32,
    last_id: u32,
    findings: Vec<Finding>,
}

impl Builder<'_> {
    fn place<T>(&self, spanned: &Spanned<T>) -> Place {
        Place { at: pos(&spanned.referenced, self.mark), defined: pos(&spanned.defined, self.mark) }
    }

    /// The source text of a place.
    fn source(&self, place: Place) -> &str {
        let start = place.defined.offset.saturating_sub(self.mark) as usize;
        self.body.get(start..start + place.defined.len as usize).unwrap_or("")
    }

    fn error(&mut self, place: Place, message: impl Into<String>) {
        self.findings.push(Finding::new(Severity::Error, place, message));
    }

    fn node(&mut self, raw: Spanned<Raw>) -> Node {
        self.last_id += 1;
        let (id, place) = (self.last_id, self.place(&raw));
        let value = match raw.value {
            Raw::Null => Value::Null,
            Raw::Typed => Value::Scalar { text: self.source(place).to_owned(), plain: true },
            Raw::Text(text) => {
                let source = self.source(place);
                let plain = source == text && !source.starts_with(['"', '\'']);
                Value::Scalar { text, plain }
            }
            Raw::Seq(items) => Value::Seq(items.into_iter().map(|item| self.node(item)).collect()),
            Raw::Map(entries) => self.map(entries),
        };
        Node { id, place, value }
    }

    fn map(&mut self, raw: Vec<(Spanned<String>, Spanned<Raw>)>) -> Value {
        let mut entries: Vec<(Key, Node)> = Vec::with_capacity(raw.len());
        let repeated = repeated(&raw);
        let mut merge = None;
        for (i, (key, value)) in raw.into_iter().enumerate() {
            let place = self.place(&key);
            let text = key.value;
            if let Some(line) = repeated.get(&i) {
                self.error(place, format!("duplicate key `{text}`, first on line {line}"));
                continue;
            }
            if text.is_empty() || matches!(self.source(place), "" | "~" | "null" | "Null" | "NULL") {
                self.error(place, "an empty key");
            }
            let node = self.node(value);
            // A quoted "<<" is a key like any other; its span is longer.
            if text == "<<" && place.defined.len == 2 {
                merge = Some(node);
            } else {
                entries.push((Key { text, place }, node));
            }
        }
        if let Some(node) = merge {
            self.merge(node, &mut entries);
        }
        Value::Map(entries)
    }

    /// The map's own keys win wherever `<<` stands; of several sources the first wins; nothing is merged deeply.
    fn merge(&mut self, node: Node, into: &mut Vec<(Key, Node)>) {
        let mut taken: HashSet<String> = into.iter().map(|(key, _)| key.text.clone()).collect();
        let sources = match node.value {
            Value::Seq(sources) => sources,
            value => vec![Node { value, ..node }],
        };
        for source in sources {
            let Value::Map(entries) = source.value else {
                self.error(source.place, "`<<` wants a map or a list of maps");
                continue;
            };
            for (key, value) in entries {
                if taken.insert(key.text.clone()) {
                    into.push((key, value));
                }
            }
        }
    }
}

/// The keys that stood before, by their index, and the lines where they stood first.
fn repeated(raw: &[(Spanned<String>, Spanned<Raw>)]) -> HashMap<usize, u32> {
    let key = |i: usize| raw[i].0.value.as_str();
    let mut order: Vec<usize> = (0..raw.len()).collect();
    order.sort_by(|a, b| key(*a).cmp(key(*b)));
    let mut repeated = HashMap::new();
    for same in order.chunk_by(|a, b| key(*a) == key(*b)) {
        let first = pos(&raw[same[0]].0.defined, 0).line;
        repeated.extend(same[1..].iter().map(|i| (*i, first)));
    }
    repeated
}
