//! Texts as JSON and YAML hold them: one, a list, or a map from numbers.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::value::SeqAccessDeserializer;
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

pub(super) enum Texts {
    One(String),
    List(Vec<String>),
    Map(BTreeMap<usize, String>),
}

struct Form;

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Form)
    }
}

impl<'de> Visitor<'de> for Form {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, a list of texts, or a map from 0, 1, .. to texts")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Texts, E> {
        Ok(Texts::One(text.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Texts, A::Error> {
        Vec::deserialize(SeqAccessDeserializer::new(seq)).map(Texts::List)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
        let mut texts = BTreeMap::new();
        while let Some((key, text)) = map.next_entry()? {
            if texts.insert(key, text).is_some() {
                return Err(de::Error::custom(format!("has the key {key} twice; remove one")));
            }
        }
        Ok(Texts::Map(texts))
    }
}
