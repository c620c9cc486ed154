//! Reads COCO JSON files, and checks boxes.

use std::path::Path;

use dali::DaliError;
use serde::{Deserialize, Deserializer};

use super::error::ScoreError;

/// The byte order mark that some editors write at the start of UTF-8 files.
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

/// The first byte that is not white space; it distinguishes a list from an object before parsing.
pub(super) fn first_byte(bytes: &[u8]) -> Option<u8> {
    bytes.iter().copied().find(|b| !b.is_ascii_whitespace())
}

/// The text of an error, without the file name that is part of the full message.
pub(super) fn reason(fault: DaliError) -> String {
    match fault {
        DaliError::Annotations { fault, .. } => fault,
        fault => fault.to_string(),
    }
}

/// Four finite numbers `x, y, width, height`, or the error.
pub(super) fn check_bbox(bbox: &[f64]) -> Result<[f64; 4], String> {
    let four: [f64; 4] = bbox.try_into().map_err(|_| {
        format!("has a bbox of {} numbers, expected x, y, width, height", bbox.len())
    })?;
    match four.iter().find(|v| !v.is_finite()) {
        Some(v) => Err(format!("has {v} in its bbox")),
        None => Ok(four),
    }
}

/// Reads a string; an empty string or any other value becomes `None`.
pub(super) fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) if !text.is_empty() => Some(text),
        _ => None,
    })
}
