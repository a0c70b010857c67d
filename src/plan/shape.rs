//! What the plan's types look like from outside, taken from their own schema: fields and which of them must be there.
//!
//! Asked by type name, so the names of all types in a plan are unique; a test holds that.

use std::{collections::HashMap, sync::OnceLock};

use serde_json::Value;

use super::{
    model::Plan,
    suggest,
    tree::{Key, Node},
};
use crate::{
    score::rubric::Rubric,
    stage::{KINDS, Kind},
};

/// One type.
#[derive(Debug, Default)]
pub(crate) struct Shape {
    /// Keys that must be there.
    pub(crate) required: Vec<String>,
    /// All keys.
    pub(crate) fields: Vec<String>,
}

/// All types of plans and rubrics, by name.
#[derive(Debug)]
pub(crate) struct Shapes(HashMap<String, Shape>);

impl Shapes {
    /// The shapes; made at the first call.
    pub(crate) fn get() -> &'static Self {
        static SHAPES: OnceLock<Shapes> = OnceLock::new();
        SHAPES.get_or_init(|| {
            let mut shapes = HashMap::new();
            for (name, schema) in
                [("Plan", schemars::schema_for!(Plan)), ("Rubric", schemars::schema_for!(Rubric))]
            {
                let schema = schema.to_value();
                shapes.insert(name.to_owned(), shape(&schema));
                for (name, schema) in schema["$defs"].as_object().into_iter().flatten() {
                    shapes.insert(name.clone(), shape(schema));
                }
            }
            Self(shapes)
        })
    }

    /// The shape of a type.
    pub(crate) fn of(&self, name: &str) -> Option<&Shape> {
        self.0.get(name)
    }

    /// Keys of a stage entry that are no stage kind.
    pub(crate) fn common(&self) -> impl Iterator<Item = &str> {
        self.fields("Entry").filter(|field| Kind::named(field).is_none())
    }

    fn fields(&self, name: &str) -> impl Iterator<Item = &str> {
        self.of(name).into_iter().flat_map(|shape| shape.fields.iter().map(String::as_str))
    }

    /// What to say of a key that is right elsewhere: an option beside the stage kind, a common key among options.
    pub(crate) fn misplaced(
        &self,
        name: &str,
        key: &str,
        entries: &[(Key, Node)],
    ) -> Option<(String, String)> {
        if let Some(kind) = KINDS.iter().find(|kind| kind.options == name) {
            let own: Vec<&str> = self.fields(name).collect();
            if suggest::nearest(key, own).is_some() {
                return None;
            }
            let common = suggest::nearest(key, self.common())?;
            let what = if common == key { "it" } else { &format!("did you mean `{common}`? It") };
            let message = format!("`{key}` is no option of `{}`", kind.name);
            return Some((message, format!("{what} belongs beside the key `{}`, not under it", kind.name)));
        }
        if name != "Entry" {
            return None;
        }
        let kind = entries.iter().find_map(|(k, _)| Kind::named(&k.text))?;
        self.fields(kind.options).any(|option| option == key).then(|| {
            let message = format!("`{key}` is no key of a stage entry");
            (message, format!("it is an option of `{0}`: put it under the key `{0}`", kind.name))
        })
    }

    /// What an unknown key was meant to be: a stage kind, where an entry has none and nothing else is near.
    pub(crate) fn noun(name: &str, near: Option<&str>, entries: &[(Key, Node)]) -> &'static str {
        let has_kind = entries.iter().any(|(key, _)| Kind::named(&key.text).is_some());
        let may_be_one = near.is_none_or(|near| Kind::named(near).is_some());
        if name == "Entry" && !has_kind && may_be_one { "stage kind" } else { "key" }
    }

    /// What to say of a key that resembles nothing: the keys there are.
    pub(crate) fn known(&self, name: &str, fields: &[&str]) -> Option<String> {
        if name == "Entry" {
            let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
            let common: Vec<&str> = self.common().collect();
            return Some(format!("stage kinds are {}; all take {}", kinds.join(", "), common.join(", ")));
        }
        (!fields.is_empty()).then(|| format!("known here: {}", fields.join(", ")))
    }
}

fn shape(schema: &Value) -> Shape {
    let required = schema["required"].as_array().into_iter().flatten();
    let fields = schema["properties"].as_object().into_iter().flatten();
    Shape {
        required: required.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
        fields: fields.map(|(name, _)| name.clone()).collect(),
    }
}
