//! What is wrong with a text, and where: positions, findings, and values that remember where they stood.
//!
//! A leaf: it knows no plan, no YAML and no file. Lines and columns count from 1, columns count characters.

use std::{
    borrow::{Borrow, Cow},
    fmt,
    hash::{Hash, Hasher},
    marker::PhantomData,
};

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{SeqAccess, Visitor},
};

/// A stretch of the source text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Pos {
    /// Bytes from the start of the text.
    pub offset: u32,
    /// Bytes that it covers; 0 where only the start is known.
    pub len: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

/// Where a value was used and where it was written: the two differ behind an alias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Place {
    /// Where it stands in the document.
    pub at: Pos,
    /// Where its text is.
    pub defined: Pos,
}

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The plan cannot run.
    Error,
    /// The plan can run; somebody should look.
    Warning,
    /// A fact that the reader may want, such as an open question.
    Note,
}

/// One thing to say about a text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Where the text that is meant stands.
    pub pos: Pos,
    /// Where it is used, when that is elsewhere (an alias).
    pub used_at: Option<Pos>,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong and what to do, in one sentence.
    pub message: String,
}

/// A value with the place where it stood.
///
/// Equality, order and hash look at the value alone. Written out it is the value; read by the plan reader it
/// carries its place, read by any other format the place is zero.
#[derive(Debug, Clone, Default)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Where it stood.
    pub place: Place,
}

impl<T> At<T> {
    /// A value that stood nowhere, for defaults and tests.
    pub fn nowhere(value: T) -> Self {
        Self { value, place: Place::default() }
    }
}

impl<T> std::ops::Deref for At<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for At<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for At<T> {}

impl<T: PartialOrd> PartialOrd for At<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        self.value.partial_cmp(&other.value)
    }
}

impl<T: Ord> Ord for At<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.value.cmp(&other.value)
    }
}

impl<T: Hash> Hash for At<T> {
    fn hash<H: Hasher>(&self, h: &mut H) {
        self.value.hash(h);
    }
}

impl Borrow<str> for At<String> {
    fn borrow(&self) -> &str {
        &self.value
    }
}

impl<T: fmt::Display> fmt::Display for At<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

impl<T: Serialize> Serialize for At<T> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(s)
    }
}

/// The name under which [`At`] asks a deserializer for a place. One that knows it answers with a sequence of the
/// eight numbers of a [`Place`] and then the value; all others hand on the value.
pub const AT: &str = "$at";

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct AtVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for AtVisitor<T> {
            type Value = At<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value")
            }
            fn visit_newtype_struct<D: Deserializer<'de>>(self, d: D) -> Result<At<T>, D::Error> {
                T::deserialize(d).map(At::nowhere)
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut a: A) -> Result<At<T>, A::Error> {
                let mut w = [0_u32; 8];
                for x in &mut w {
                    *x = a.next_element()?.unwrap_or_default();
                }
                let pos = |i: usize| Pos { offset: w[i], len: w[i + 1], line: w[i + 2], column: w[i + 3] };
                let value = a.next_element()?.ok_or_else(|| serde::de::Error::custom("no value"))?;
                Ok(At { value, place: Place { at: pos(0), defined: pos(4) } })
            }
        }
        d.deserialize_newtype_struct(AT, AtVisitor(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        T::json_schema(g)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_does_not_reach_other_formats() {
        let at: At<String> = serde_json::from_str("\"x\"").unwrap();
        assert_eq!((at.as_str(), at.place), ("x", Place::default()));
        assert_eq!(serde_json::to_string(&at).unwrap(), "\"x\"");
    }
}
