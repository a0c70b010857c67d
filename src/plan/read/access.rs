//! Lists, maps and the three kinds of keys as serde asks for them.
//!
//! A value that was found faulty before is passed over; one that fails now is marked here, exactly once.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::{
    Context,
    de::{Failure, Reader},
};
use crate::{
    findings::{AT, Place},
    plan::tree::{Key, Node},
};

impl<'a> Reader<'a> {
    /// Reads a value inside a list or a map.
    fn read<T: DeserializeSeed<'a>>(self, seed: T) -> Result<T::Value, Failure> {
        // A type that is parsed from text fails after this node has handed the text out.
        guard(self.context, self.node, seed.deserialize(self).map_err(|failure| self.note(failure)))
    }
}

/// Marks the value that failed: it is left out of the next pass, or gets another stand-in.
fn guard<T>(context: &Context<'_>, node: &Node, result: Result<T, Failure>) -> Result<T, Failure> {
    result.map_err(|mut failure| {
        if !failure.progress {
            if !failure.try_another {
                context.poisoned.borrow_mut().insert(node.id);
            }
            failure.progress = true;
        }
        failure
    })
}

/// The items of a list.
pub(super) struct Items<'a> {
    pub(super) items: std::slice::Iter<'a, Node>,
    pub(super) parent: Reader<'a>,
}

impl<'a> SeqAccess<'a> for Items<'a> {
    type Error = Failure;
    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        let context = self.parent.context;
        let Some(node) = self.items.find(|node| !context.is_poisoned(node)) else { return Ok(None) };
        self.parent.child(node).read(seed).map(Some)
    }
}

/// The entries of a map. With `fields` it is a struct: other keys are passed over, misspelt ones are read as meant.
pub(super) struct Entries<'a> {
    pub(super) pairs: std::slice::Iter<'a, (Key, Node)>,
    pub(super) value: Option<&'a Node>,
    pub(super) fields: Option<&'static [&'static str]>,
    pub(super) parent: Reader<'a>,
}

impl<'a> MapAccess<'a> for Entries<'a> {
    type Error = Failure;

    fn next_key_seed<K: DeserializeSeed<'a>>(&mut self, seed: K) -> Result<Option<K::Value>, Failure> {
        let context = self.parent.context;
        for (key, node) in self.pairs.by_ref() {
            let text = if self.fields.is_some() { context.key_of(&key.text, node) } else { &key.text };
            if self.fields.is_some_and(|fields| !fields.contains(&text)) || context.is_poisoned(node) {
                continue;
            }
            self.value = Some(node);
            let read = seed.deserialize(KeyText { text, place: key.place });
            let read = read.map_err(|failure| failure.reported_at(context, key.place));
            return guard(context, node, read).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<T::Value, Failure> {
        let Some(node) = self.value.take() else {
            return Err(serde::de::Error::custom("a value was asked for before its key"));
        };
        self.parent.child(node).read(seed)
    }
}

/// A key: text, never templated.
#[derive(Clone, Copy)]
struct KeyText<'k> {
    text: &'k str,
    place: Place,
}

impl<'a> Deserializer<'a> for KeyText<'_> {
    type Error = Failure;

    fn deserialize_any<V: Visitor<'a>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_str(self.text)
    }

    fn deserialize_newtype_struct<V: Visitor<'a>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if name == AT {
            visitor.visit_seq(Placed::new(self.place, self))
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_enum<V: Visitor<'a>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_enum(self.text.into_deserializer())
    }

    serde::forward_to_deserialize_any! {
        <W: Visitor<'a>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

/// The answer to [`AT`]: the eight numbers of a place, then the value.
pub(super) struct Placed<D> {
    place: std::array::IntoIter<u32, 8>,
    value: Option<D>,
}

impl<D> Placed<D> {
    pub(super) fn new(Place { at, defined }: Place, value: D) -> Self {
        let numbers = [
            at.offset,
            at.len,
            at.line,
            at.column,
            defined.offset,
            defined.len,
            defined.line,
            defined.column,
        ];
        Self { place: numbers.into_iter(), value: Some(value) }
    }
}

impl<'a, D: Deserializer<'a, Error = Failure>> SeqAccess<'a> for Placed<D> {
    type Error = Failure;
    fn next_element_seed<T: DeserializeSeed<'a>>(&mut self, seed: T) -> Result<Option<T::Value>, Failure> {
        if let Some(number) = self.place.next() {
            return seed.deserialize(number.into_deserializer()).map(Some);
        }
        self.value.take().map(|value| seed.deserialize(value)).transpose()
    }
}

/// A word that chooses a variant, alone or as the only key of a map.
pub(super) struct Choice<'a, 'w> {
    pub(super) word: &'w str,
    pub(super) options: Option<Reader<'a>>,
    pub(super) reader: Reader<'a>,
}

impl<'a> EnumAccess<'a> for Choice<'a, '_> {
    type Error = Failure;
    type Variant = Self;
    fn variant_seed<V: DeserializeSeed<'a>>(self, seed: V) -> Result<(V::Value, Self), Failure> {
        let variant = seed.deserialize(KeyText { text: self.word, place: Place::default() })?;
        Ok((variant, self))
    }
}

impl<'a> Choice<'a, '_> {
    fn options(self) -> Result<Reader<'a>, Failure> {
        let word = self.word;
        let missing = || format!("`{word}` needs options: write `{{ {word}: … }}`");
        self.options.map_or_else(|| self.reader.fail(missing()), Ok)
    }
}

impl<'a> VariantAccess<'a> for Choice<'a, '_> {
    type Error = Failure;

    fn unit_variant(self) -> Result<(), Failure> {
        match self.options {
            None => Ok(()),
            Some(options) => options.fail(format!("`{}` takes no options: write the word alone", self.word)),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'a>>(self, seed: T) -> Result<T::Value, Failure> {
        seed.deserialize(self.options()?)
    }

    fn tuple_variant<V: Visitor<'a>>(self, len: usize, visitor: V) -> Result<V::Value, Failure> {
        self.options()?.deserialize_tuple(len, visitor)
    }

    fn struct_variant<V: Visitor<'a>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.options()?.deserialize_struct("", fields, visitor)
    }
}
