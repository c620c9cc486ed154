//! From a file to its entries: the file is split first and each entry parsed separately, in
//! parallel, so that an error names the entry by its id and not only by a byte offset.

use std::collections::HashMap;
use std::hash::Hash;
use std::path::{Component, Path};

use rayon::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::types::{Category, Dataset, Image};
use crate::error::DaliError;

/// The advice to a user whose annotations have another format.
const CONVERT: &str = "YOLO, VOC, LabelMe and other formats must be converted to COCO first";

#[derive(Deserialize)]
struct Sections<'a> {
    #[serde(borrow)]
    images: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    annotations: Option<Vec<&'a RawValue>>,
    #[serde(borrow)]
    categories: Option<Vec<&'a RawValue>>,
}

/// Reads the COCO file at `path`; image ids, category ids and category names are unique in the
/// result. Faults of single annotations are left to `prep`, which drops and counts them.
///
/// # Errors
/// [`DaliError::Io`] if it cannot be read, [`DaliError::Coco`] where it is not COCO JSON,
/// [`DaliError::CocoEntry`] if an entry lacks a field or repeats an id.
pub fn read(path: &Path) -> Result<Dataset, DaliError> {
    parse(path, &bytes_of(path)?)
}

/// The bytes of the annotation file at `path`.
pub(crate) fn bytes_of(path: &Path) -> Result<Vec<u8>, DaliError> {
    if path.is_dir() {
        let fault = format!("is a folder; give the file of annotations. {CONVERT}");
        return Err(coco_fault(path, fault));
    }
    crate::file::read(path).map_err(DaliError::io("read the annotations", path))
}

/// [`read`] of a file that was read before; `path` names it in errors.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Dataset, DaliError> {
    // Some editors prepend a byte-order mark, which JSON does not allow.
    let text = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(coco_fault(
            path,
            "is a list, perhaps of detections; expected an object with `images`, `annotations` \
             and `categories`"
                .to_string(),
        ));
    }
    let sections: Sections<'_> = serde_json::from_slice(text).map_err(|error| {
        let begins = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        let mend = if begins { String::new() } else { format!(". {CONVERT}") };
        coco_fault(path, format!("is not COCO JSON: {error}{mend}"))
    })?;
    let images = entries(path, "images", sections.images.as_deref())?;
    let annotations = entries(path, "annotations", sections.annotations.as_deref())?;
    let categories = entries(path, "categories", sections.categories.as_deref())?;
    for (idx, image) in images.iter().enumerate() {
        check_image(image).map_err(|fault| DaliError::CocoEntry {
            path: path.to_path_buf(),
            entry: format!("images[{idx}] (id {})", image.id),
            fault,
        })?;
    }
    unique(path, "images", "id", images.iter().map(|image: &Image| image.id))?;
    unique(path, "categories", "id", categories.iter().map(|category: &Category| category.id))?;
    unique(path, "categories", "name", categories.iter().map(|category| &category.name))?;
    Ok(Dataset { images, annotations, categories })
}

/// An annotation file from elsewhere must not choose files outside the images' folder.
fn check_image(image: &Image) -> Result<(), String> {
    let Image { file_name, height, width, .. } = image;
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    if file_name.is_empty() || !Path::new(file_name).components().all(is_plain) {
        return Err(format!(
            "file_name is {file_name:?}; it must be a path inside the images' folder, without `..`"
        ));
    }
    if *height == 0 || *width == 0 {
        return Err(format!("is {width}x{height} pixels; both sides must be at least 1"));
    }
    Ok(())
}

fn entries<T: DeserializeOwned + Send>(
    path: &Path,
    section: &'static str,
    raw: Option<&[&RawValue]>,
) -> Result<Vec<T>, DaliError> {
    let raw = raw.ok_or_else(|| {
        coco_fault(path, format!("has no `{section}`; expected a COCO annotation file"))
    })?;
    let parsed: Vec<Result<T, serde_json::Error>> =
        raw.par_iter().map(|entry| serde_json::from_str(entry.get())).collect();
    // Collected first, so that of several faults the first in the file is reported.
    let named = |(idx, result): (usize, Result<T, serde_json::Error>)| {
        result.map_err(|error| entry_fault(path, section, idx, raw[idx], &error))
    };
    parsed.into_iter().enumerate().map(named).collect()
}

fn entry_fault(
    path: &Path,
    section: &str,
    idx: usize,
    raw: &RawValue,
    error: &serde_json::Error,
) -> DaliError {
    let value: Option<serde_json::Value> = serde_json::from_str(raw.get()).ok();
    let id = value.and_then(|value| value.get("id").map(|id| format!(" (id {id})")));
    let message = error.to_string();
    // The position counts from the start of the entry and would mislead.
    let mut message = message.split(" at line ").next().unwrap_or(&message).to_string();
    if message.starts_with("invalid type: string") && message.ends_with("expected u64") {
        message += "; an id must be a whole number: renumber the ids of the file";
    }
    DaliError::CocoEntry {
        path: path.to_path_buf(),
        entry: format!("{section}[{idx}]{}", id.unwrap_or_default()),
        fault: message,
    }
}

fn unique<K: Hash + Eq + std::fmt::Display + Copy>(
    path: &Path,
    section: &str,
    field: &str,
    keys: impl Iterator<Item = K>,
) -> Result<(), DaliError> {
    let mut first = HashMap::new();
    for (idx, key) in keys.enumerate() {
        if let Some(earlier) = first.insert(key, idx) {
            return Err(DaliError::CocoEntry {
                path: path.to_path_buf(),
                entry: format!("{section}[{idx}]"),
                fault: format!(
                    "{field} {key} is already used in {section}[{earlier}]; remove one of them"
                ),
            });
        }
    }
    Ok(())
}

fn coco_fault(path: &Path, fault: String) -> DaliError {
    DaliError::Coco { path: path.to_path_buf(), fault }
}
