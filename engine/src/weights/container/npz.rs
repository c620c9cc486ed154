//! NumPy archives (`.npz`): zip archives with one `.npy` file per array, which has a header in
//! Python syntax, then the elements. `savez` stores the files, `savez_compressed` deflates them.

use std::collections::BTreeMap;

use super::array::{Array, Budget, Element};
use super::numpy::element_named;
use super::{Values, zip};

/// Suffix of the entries.
const SUFFIX: &str = ".npy";
/// Maximum ratio of decompressed to compressed size, against zip bombs; weights hardly compress.
const MAX_INFLATION: usize = 16;
/// Decompressed size that is always allowed.
const FREE_BYTES: usize = 1 << 20;

/// True if the first entry of a zip archive is an array.
pub(super) fn is_npz(bytes: &[u8]) -> bool {
    const LENGTH: usize = 26;
    const NAME: usize = 30;
    let length = bytes.get(LENGTH..LENGTH + 2).map(|b| usize::from(b[0]) | usize::from(b[1]) << 8);
    let name = length.and_then(|length| bytes.get(NAME..NAME + length));
    name.is_some_and(|name| name.ends_with(SUFFIX.as_bytes()))
}

/// Tensors by name. Arrays that are not floating-point, such as step counters, are skipped.
///
/// # Errors
/// A message: a damaged archive or array, an entry that is not an array, or big-endian numbers.
pub(super) fn read(bytes: &[u8]) -> Result<BTreeMap<String, Values>, String> {
    let most = bytes.len().saturating_mul(MAX_INFLATION).saturating_add(FREE_BYTES);
    let entries = zip::entries(bytes, "NumPy", Some(most))?;
    let mut budget = Budget::of(entries.iter().map(|(_, content)| content.len()).sum());
    let mut tensors = BTreeMap::new();
    for (entry, content) in &entries {
        let name = entry
            .strip_suffix(SUFFIX)
            .ok_or_else(|| format!("its entry `{}` is not a NumPy array", entry.escape_debug()))?;
        let array = array(content).map_err(|reason| format!("tensor `{name}`: {reason}"))?;
        if matches!(array.element, Element::Other { .. }) {
            continue;
        }
        let values = array.values(name, &mut budget)?;
        tensors.insert(name.to_string(), (array.shape, values));
    }
    Ok(tensors)
}

/// The array in a `.npy` file: magic, version, length of the header, header, elements.
fn array(content: &[u8]) -> Result<Array<'_>, String> {
    let fault = || "it is not a complete NumPy array".to_string();
    let (magic, rest) = content.split_at_checked(8).ok_or_else(fault)?;
    // One byte for the major version, one for the minor version.
    let length_bytes = match magic {
        b"\x93NUMPY\x01\x00" => 2,
        b"\x93NUMPY\x02\x00" | b"\x93NUMPY\x03\x00" => 4,
        _ => return Err(fault()),
    };
    let (length, rest) = rest.split_at_checked(length_bytes).ok_or_else(fault)?;
    let length = length.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte));
    let (header, data) = rest.split_at_checked(length).ok_or_else(fault)?;
    let header = std::str::from_utf8(header).map_err(|_| fault())?;
    let (element, is_fortran, shape) = described(header)?;
    Array::whole(element, shape, is_fortran, data.into())
}

/// Element type, index order and shape in a header, such as
/// `{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }`.
fn described(header: &str) -> Result<(Element, bool, Vec<usize>), String> {
    let fault = || format!("it has a malformed header: {}", header.trim().escape_debug());
    let value = |key: &str| {
        let after = header.split_once(&format!("'{key}':")).map(|(_, after)| after.trim_start());
        after.ok_or_else(fault)
    };
    let name = value("descr")?.strip_prefix('\'').and_then(|text| text.split_once('\''));
    let (name, _) = name.ok_or_else(fault)?;
    let order = value("fortran_order")?;
    let shape = value("shape")?.strip_prefix('(').and_then(|text| text.split_once(')'));
    let sides = shape.ok_or_else(fault)?.0.split(',').map(str::trim);
    let sides = sides.filter(|side| !side.is_empty()).map(str::parse);
    let shape = sides.collect::<Result<Vec<usize>, _>>().map_err(|_| fault())?;
    let is_fortran = match (order.starts_with("True"), order.starts_with("False")) {
        (false, false) => return Err(fault()),
        (is_fortran, _) => is_fortran,
    };
    Ok((element_named(name)?, is_fortran, shape))
}
