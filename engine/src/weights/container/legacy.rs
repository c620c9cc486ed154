//! The format that `torch.save` wrote before PyTorch 1.6: a magic number, a version, machine
//! properties, the state dict, the keys of its storages, then the storages.

use std::collections::BTreeMap;

use super::{Values, state_dict, torch};
use crate::weights::pickle::{self, Id, Node, Pickle};

/// The magic number at the start of such a file, as a pickle of protocol 2: 0x1950a86a20f9469cfc6c.
const MAGIC: &[u8] = b"\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";
/// Version of the format.
const VERSION: i128 = 1001;
/// Bytes of the element count before each storage.
const COUNT_BYTES: usize = 8;

/// True if the file begins with the magic number.
pub(super) fn is_legacy(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// Tensors by name.
///
/// # Errors
/// A message: a truncated file, a file from a big-endian machine, or an error in a pickle or
/// tensor.
pub(super) fn read(bytes: &[u8]) -> Result<BTreeMap<String, Values>, String> {
    let (version, at) = pickle::read(bytes, MAGIC.len())?;
    if version.int(version.root()) != Some(VERSION) {
        return Err(format!("it is not a PyTorch file of version {VERSION}"));
    }
    let (machine, at) = pickle::read(bytes, at)?;
    if !is_little_endian(&machine) {
        return Err("its numbers are big-endian: save it on a little-endian machine".into());
    }
    let (object, at) = pickle::read(bytes, at)?;
    let (keys, at) = pickle::read(bytes, at)?;
    let sizes = element_sizes(&object)?;
    let storages = storages(bytes, at, &keys, &sizes)?;
    let stored = |storage: &torch::Storage| {
        let key = &storage.key;
        let data = storages.get(key).copied();
        data.ok_or_else(|| format!("its storage `{key}` is missing"))
    };
    let array = |value| torch::array(&object, value, stored);
    state_dict::tensors(&object, bytes.len(), array)
}

fn is_little_endian(machine: &Pickle<'_>) -> bool {
    let entries = machine.entries(machine.root()).unwrap_or_default();
    let order = |(key, value): &(Id, Id)| {
        (machine.text(*key).as_deref() == Some("little_endian")).then(|| machine.int(*value))
    };
    entries.iter().find_map(order).is_none_or(|little| little == Some(1))
}

/// Bytes per element of each storage. Includes storages that are not needed, since they precede
/// others in the file.
fn element_sizes(object: &Pickle<'_>) -> Result<BTreeMap<String, usize>, String> {
    let mut sizes = BTreeMap::new();
    for id in object.ids().filter(|id| matches!(object.node(*id), Node::Persistent(_))) {
        let storage = torch::storage(object, id)?;
        sizes.insert(storage.key, storage.element.bytes());
    }
    Ok(sizes)
}

/// The storages by key. In the file, each is an element count followed by the elements.
fn storages<'a>(
    bytes: &'a [u8],
    mut at: usize,
    keys: &Pickle<'_>,
    sizes: &BTreeMap<String, usize>,
) -> Result<BTreeMap<String, &'a [u8]>, String> {
    let listed = keys.sequence(keys.root()).unwrap_or_default();
    let mut storages = BTreeMap::new();
    for key in listed {
        let key = keys.text(*key).ok_or_else(|| "a key of its storages is not text".to_string())?;
        let size = sizes.get(&key).ok_or_else(|| format!("its storage `{key}` has no type"))?;
        let cut = || format!("it is truncated in storage `{key}`");
        let head = bytes[at..].first_chunk::<COUNT_BYTES>().ok_or_else(cut)?;
        let count = usize::try_from(u64::from_le_bytes(*head)).ok();
        let len = count.and_then(|count| count.checked_mul(*size));
        at += COUNT_BYTES;
        let data = len.and_then(|len| bytes[at..].get(..len)).ok_or_else(cut)?;
        at += data.len();
        if storages.insert(key.clone(), data).is_some() {
            return Err(format!("it holds storage `{key}` twice"));
        }
    }
    Ok(storages)
}
