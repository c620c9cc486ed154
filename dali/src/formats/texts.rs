//! Strings in JSON and YAML: a single string, a list, or a map from numbers to strings.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

/// Maximum total length in bytes: with aliases, a short YAML file can repeat a string without
/// limit.
const MAX_BYTES: usize = 1 << 26;
const TOO_LONG: &str = "has more than 64 MiB of text";

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
        f.write_str("a string, a list of strings, or a map from 0, 1, .. to strings")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Texts, E> {
        Ok(Texts::One(text.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Texts, A::Error> {
        let (mut texts, mut bytes) = (Vec::new(), MAX_BYTES);
        while let Some(text) = seq.next_element::<String>()? {
            bytes = bytes.checked_sub(text.len()).ok_or_else(|| de::Error::custom(TOO_LONG))?;
            texts.push(text);
        }
        Ok(Texts::List(texts))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts, A::Error> {
        let (mut texts, mut bytes) = (BTreeMap::new(), MAX_BYTES);
        while let Some((key, text)) = map.next_entry::<usize, String>()? {
            bytes = bytes.checked_sub(text.len()).ok_or_else(|| de::Error::custom(TOO_LONG))?;
            if texts.insert(key, text).is_some() {
                return Err(de::Error::custom(format!("has the key {key} twice; remove one")));
            }
        }
        Ok(Texts::Map(texts))
    }
}
