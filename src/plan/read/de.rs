//! The deserializer over one node of the tree.
//!
//! The field that asks decides what a scalar is; the node only has text. The innermost node that knows of a fault
//! reports it, everything around it stays silent.

use std::{borrow::Cow, collections::HashSet, fmt, str::FromStr};

use serde::de::{self, Deserializer, Visitor};

use super::{
    Context, Filled, Unset,
    access::{Choice, Entries, Items, Placed},
};
use crate::{
    findings::{AT, Finding, Place, Severity},
    plan::{
        shape::Shapes,
        suggest,
        text_or::EITHER,
        tree::{Key, Node, Value},
        variables,
    },
    platform::RAW,
};

/// What serde carries upwards after a fault.
#[derive(Debug)]
pub(super) struct Failure {
    message: String,
    help: Option<String>,
    /// The key whose absence it is.
    missing: Option<&'static str>,
    /// A finding says it already.
    reported: bool,
    /// The value is a stand-in for an unset variable, and there is another one to try.
    pub(super) try_another: bool,
    /// Something was marked, so that the next pass gets further.
    pub(super) progress: bool,
}

impl Failure {
    fn silent() -> Self {
        Self { reported: true, ..de::Error::custom("said before") }
    }

    /// Reports it, if nobody did.
    pub(super) fn reported_at(mut self, context: &Context<'_>, place: Place) -> Self {
        if !self.reported {
            let mut finding = Finding::new(Severity::Error, place, std::mem::take(&mut self.message));
            finding.help = self.help.take();
            context.report(finding);
            self.reported = true;
        }
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl de::Error for Failure {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self {
            message: message.to_string(),
            help: None,
            missing: None,
            reported: false,
            try_another: false,
            progress: false,
        }
    }
    fn missing_field(field: &'static str) -> Self {
        Self { missing: Some(field), ..Self::custom(format_args!("missing key `{field}`")) }
    }
    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let help = suggest::nearest(variant, expected.iter().copied()).map_or_else(
            || format!("write one of {}", expected.join(", ")),
            |near| format!("did you mean `{near}`?"),
        );
        Self { help: Some(help), ..Self::custom(format_args!("unknown value `{variant}`")) }
    }
    fn invalid_type(found: de::Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        Self::custom(format_args!("expected {expected}, found {found}"))
    }
}

/// A scalar as the field gets it.
enum Text<'a> {
    /// As the plan writes it; `plain` without quotes.
    Written { text: &'a str, plain: bool },
    /// With variables filled in.
    Filled(String),
    /// Unknown: a variable in it is not set, or it has a finding already.
    Unresolved,
}

/// A node, as serde sees it.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) node: &'a Node,
    pub(super) context: &'a Context<'a>,
    /// Inside a command: `${` is the shell's.
    raw: bool,
    /// The whole document: `x-…` keys are free.
    root: bool,
}

impl<'a> Reader<'a> {
    pub(super) fn new(root: &'a Node, context: &'a Context<'a>) -> Self {
        Self { node: root, context, raw: false, root: true }
    }

    /// The reader of a node inside this one.
    pub(super) fn child(self, node: &'a Node) -> Self {
        Self { node, root: false, ..self }
    }

    pub(super) fn fail<T>(self, message: impl fmt::Display) -> Result<T, Failure> {
        Err(self.note(de::Error::custom(message)))
    }

    /// Reports a failure at this node, if nothing inside it did.
    pub(super) fn note(self, mut failure: Failure) -> Failure {
        if failure.reported {
            return failure;
        }
        let text = match &self.node.value {
            Value::Scalar { text, .. } => text.as_str(),
            Value::Null => "",
            Value::Seq(_) | Value::Map(_) => return failure.reported_at(self.context, self.node.place),
        };
        if self.context.is_unresolved(self.node.place) {
            failure.try_another = self.next_stand_in();
            // Nothing fits: the value is left out. That is said, unless the value was faulty from the start.
            failure.reported = failure.try_another || self.context.has_error_at(self.node.place);
            failure.message = format!("a variable cannot stand here: `{text}`");
            return failure.reported_at(self.context, self.node.place);
        }
        if !self.raw && self.context.is_filled(self.node.place) {
            // Nothing of the value may show, and messages quote parts of it.
            failure.message = format!("the value that `{text}` stands for does not fit here");
            failure.help = None;
        }
        failure = failure.reported_at(self.context, self.node.place);
        // From now on something else stands in for it, so that what surrounds it is read.
        self.context.unresolved.borrow_mut().insert(self.node.place.defined);
        failure.try_another = true;
        failure
    }

