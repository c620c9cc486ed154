//! The zip archive of `torch.save`: a pickle, and one stored file for each storage.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};

use zip::{CompressionMethod, ZipArchive};

use super::{Values, state_dict, torch};
use crate::weights::pickle;

/// Entry next to PyTorch's own in which an export states its classes; PyTorch takes no notice.
pub(super) const CATEGORIES_ENTRY: &str = "onegraph.categories";

/// Tensors by name, and the classes that an export of ours states.
///
/// # Errors
/// In words: a damaged or compressed archive, a program instead of weights, and what is wrong with
/// its pickle or a tensor.
pub(super) fn read(bytes: &[u8]) -> Result<(BTreeMap<String, Values>, Option<String>), String> {
    let entries = entries(bytes)?;
    let find = |name: &str| entries.get(name).map(Vec::as_slice);
    if find("constants.pkl").is_some() || entries.keys().any(|name| name.starts_with("code/")) {
        return Err("it is a TorchScript program, and no file of weights: save its state_dict() \
                    with torch.save"
            .into());
    }
    if find("byteorder").is_some_and(|order| order != b"little") {
        return Err("its numbers are big-endian: save it on a little-endian machine".into());
    }
    let data = find("data.pkl").ok_or_else(|| {
        "it is a zip archive without data.pkl, and so none of torch.save".to_string()
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

/// The files of an archive, under their names without the folder that all share.
fn entries(bytes: &[u8]) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let fault = |e: &dyn std::fmt::Display| format!("it is no whole archive of PyTorch: {e}");
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|e| fault(&e))?;
    if archive.has_duplicate_names() {
        return Err(fault(&"two of its entries have one name"));
    }
    if archive.has_overlapping_entries().map_err(|e| fault(&e))? {
        return Err(fault(&"its entries overlap"));
    }
    let mut entries = BTreeMap::new();
    let mut folders = BTreeSet::new();
    for index in 0..archive.len() {
        let raw = archive.by_index_raw(index).map_err(|e| fault(&e))?;
        let (method, size) = (raw.compression(), raw.size());
        let name = raw.name().map_err(|e| fault(&e))?.into_owned();
        drop(raw);
        if method != CompressionMethod::Stored {
            return Err(fault(&format!(
                "its entry `{name}` is compressed, which torch.save never does"
            )));
        }
        // Overlaps are refused, so that all entries together are no longer than the file.
        let mut entry = archive.by_index(index).map_err(|e| fault(&e))?;
        let mut content = Vec::with_capacity(usize::try_from(size).unwrap_or(0).min(bytes.len()));
        entry.read_to_end(&mut content).map_err(|e| fault(&format!("entry `{name}`: {e}")))?;
        drop(entry);
        let (folder, inner) = name.split_once('/').unwrap_or(("", &name));
        folders.insert(folder.to_string());
        entries.insert(inner.to_string(), content);
    }
    if folders.len() > 1 {
        return Err(fault(&"its entries lie in several folders"));
    }
    Ok(entries)
}
