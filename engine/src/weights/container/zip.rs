//! Zip archives: reads those of `torch.save`, which contain a pickle and one stored file per
//! storage, and the entries of any archive.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};

use zip::{CompressionMethod, ZipArchive};

use super::{Values, state_dict, torch};
use crate::weights::pickle;

/// Additional entry with the classes of an export, which PyTorch ignores.
pub(super) const CATEGORIES_ENTRY: &str = "onegraph.categories";

/// Tensors by name, and the classes (JSON) in an export of onegraph.
///
/// # Errors
/// A message: a damaged or compressed archive, a TorchScript program, or an error in the pickle or
/// a tensor.
pub(super) fn read(bytes: &[u8]) -> Result<(BTreeMap<String, Values>, Option<String>), String> {
    let entries = in_one_folder(entries(bytes, "PyTorch", None)?)?;
    let find = |name: &str| entries.get(name).map(Vec::as_slice);
    if find("constants.pkl").is_some() || entries.keys().any(|name| name.starts_with("code/")) {
        return Err("it is a TorchScript program, not a weights file: save its state_dict() with \
                    torch.save"
            .into());
    }
    if find("byteorder").is_some_and(|order| order != b"little") {
        return Err("its numbers are big-endian: save it on a little-endian machine".into());
    }
    let data = find("data.pkl").ok_or_else(|| {
        "it is a zip archive without data.pkl, so it was not written by torch.save".to_string()
    })?;
    let (pickle, _) = pickle::read(data, 0)?;
    let stored = |storage: &torch::Storage| {
        let key = &storage.key;
        find(&format!("data/{key}")).ok_or_else(|| format!("its storage `{key}` is missing"))
    };
    let array = |value| torch::array(&pickle, value, stored);
    let tensors = state_dict::tensors(&pickle, bytes.len(), array)?;
    let categories = find(CATEGORIES_ENTRY).map(|text| String::from_utf8_lossy(text).into_owned());
    Ok((tensors, categories))
}

/// Entries by name, without the folder that all have in common.
fn in_one_folder(all: Vec<(String, Vec<u8>)>) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let mut entries = BTreeMap::new();
    let mut folders = BTreeSet::new();
    for (name, content) in all {
        let (folder, inner) = name.split_once('/').unwrap_or(("", &name));
        folders.insert(folder.to_string());
        entries.insert(inner.to_string(), content);
    }
    if folders.len() > 1 {
        return Err(
            "it is not a complete PyTorch archive: its entries are in several folders".into()
        );
    }
    Ok(entries)
}

/// Names and contents of the entries of an archive. `inflated` is the maximum decompressed size of
/// all entries; if it is `None`, compressed entries are rejected. `writer` names the library that
/// wrote the archive in messages.
///
/// # Errors
/// A message: a damaged archive, or one that `writer` never produces.
pub(super) fn entries(
    bytes: &[u8],
    writer: &str,
    inflated: Option<usize>,
) -> Result<Vec<(String, Vec<u8>)>, String> {
    let fault =
        |e: &dyn std::fmt::Display| format!("it is not a complete archive of {writer}: {e}");
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|e| fault(&e))?;
    if archive.has_duplicate_names() {
        return Err(fault(&"two of its entries have the same name"));
    }
    if archive.has_overlapping_entries().map_err(|e| fault(&e))? {
        return Err(fault(&"its entries overlap"));
    }
    // Overlapping entries were rejected, so stored entries are at most as long as the file.
    let most = inflated.unwrap_or(bytes.len());
    let (mut entries, mut left) = (Vec::new(), most);
    for index in 0..archive.len() {
        let raw = archive.by_index_raw(index).map_err(|e| fault(&e))?;
        let (method, size) = (raw.compression(), raw.size());
        let name = raw.name().map_err(|e| fault(&e))?.into_owned();
        drop(raw);
        let is_known = match method {
            CompressionMethod::Stored => true,
            CompressionMethod::Deflated => inflated.is_some(),
            _ => false,
        };
        if !is_known {
            return Err(fault(&format!(
                "its entry `{name}` is compressed in a way that {writer} never uses"
            )));
        }
        let entry = archive.by_index(index).map_err(|e| fault(&e))?;
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0).min(left));
        let read = entry.take(left as u64 + 1).read_to_end(&mut content);
        read.map_err(|e| fault(&format!("entry `{name}`: {e}")))?;
        left = left.checked_sub(content.len()).ok_or_else(|| {
            fault(&format!("its entries up to `{name}` hold more than {most} bytes"))
        })?;
        entries.push((name, content));
    }
    Ok(entries)
}