    /// What the node is, for messages.
    fn found(self) -> Cow<'static, str> {
        match &self.node.value {
            Value::Null => "no value".into(),
            Value::Scalar { text, plain: true } => format!("`{text}`").into(),
            Value::Scalar { text, .. } => format!("the text {text:?}").into(),
            Value::Seq(_) => "a list".into(),
            Value::Map(_) => "a map".into(),
        }
    }

    fn expected<T>(self, what: impl fmt::Display) -> Result<T, Failure> {
        if matches!(self.node.value, Value::Null) {
            let mut failure: Failure = de::Error::custom("there is no value");
            failure.help = Some("give one (`{}` for no options), or drop the key".to_owned());
            return Err(self.note(failure));
        }
        self.fail(format_args!("expected {what}, found {}", self.found()))
    }

    /// The node's text, with variables filled in.
    fn text(self, what: &str) -> Result<Text<'a>, Failure> {
        let (text, plain) = match &self.node.value {
            Value::Scalar { .. } | Value::Null if self.context.is_unresolved(self.node.place) => {
                return Ok(Text::Unresolved);
            }
            Value::Scalar { text, plain } => (text, plain),
            _ => return self.expected(what),
        };
        if self.raw || !text.contains("${") {
            return Ok(Text::Written { text, plain: *plain });
        }
        match variables::fill(text, self.context.env) {
            variables::Filled::Text(value) => {
                let filled = Filled { value: value.clone(), written: text.clone() };
                self.context.filled.borrow_mut().insert(self.node.place.defined, filled);
                Ok(Text::Filled(value))
            }
            variables::Filled::Unset(why) if self.context.unset == Unset::Warning => {
                self.context.warning(self.node.place, why);
                self.context.unresolved.borrow_mut().insert(self.node.place.defined);
                Ok(Text::Unresolved)
            }
            variables::Filled::Unset(why) | variables::Filled::Wrong(why) => self.fail(why),
        }
    }

    /// Which stand-in for the unknown value is to be tried, of so many.
    fn stand_in(self, of: usize) -> usize {
        let mut all = self.context.stand_in.borrow_mut();
        let (now, most) = all.entry(self.node.id).or_insert((0, of));
        *most = of;
        (*now).min(of.saturating_sub(1))
    }

    /// Goes on to the next stand-in; whether there is one.
    fn next_stand_in(self) -> bool {
        let mut all = self.context.stand_in.borrow_mut();
        let Some((now, most)) = all.get_mut(&self.node.id) else { return false };
        *now += 1;
        now < most
    }

    /// The text for a value that must stand without quotes; an unknown one is `1`.
    fn bare(self, what: &str) -> Result<Cow<'a, str>, Failure> {
        match self.text(what)? {
            Text::Written { text, plain: true } => Ok(text.into()),
            Text::Written { text, .. } => {
                let mut failure: Failure =
                    de::Error::custom(format_args!("expected {what}, found the text {text:?}"));
                failure.help = Some("drop the quotes".to_owned());
                Err(self.note(failure))
            }
            Text::Filled(text) => Ok(text.into()),
            Text::Unresolved => Ok("1".into()),
        }
    }

    /// A whole number: decimal digits, nothing else.
    fn whole<T: FromStr>(self) -> Result<T, Failure> {
        let text = self.bare("a whole number")?;
        if is_octal_like(&text) {
            return self.fail(format_args!("`{text}` is ambiguous (octal?): write it without leading zeros"));
        }
        if text.bytes().all(|b| b.is_ascii_digit() || b == b'_') && text.contains('_') {
            return self.fail(format_args!("`{text}` has `_` in it: write digits alone"));
        }
        let digits = text.strip_prefix('-').unwrap_or(&text);
        match text.parse() {
            Ok(number) if digits.bytes().all(|b| b.is_ascii_digit()) => Ok(number),
            _ => self.fail(format_args!("expected a whole number that fits, found `{text}`")),
        }
    }

    fn number(self) -> Result<f64, Failure> {
        let text = self.bare("a number")?;
        if is_octal_like(&text) {
            return self.fail(format_args!("`{text}` is ambiguous (octal?): write it without leading zeros"));
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() && looks_like_a_number(&text) => Ok(number),
            _ => self.fail(format_args!("expected a finite number, found `{text}`")),
        }
    }

    /// Remembers what a map lost, once everything inside was read.
    fn take_stock(self) {
        let lost = || self.inner().any(|node| is_lost(self.context, node));
        if !self.context.poisoned.borrow().is_empty() && lost() {
            self.context.incomplete.borrow_mut().insert(self.node.place);
        }
        let vague = || self.inner().any(|node| is_vague(self.context, node));
        if !self.context.unresolved.borrow().is_empty() && vague() {
            self.context.vague.borrow_mut().insert(self.node.place);
        }
    }

    fn inner(self) -> impl Iterator<Item = &'a Node> {
        self.node.entries().iter().map(|(_, node)| node)
    }

    /// Keys that are no field: each is said, with what it may have been meant as.
    fn unknown_keys(self, name: &str, fields: &'static [&'static str], entries: &'a [(Key, Node)]) {
        // Fields that nobody gives, in whatever spelling; made for the first unknown key.
        let mut free: Option<Vec<&'static str>> = None;
        for (key, node) in entries {
            let text = key.text.as_str();
            // An empty key has its own finding.
            let known = fields.contains(&text) || text.is_empty() || (self.root && text.starts_with("x-"));
            if known || self.context.meant.borrow().contains_key(&node.id) {
                continue;
            }
            if self.context.is_full() {
                self.context.incomplete.borrow_mut().insert(self.node.place);
                return;
            }
            if let Some((message, help)) = self.context.shapes.misplaced(name, text, entries) {
                self.context.error_with(key.place, message, Some(help));
                continue;
            }
            let free = free.get_or_insert_with(|| {
                let given: HashSet<&str> =
                    entries.iter().map(|(k, n)| self.context.key_of(&k.text, n)).collect();
                fields.iter().copied().filter(|field| !given.contains(field)).collect()
            });
            let near = suggest::nearest(text, free.iter().copied());
            let meant = near.and_then(|near| free.iter().position(|field| *field == near));
            let help = if let Some(index) = meant {
                let field = free.remove(index);
                self.context.meant.borrow_mut().insert(node.id, field);
                Some(format!("did you mean `{field}`?"))
            } else {
                self.context.incomplete.borrow_mut().insert(self.node.place);
                let akin = suggest::akin(text, free.iter().copied());
                let akin = akin.map(|field| format!("did you mean `{field}`?"));
                akin.or_else(|| self.context.shapes.known(name, fields))
            };
            let what = Shapes::noun(name, near, entries);
            self.context.error_with(key.place, format!("unknown {what} `{text}`"), help);
        }
    }
}

