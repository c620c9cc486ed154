//! Parses fields, lists their allowed values, and finds the invalid field of an entry.

use std::collections::BTreeMap;

use serde::de::Error;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use serde_json::{Number, Value};

/// Replacement for NaN and Infinity: an object, which every field rejects.
const NOT_A_NUMBER: &str = r#"{"NaN":null}"#;

/// Reads an id: an integer, which may be written as `3.0`, as pandas does.
///
/// # Errors
/// Any other value.
pub fn id<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let value = Number::deserialize(deserializer)?;
    let whole = || value.as_f64().and_then(hotcoco::types::id_from_f64);
    value
        .as_u64()
        .or_else(whole)
        .ok_or_else(|| D::Error::custom(format!("{value} is not an id (an integer from 0)")))
}

/// Reads a list of ids, or null.
///
/// # Errors
/// Any other value.
pub fn ids<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<u64>>, D::Error> {
    #[derive(Deserialize)]
    struct Id(#[serde(deserialize_with = "id")] u64);
    let ids = Option::<Vec<Id>>::deserialize(deserializer)?;
    Ok(ids.map(|ids| ids.into_iter().map(|Id(id)| id).collect()))
}

/// Reads a number of pixels, in the notations that [`id`] accepts.
///
/// # Errors
/// Any other value.
pub fn side<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    u32::try_from(id(deserializer)?).map_err(D::Error::custom)
}

/// Reads `0`/`1`, `false`/`true`, or `0.0`/`1.0`.
///
/// # Errors
/// Any other value.
pub fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    match Value::deserialize(deserializer)? {
        Value::Bool(flag) => Ok(flag),
        Value::Number(n) if n.as_f64() == Some(0.0) => Ok(false),
        Value::Number(n) if n.as_f64() == Some(1.0) => Ok(true),
        other => Err(D::Error::custom(format!("{other} is neither 0 nor 1"))),
    }
}

/// Reads the rotation in degrees from CVAT's `attributes`; 0 if it is absent.
///
/// # Errors
/// Text that is not JSON.
pub fn rotation<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Value::deserialize(deserializer)?["rotation"].as_f64().unwrap_or(0.0))
}

/// The axis-aligned bounding box of a box (x, y, width, height) that is rotated about its centre.
/// COCO's boxes are not rotated; for a rotated box CVAT writes the unrotated one and
/// `attributes.rotation`.
pub fn turned_box([x, y, w, h]: [f64; 4], degrees: f64) -> [f64; 4] {
    let (sin, cos) = degrees.to_radians().sin_cos();
    let (sin, cos) = (sin.abs(), cos.abs());
    let [width, height] = [w * cos + h * sin, w * sin + h * cos];
    [x + (w - width) / 2.0, y + (h - height) / 2.0, width, height]
}

/// The allowed values of a field.
pub(super) fn expected(field: &str) -> &'static str {
    match field {
        "id" | "image_id" | "category_id" => "an integer from 0",
        "neg_category_ids" | "not_exhaustive_category_ids" => "a list of integers from 0",
        "height" | "width" => "an integer (pixels)",
        "area" | "score" => "a number",
        "iscrowd" => "0 or 1",
        "bbox" => "a list of numbers, [x, y, width, height]",
        "segmentation" => "a list of polygons, [[x, y, ..]], or an object with size and counts",
        "keypoints" => "a list of numbers, [x, y, visibility, ..] (in a category: names)",
        "file_name" | "name" => "a quoted string",
        _ => "a value of a different type",
    }
}

/// The field of an entry that caused `error`, and its value.
pub(super) fn field_at<'a>(
    entry: &str,
    fields: &'a BTreeMap<String, &RawValue>,
    error: &serde_json::Error,
) -> Option<(&'a str, String)> {
    let lines = entry.split_inclusive('\n').take(error.line().saturating_sub(1));
    let at = lines.map(str::len).sum::<usize>() + error.column();
    let start = |value: &RawValue| value.get().as_ptr() as usize - entry.as_ptr() as usize;
    let before = fields.iter().filter(|(_, value)| start(value) <= at);
    let (name, value) = before.max_by_key(|(_, value)| start(value))?;
    let value = value.get().replace(NOT_A_NUMBER, "NaN or Infinity");
    Some((name, value.chars().take(40).collect()))
}

/// The text with each NaN and Infinity replaced by an object: Python writes them, but JSON does not
/// allow them. `None` if the text contains neither.
pub(super) fn without_nan(text: &[u8]) -> Option<Vec<u8>> {
    const TOKENS: [&[u8]; 3] = [b"NaN", b"Infinity", b"-Infinity"];
    let (mut out, mut rest, mut is_string) = (Vec::with_capacity(text.len()), text, false);
    while let Some(&byte) = rest.first() {
        let token = TOKENS.iter().find(|token| !is_string && rest.starts_with(token));
        let length = match token {
            Some(token) => token.len(),
            None if is_string && byte == b'\\' => 2.min(rest.len()),
            None => 1,
        };
        is_string ^= byte == b'"';
        out.extend(if token.is_some() { NOT_A_NUMBER.as_bytes() } else { &rest[..length] });
        rest = &rest[length..];
    }
    (out.len() != text.len()).then_some(out)
}
