//! Reads the entries of a COCO file. The file is first split into entries, which are then parsed in
//! parallel. Errors include the entry's id and field.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::path::{Component, Path};

use rayon::prelude::*;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::fields::{expected, field_at, without_nan};
use super::types::{Annotation, Category, Dataset, Image};
use crate::error::DaliError;

/// Advice in errors about annotations in a different format.
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
/// result. Invalid annotations are kept: `prep` drops and counts them.
///
/// # Errors
/// [`DaliError::Io`] if the file cannot be read, [`DaliError::Annotations`] if it is not COCO JSON,
/// or if an entry lacks a field or repeats an id.
pub fn read(path: &Path) -> Result<Dataset, DaliError> {
    parse(path, &bytes_of(path)?)
}

/// The bytes of the annotation file at `path`.
pub(crate) fn bytes_of(path: &Path) -> Result<Vec<u8>, DaliError> {
    if path.is_dir() {
        let fault = format!("is a folder; give the annotation file. {CONVERT}");
        return Err(DaliError::annotations(path, fault));
    }
    crate::file::read(path).map_err(DaliError::io("read the annotations", path))
}

/// [`read`] for a file already in memory, which errors call `path`.
pub(crate) fn parse(path: &Path, bytes: &[u8]) -> Result<Dataset, DaliError> {
    let (images, annotations, categories) = lists::<Image, Annotation, Category>(path, bytes)?;
    for (idx, image) in images.iter().enumerate() {
        let of_entry = |fault| format!("images[{idx}] (id {}): {fault}", image.id);
        check_image(image).map_err(|fault| DaliError::annotations(path, of_entry(fault)))?;
    }
    let dataset = Dataset { images, annotations, categories };
    let categories = &dataset.categories;
    unique(path, "images", "id", dataset.images.iter().map(|image| image.id))?;
    unique(path, "categories", "id", categories.iter().map(|category| category.id))?;
    // The store omits the root category, so its name need not be unique.
    let root = dataset.root();
    let name = |category: &Category| match Some(category.id) == root {
        true => "\0".to_string(),
        false => category.name.clone(),
    };
    unique(path, "categories", "name", categories.iter().map(name))?;
    Ok(dataset)
}

/// Images, annotations and categories of a file.
pub(super) type Lists<I, A, C> = (Vec<I>, Vec<A>, Vec<C>);

/// The entries of `images`, `annotations` and `categories`, parsed as `I`, `A` and `C`; errors call
/// the file `path`.
///
/// # Errors
/// As for [`read`].
pub fn lists<I, A, C>(path: &Path, bytes: &[u8]) -> Result<Lists<I, A, C>, DaliError>
where
    I: DeserializeOwned + Send,
    A: DeserializeOwned + Send,
    C: DeserializeOwned + Send,
{
    // Some editors prepend a byte-order mark, which JSON does not allow.
    let text = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    if text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
        return Err(DaliError::annotations(
            path,
            "is a list, perhaps of detections; expected an object with `images`, `annotations` \
             and `categories`",
        ));
    }
    let parsed = serde_json::from_slice(text);
    if parsed.is_err()
        && let Some(text) = without_nan(text)
    {
        return lists(path, &text);
    }
    let sections: Sections<'_> = parsed.map_err(|error| {
        let begins = text.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'{');
        let mend = if begins { String::new() } else { format!(". {CONVERT}") };
        DaliError::annotations(path, format!("is not COCO JSON: {error}{mend}"))
    })?;
    Ok((
        entries(path, "images", sections.images.as_deref())?,
        entries(path, "annotations", sections.annotations.as_deref())?,
        entries(path, "categories", sections.categories.as_deref())?,
    ))
}

/// The entries of a file that consists of one list, called `name` in errors.
///
/// # Errors
/// [`DaliError::Annotations`] if the file is not JSON, or an entry is invalid.
pub fn list<T: DeserializeOwned + Send>(
    path: &Path,
    name: &'static str,
    bytes: &[u8],
) -> Result<Vec<T>, DaliError> {
    let parsed: Result<Vec<&RawValue>, _> = serde_json::from_slice(bytes);
    if parsed.is_err()
        && let Some(text) = without_nan(bytes)
    {
        return list(path, name, &text);
    }
    let raw =
        parsed.map_err(|error| DaliError::annotations(path, format!("is not JSON: {error}")))?;
    entries(path, name, Some(&raw))
}

/// Rejects file names outside the folder of images: the annotation file may be from an untrusted
/// source.
fn check_image(image: &Image) -> Result<(), String> {
    let Image { file_name, height, width, .. } = image;
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
    // Backslashes may be Windows separators.
    let other = file_name.replace('\\', "/");
    let is_inside = |name: &str| Path::new(name).components().all(is_plain);
    if file_name.is_empty() || ![file_name, &other].into_iter().all(|name| is_inside(name)) {
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
        DaliError::annotations(path, format!("has no `{section}`; expected a COCO annotation file"))
    })?;
    let parsed: Vec<Result<T, serde_json::Error>> =
        raw.par_iter().map(|entry| serde_json::from_str(entry.get())).collect();
    // All results are collected before an error is returned: entries are parsed in parallel, and
    // the first error in the file is reported.
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
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    let id = fields.get("id").map(|id| format!(" (id {id})")).unwrap_or_default();
    let message = error.to_string();
    // The position in serde's message is relative to the entry, which would be misleading.
    let message = message.split(" at line ").next().unwrap_or(&message);
    let named = |start: &str| message.strip_prefix(start).map(|name| name.replace('`', ""));
    let fault = if let Some(name) = named("missing field ") {
        format!("{name} is missing; add it")
    } else if let Some(name) = named("duplicate field ") {
        format!("{name} occurs twice; remove one")
    } else if let Some((name, value)) = field_at(raw.get(), &fields, error) {
        format!("{name} must be {}, not {value}; correct it", expected(name))
    } else {
        message.to_string()
    };
    DaliError::annotations(path, format!("{section}[{idx}]{id}: {fault}"))
}

fn unique<K: Hash + Eq + std::fmt::Display + Clone>(
    path: &Path,
    section: &str,
    field: &str,
    keys: impl Iterator<Item = K>,
) -> Result<(), DaliError> {
    let mut first = HashMap::new();
    for (idx, key) in keys.enumerate() {
        if let Some(earlier) = first.insert(key.clone(), idx) {
            let fault = format!(
                "{section}[{idx}]: {field} {key} is already used in {section}[{earlier}]; remove \
                 one of them"
            );
            return Err(DaliError::annotations(path, fault));
        }
    }
    Ok(())
}