/// Whether the node, or an item of the list that it is, was left out.
fn is_lost(context: &Context<'_>, node: &Node) -> bool {
    match &node.value {
        _ if context.is_poisoned(node) => true,
        Value::Seq(items) => items.iter().any(|item| is_lost(context, item)),
        _ => false,
    }
}

/// Whether the node, or an item of the list that it is, has a variable that is not set.
fn is_vague(context: &Context<'_>, node: &Node) -> bool {
    match &node.value {
        Value::Scalar { .. } => context.is_unresolved(node.place),
        Value::Seq(items) => items.iter().any(|item| is_vague(context, item)),
        _ => false,
    }
}

fn is_octal_like(text: &str) -> bool {
    let digits = text.trim_start_matches(['-', '+']);
    digits.len() > 1 && digits.starts_with('0') && digits.bytes().all(|b| b.is_ascii_digit())
}

/// Words that some versions of YAML read as truth values.
fn is_ambiguous_word(text: &str) -> bool {
    let word = text.to_ascii_lowercase();
    ["yes", "no", "on", "off", "y", "n"].contains(&word.as_str())
        || ["true", "false"].contains(&word.as_str()) && word != text
}

/// Hexadecimal and other forms of numbers that YAML knows and a plan does not.
fn is_number_of_another_kind(text: &str) -> bool {
    let body = text.trim_start_matches(['-', '+']).to_ascii_lowercase();
    let prefixed = ["0x", "0o", "0b"].iter().any(|prefix| {
        body.strip_prefix(prefix)
            .is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit() || b == b'_'))
    });
    let grouped = body.contains('_')
        && body.starts_with(|c: char| c.is_ascii_digit())
        && body.bytes().all(|b| b.is_ascii_digit() || b == b'_' || b == b'.');
    prefixed || grouped || [".nan", ".inf"].contains(&body.as_str())
}

