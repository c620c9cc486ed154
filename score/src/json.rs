//! Reads COCO's JSON so that errors name the entry.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;

use serde::de::{DeserializeOwned, Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::error::ScoreError;

/// The name of a list entry in an error: `detection 17`.
pub(super) trait Entry {
    const NAME: &'static str;
}

/// A list whose errors give the index of the bad entry.
pub(super) struct Entries<T>(pub(super) Vec<T>);

impl<'de, T: Deserialize<'de> + Entry> Deserialize<'de> for Entries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de> + Entry> Visitor<'de> for ListVisitor<T> {
            type Value = Entries<T>;

            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                write!(f, "a list of {}s", T::NAME)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                loop {
                    // serde_json reads a trailing "at line L column C" back as the position.
                    let entry = seq.next_element().map_err(|e| {
                        A::Error::custom(format!("{} {}: {e}", T::NAME, entries.len()))
                    })?;
                    match entry {
                        Some(entry) => entries.push(entry),
                        None => return Ok(Entries(entries)),
                    }
                }
            }
        }

        deserializer.deserialize_seq(ListVisitor(PhantomData))
    }
}

/// The mark that some editors write at the start of UTF-8.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// Reads the bytes of `file`, without a byte order mark.
pub(super) fn read(file: &Path) -> Result<Vec<u8>, ScoreError> {
    let mut bytes = dali::file::read(file)
        .map_err(|source| ScoreError::Read { file: file.to_owned(), source })?;
    if bytes.starts_with(BYTE_ORDER_MARK) {
        bytes.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(bytes)
}

/// The first byte that is not white space: distinguishes a list from an object before parsing.
pub(super) fn first_byte(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|b| !b.is_ascii_whitespace())
}

/// Parses a whole document; the error is a reason without the file's name.
///
/// Floats are read exactly (`hotcoco` switches serde_json's `float_roundtrip` on): an area one
/// rounding away from 32 x 32 would count as another size.
pub(super) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|e| match non_finite_near(bytes, &e) {
        Some(token) => {
            let entry = e.to_string();
            let entry = entry.split_once(": ").map_or("the file", |(entry, _)| entry);
            let (line, column) = (e.line(), e.column());
            format!("{entry} holds {token}, which is not a number, at line {line} column {column}")
        }
        None => e.to_string(),
    })
}

/// Python writes NaN and Infinity, which JSON lacks; serde_json only says "expected value".
fn non_finite_near(bytes: &[u8], error: &serde_json::Error) -> Option<&'static str> {
    let before: usize = bytes
        .split_inclusive(|&b| b == b'\n')
        .take(error.line().saturating_sub(1))
        .map(<[u8]>::len)
        .sum();
    let at = (before + error.column()).min(bytes.len());
    let near = &bytes[at.saturating_sub(3)..(at + 8).min(bytes.len())];
    ["NaN", "Infinity"]
        .into_iter()
        .find(|token| near.windows(token.len()).any(|window| window == token.as_bytes()))
}

/// Reads an id: a whole number, also if spelled `3.0` as pandas does.
pub(super) fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let value = serde_json::Number::deserialize(deserializer)?;
    value
        .as_u64()
        .or_else(|| value.as_f64().and_then(hotcoco::types::id_from_f64))
        .ok_or_else(|| D::Error::custom(format!("{value} is not an id (a whole number from 0)")))
}

/// Reads a text that is not empty; any other value is none.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) if !text.is_empty() => Some(text),
        _ => None,
    })
}

/// Reads a list of ids.
pub(super) fn ids<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Vec<u64>>, D::Error> {
    #[derive(Deserialize)]
    struct Id(#[serde(deserialize_with = "id")] u64);
    let ids = Option::<Vec<Id>>::deserialize(deserializer)?;
    Ok(ids.map(|ids| ids.into_iter().map(|Id(id)| id).collect()))
}

/// Reads `0`/`1`, `false`/`true`, or `0.0`/`1.0`.
pub(super) fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::Bool(flag) => Ok(flag),
        serde_json::Value::Number(n) if n.as_f64() == Some(0.0) => Ok(false),
        serde_json::Value::Number(n) if n.as_f64() == Some(1.0) => Ok(true),
        other => Err(D::Error::custom(format!("iscrowd is {other}, expected 0 or 1"))),
    }
}

/// Four finite numbers `x, y, width, height`, or the fault.
pub(super) fn check_bbox(bbox: &[f64]) -> Result<[f64; 4], String> {
    let four: [f64; 4] = bbox.try_into().map_err(|_| {
        format!("has a bbox of {} numbers, expected x, y, width, height", bbox.len())
    })?;
    match four.iter().find(|v| !v.is_finite()) {
        Some(v) => Err(format!("has {v} in its bbox")),
        None => Ok(four),
    }
}
