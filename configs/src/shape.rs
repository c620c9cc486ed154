//! The type of each key, derived from the schema's structs themselves.
//!
//! Serde's derived `Deserialize` passes the names of a struct's fields to a deserializer, and each
//! field requests its type. [`Probe`] is a deserializer that only records the requests: it returns
//! dummy values. So the known keys always match the structs, and an error is reported with the key
//! and the expected type before serde is used.

use std::fmt;

use serde::de::value::{Error, StrDeserializer};
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};

/// The type of a key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Shape {
    /// A non-negative integer.
    Count,
    /// A finite number with at most this absolute value.
    Number { max: f64 },
    /// `true` or `false`.
    Bool,
    /// Any string.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list, of this length if given.
    List { item: Box<Shape>, len: Option<usize> },
    /// A table with arbitrary keys.
    Map(Box<Shape>),
    /// A value that may be absent.
    Optional(Box<Shape>),
    /// A table with these keys, in the order of the struct.
    Table(Vec<(&'static str, Shape)>),
}

impl Shape {
    /// The shape of a whole config file.
    pub(crate) fn of<C: DeserializeOwned>() -> Self {
        let mut shape = Shape::Bool;
        // This fails if a field has a type that the probe does not support: a bug that every test
        // with a config detects.
        let probed = C::deserialize(Probe { out: &mut shape });
        let fault = probed.err();
        assert!(fault.is_none(), "a config field has a type that Shape lacks: {fault:?}");
        shape
    }

    /// The fields of a table or of an optional table.
    pub(crate) fn fields(&self) -> Option<&[(&'static str, Shape)]> {
        match self {
            Shape::Table(fields) => Some(fields),
            Shape::Optional(inner) => inner.fields(),
            _ => None,
        }
    }
}

impl Shape {
    /// The shape of a dotted key.
    pub(crate) fn at(&self, key: &str) -> Option<&Self> {
        key.split('.').try_fold(self, |shape, part| {
            shape.fields()?.iter().find(|(name, _)| *name == part).map(|(_, shape)| shape)
        })
    }
}

/// `prefix.name`, or `name` at the top.
pub(crate) fn join(prefix: &str, name: &str) -> String {
    if prefix.is_empty() { name.to_string() } else { format!("{prefix}.{name}") }
}

/// The names of a table's keys, comma separated.
pub(crate) fn names(fields: &[(&str, Shape)]) -> String {
    let names: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shape::Count => write!(f, "an integer, at least 0"),
            Shape::Number { .. } => write!(f, "a number"),
            Shape::Bool => write!(f, "true or false"),
            Shape::Text => write!(f, "a quoted string"),
            Shape::Word([word]) => write!(f, "\"{word}\""),
            Shape::Word(words) => write!(f, "one of \"{}\"", words.join("\", \"")),
            Shape::List { len, item } => {
                let what = match &**item {
                    Shape::Count => "integers, at least 0",
                    Shape::Number { .. } => "numbers",
                    Shape::Word(_) => &format!("words, each {item}"),
                    Shape::Text => "quoted strings",
                    Shape::Table(fields) => &format!("tables of {}", names(fields)),
                    _ => "values",
                };
                match len {
                    Some(len) => write!(f, "a list of {len} {what}"),
                    None => write!(f, "a list of {what}"),
                }
            }
            Shape::Map(item) => write!(f, "a table, where each value is {item}"),
            Shape::Optional(inner) => write!(f, "{inner}, or \"none\""),
            Shape::Table(_) => write!(f, "a table"),
        }
    }
}

/// A deserializer that records the requested types.
struct Probe<'a> {
    out: &'a mut Shape,
}

impl<'de> Deserializer<'de> for Probe<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(de::Error::custom("a type that does not request a specific kind of value"))
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.out = Shape::Bool;
        visitor.visit_bool(false)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.out = Shape::Count;
        visitor.visit_u64(0)
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.out = Shape::Number { max: f64::from(f32::MAX) };
        visitor.visit_f32(0.0)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.out = Shape::Number { max: f64::MAX };
        visitor.visit_f64(0.0)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        *self.out = Shape::Text;
        visitor.visit_str("")
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut inner = Shape::Bool;
        let value = visitor.visit_some(Probe { out: &mut inner })?;
        *self.out = Shape::Optional(Box::new(inner));
        Ok(value)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut item = Shape::Bool;
        let value = visitor.visit_seq(Items { item: &mut item, left: 1 })?;
        *self.out = Shape::List { item: Box::new(item), len: None };
        Ok(value)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, v: V) -> Result<V::Value, Error> {
        let mut item = Shape::Bool;
        let value = v.visit_seq(Items { item: &mut item, left: len })?;
        *self.out = Shape::List { item: Box::new(item), len: Some(len) };
        Ok(value)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let mut fields = Vec::new();
        let value = visitor.visit_map(Fields { names: ["any"].iter(), fields: &mut fields })?;
        let item = fields.pop().map_or(Shape::Bool, |(_, shape)| shape);
        *self.out = Shape::Map(Box::new(item));
        Ok(value)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let mut fields = Vec::with_capacity(names.len());
        let value = visitor.visit_map(Fields { names: names.iter(), fields: &mut fields })?;
        *self.out = Shape::Table(fields);
        Ok(value)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        *self.out = Shape::Word(words);
        let first = words.first().copied().unwrap_or_default();
        let word: StrDeserializer<'_, Error> = first.into_deserializer();
        visitor.visit_enum(word)
    }

    serde::forward_to_deserialize_any! {
        i8 i16 i32 i64 u8 u16 u32 char str bytes byte_buf unit unit_struct newtype_struct
        tuple_struct identifier ignored_any
    }
}

/// The items of a list, all with the same shape.
struct Items<'a> {
    item: &'a mut Shape,
    left: usize,
}

impl<'de> de::SeqAccess<'de> for Items<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        seed.deserialize(Probe { out: self.item }).map(Some)
    }
}

/// Visits each field of a struct once.
struct Fields<'a> {
    names: std::slice::Iter<'static, &'static str>,
    fields: &'a mut Vec<(&'static str, Shape)>,
}

impl<'de> de::MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some(&name) = self.names.next() else { return Ok(None) };
        self.fields.push((name, Shape::Bool));
        let name: StrDeserializer<'_, Error> = name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        match self.fields.last_mut() {
            Some((_, shape)) => seed.deserialize(Probe { out: shape }),
            None => Err(de::Error::custom("a value before its key")),
        }
    }
}
