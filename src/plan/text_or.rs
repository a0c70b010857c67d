//! Values that a plan may write short, as text, or in full: `at: main` or `at: [main, spot]`.
//!
//! Serde's `untagged` would lose the place of everything inside, so the choice is made here, by hand.

use std::{borrow::Cow, fmt, marker::PhantomData};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{
        Error, MapAccess, SeqAccess, Visitor,
        value::{MapAccessDeserializer, SeqAccessDeserializer},
    },
};

use crate::{findings::At, platform::Name};

/// The name under which [`TextOr`] asks a deserializer to choose. The plan reader answers with text for a scalar and
/// hands itself on for everything else, so that what is inside is read as always.
pub const EITHER: &str = "$either";

/// Text, or something else.
#[derive(Debug, Clone, PartialEq)]
pub enum TextOr<T> {
    /// The short form.
    Text(String),
    /// The full form.
    Other(T),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = TextOr<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("text, a list or a map")
            }
            fn visit_some<D: Deserializer<'de>>(self, d: D) -> Result<TextOr<T>, D::Error> {
                T::deserialize(d).map(TextOr::Other)
            }
            fn visit_newtype_struct<D: Deserializer<'de>>(self, d: D) -> Result<TextOr<T>, D::Error> {
                d.deserialize_any(self)
            }
            fn visit_str<E: Error>(self, s: &str) -> Result<TextOr<T>, E> {
                Ok(TextOr::Text(s.to_owned()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, a: A) -> Result<TextOr<T>, A::Error> {
                T::deserialize(SeqAccessDeserializer::new(a)).map(TextOr::Other)
            }
            fn visit_map<A: MapAccess<'de>>(self, a: A) -> Result<TextOr<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(a)).map(TextOr::Other)
            }
        }
        d.deserialize_newtype_struct(EITHER, Either(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for TextOr<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("TextOr{}", T::schema_name()).into()
    }
    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        let other = g.subschema_for::<T>();
        json_schema!({ "anyOf": [{ "type": "string" }, other] })
    }
}

/// One name, or a list of names.
#[derive(Debug, Clone, PartialEq)]
pub struct OneOrMany(Vec<Name>);

impl OneOrMany {
    /// The names in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Name> {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a OneOrMany {
    type Item = &'a Name;
    type IntoIter = std::slice::Iter<'a, Name>;
    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        let At { value, place } = At::<TextOr<Vec<Name>>>::deserialize(d)?;
        Ok(Self(match value {
            TextOr::Text(value) => vec![At { value, place }],
            TextOr::Other(names) => names,
        }))
    }
}

impl JsonSchema for OneOrMany {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        "OneOrMany".into()
    }
    fn json_schema(g: &mut SchemaGenerator) -> Schema {
        TextOr::<Vec<Name>>::json_schema(g)
    }
}