fn looks_like_a_number(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c))
        && text.bytes().all(|b| b.is_ascii_digit() || b"+-.eE".contains(&b))
}

/// The example in words such as `a duration such as 90s, 20m or 3d`.
fn example<'v, V: Visitor<'v>>(visitor: &V) -> Option<String> {
    struct Expectation<'r, V>(&'r V);
    impl<'v, V: Visitor<'v>> fmt::Display for Expectation<'_, V> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            self.0.expecting(f)
        }
    }
    let words = Expectation(visitor).to_string();
    let (_, rest) = words.split_once("such as ")?;
    let end = [", ", " or "].iter().filter_map(|stop| rest.find(stop)).min().unwrap_or(rest.len());
    Some(rest[..end].trim_matches('"').to_owned())
}

macro_rules! whole_numbers {
    ($($method:ident $visit:ident),*) => { $(
        fn $method<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
            visitor.$visit(self.whole()?).map_err(|e| self.note(e))
        }
    )* };
}

impl<'a> Deserializer<'a> for Reader<'a> {
    type Error = Failure;

    whole_numbers!(
        deserialize_i8 visit_i8, deserialize_i16 visit_i16, deserialize_i32 visit_i32, deserialize_i64 visit_i64,
        deserialize_u8 visit_u8, deserialize_u16 visit_u16, deserialize_u32 visit_u32, deserialize_u64 visit_u64
    );

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        match &self.node.value {
            Value::Seq(_) => return self.deserialize_seq(visitor),
            Value::Map(_) => return self.deserialize_map(visitor),
            Value::Null if !self.context.is_unresolved(self.node.place) => return self.expected("a value"),
            Value::Null | Value::Scalar { .. } => {}
        }
        let text: Cow<'_, str> = match self.text("a value")? {
            Text::Written { text, plain: false } => return visitor.visit_str(text).map_err(|e| self.note(e)),
            Text::Written { text, plain: true } => text.into(),
            Text::Filled(text) => text.into(),
            Text::Unresolved if self.stand_in(2) == 0 => "text".into(),
            Text::Unresolved => "1".into(),
        };
        if is_ambiguous_word(&text) && !self.raw {
            return self
                .fail(format_args!("`{text}` is ambiguous: write true, false or \"{text}\" in quotes"));
        }
        if is_octal_like(&text) && !self.raw {
            return self
                .fail(format_args!("`{text}` is ambiguous (octal?): drop the zero or put it in quotes"));
        }
        if is_number_of_another_kind(&text) {
            return self
                .fail(format_args!("`{text}` may be a number: write decimal digits, or put it in quotes"));
        }
        match (text.as_ref(), text.parse::<i64>(), text.parse::<f64>()) {
            ("true", ..) => visitor.visit_bool(true),
            ("false", ..) => visitor.visit_bool(false),
            (_, Ok(number), _) => visitor.visit_i64(number),
            (_, _, Ok(number)) if looks_like_a_number(&text) && number.is_finite() => {
                visitor.visit_f64(number)
            }
            (text, ..) => visitor.visit_str(text),
        }
        .map_err(|e| self.note(e))
    }

    fn deserialize_bool<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        let text = self.bare("true or false")?;
        match text.as_ref() {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            "1" if self.context.is_unresolved(self.node.place) => visitor.visit_bool(false),
            _ => return self.fail(format_args!("expected true or false, found `{text}`")),
        }
        .map_err(|e| self.note(e))
    }

    fn deserialize_f64<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_f64(self.number()?).map_err(|e| self.note(e))
    }

    fn deserialize_f32<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_f64(visitor)
    }

    /// Quantities ask for this; their words hold an example, which stands in for an unknown value.
    fn deserialize_str<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.text("text")? {
            Text::Written { text, .. } => visitor.visit_str(text),
            Text::Filled(text) => visitor.visit_string(text),
            Text::Unresolved => {
                let example = example(&visitor).unwrap_or_default();
                visitor.visit_string(example)
            }
        }
        .map_err(|e| self.note(e))
    }

    /// Free text asks for this, and types that are parsed from it: an unknown value stays as written unless that
    /// does not parse.
    fn deserialize_string<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        match self.text("text")? {
            Text::Written { text, .. } => visitor.visit_str(text),
            Text::Filled(text) => visitor.visit_string(text),
            Text::Unresolved => match (self.stand_in(3), &self.node.value) {
                (0, Value::Scalar { text, .. }) => visitor.visit_str(text),
                (0, _) => visitor.visit_str("unknown"),
                (1, _) => visitor.visit_str("CNY"),
                _ => visitor.visit_str("stage.metric"),
            },
        }
        .map_err(|e| self.note(e))
    }

    fn deserialize_option<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        if matches!(self.node.value, Value::Null) {
            return self.expected("a value");
        }
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        match (name, &self.node.value) {
            (AT, _) => visitor.visit_seq(Placed::new(self.node.place, self)),
            (RAW, _) => visitor.visit_newtype_struct(Self { raw: true, ..self }),
            (EITHER, Value::Null | Value::Scalar { .. }) => return self.deserialize_string(visitor),
            (EITHER, _) => visitor.visit_some(self),
            _ => visitor.visit_newtype_struct(self),
        }
        .map_err(|e| self.note(e))
    }

    fn deserialize_seq<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        let Value::Seq(items) = &self.node.value else { return self.expected("a list") };
        visitor.visit_seq(Items { items: items.iter(), parent: self }).map_err(|e| self.note(e))
    }

    fn deserialize_tuple<V: Visitor<'a>>(self, _: usize, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        let Value::Map(entries) = &self.node.value else { return self.expected("a map") };
        let entries = Entries { pairs: entries.iter(), value: None, fields: None, parent: self };
        let read = visitor.visit_map(entries).map_err(|e| self.note(e));
        self.take_stock();
        read
    }

    fn deserialize_struct<V: Visitor<'a>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let Value::Map(entries) = &self.node.value else {
            return self.expected(format_args!("a map with {}", fields.join(", ")));
        };
        self.unknown_keys(name, fields, entries);
        let has =
            |field: &str| entries.iter().find(|(key, node)| self.context.key_of(&key.text, node) == field);
        // A block map begins at its first key but covers nothing; point at that key.
        let first = entries.first().filter(|_| self.node.place.defined.len == 0).map(|(key, _)| key.place);
        let place = first.unwrap_or(self.node.place);
        let required = self.context.shape(name).map_or(&[][..], |shape| &shape.required);
        let missing: Vec<String> =
            required.iter().filter(|field| has(field).is_none()).map(|field| format!("`{field}`")).collect();
        match missing.as_slice() {
            [] => {}
            [one] => self.context.error(place, format!("missing key {one}")),
            more => self.context.error(place, format!("missing keys {}", more.join(", "))),
        }

        let reading = Entries { pairs: entries.iter(), value: None, fields: Some(fields), parent: self };
        let read = visitor.visit_map(reading).map_err(|failure| match failure.missing {
            // Either its value was left out, or it was said just now.
            Some(field) if has(field).is_some() || required.iter().any(|r| r == field) => Failure::silent(),
            _ => failure.reported_at(self.context, place),
        });
        self.take_stock();
        read
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let words = || variants.join(", ");
        match &self.node.value {
            Value::Map(entries) => {
                let [(key, node)] = entries.as_slice() else {
                    return self.expected(format_args!("exactly one of {} in this map", words()));
                };
                let choice = Choice { word: &key.text, options: Some(self.child(node)), reader: self };
                let read = visitor.visit_enum(choice).map_err(|e| e.reported_at(self.context, key.place));
                self.take_stock();
                read
            }
            Value::Scalar { .. } | Value::Null => {
                let what = format!("one of {}", words());
                let word: Cow<'_, str> = match self.text(&what)? {
                    Text::Written { text, .. } => text.into(),
                    Text::Filled(text) => text.into(),
                    Text::Unresolved => {
                        variants.get(self.stand_in(variants.len())).copied().unwrap_or("").into()
                    }
                };
                let choice = Choice { word: &word, options: None, reader: self };
                visitor.visit_enum(choice).map_err(|e| self.note(e))
            }
            Value::Seq(_) => self.expected(format_args!("one of {}", words())),
        }
    }

    fn deserialize_ignored_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    serde::forward_to_deserialize_any! {
        <W: Visitor<'a>>
        i128 u128 char bytes byte_buf unit unit_struct tuple_struct identifier
    }
}
