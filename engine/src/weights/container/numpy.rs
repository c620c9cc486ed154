//! NumPy arrays in Detectron (Python 2) and detectron2 (Python 3) pickles.

use std::collections::BTreeMap;

use super::array::{Array, Element};
use super::{Values, state_dict};
use crate::weights::pickle::{self, Id, Pickle};

/// Tensors by name.
///
/// # Errors
/// A message about the error in the pickle or an array.
pub(super) fn read(bytes: &[u8]) -> Result<BTreeMap<String, Values>, String> {
    let (pickle, _) = pickle::read(bytes, 0)?;
    state_dict::tensors(&pickle, bytes.len(), |value| array(&pickle, value))
}

/// The array that a value represents; `None` if it is not an array.
fn array<'a>(pickle: &'a Pickle<'_>, value: Id) -> Result<Option<Array<'a>>, String> {
    let fault = || "it is a malformed array".to_string();
    let (dtype, shape, is_fortran, data) = match pickle.class(value) {
        // The state is version, shape, dtype, True if in Fortran order, bytes.
        Some((_, "_reconstruct")) => {
            let [_version, shape, dtype, fortran, data] = pickle.state(value).ok_or_else(fault)?
            else {
                return Err(fault());
            };
            (*dtype, *shape, pickle.int(*fortran) == Some(1), *data)
        }
        // Protocol 5. The arguments are bytes, dtype, shape, order.
        Some((_, "_frombuffer")) => {
            let [data, dtype, shape, order] = pickle.args(value).ok_or_else(fault)? else {
                return Err(fault());
            };
            (*dtype, *shape, pickle.text(*order).as_deref() == Some("F"), *data)
        }
        _ => return Ok(None),
    };
    let element = element(pickle, dtype)?;
    let shape = pickle.counts(shape).ok_or_else(fault)?;
    let data = pickle.bytes(data).ok_or_else(fault)?;
    Array::whole(element, shape, is_fortran, data).map(Some)
}

/// The element type of a pickled dtype, whose state is (version, byte order, ..).
fn element(pickle: &Pickle<'_>, dtype: Id) -> Result<Element, String> {
    let fault = || "it has a malformed dtype".to_string();
    if pickle.class(dtype) != Some(("numpy", "dtype")) {
        return Err(fault());
    }
    let name = pickle.args(dtype).and_then(|args| pickle.text(*args.first()?)).ok_or_else(fault)?;
    let state = pickle.state(dtype).unwrap_or_default();
    let order = state.get(1).and_then(|order| pickle.text(*order)).unwrap_or_else(|| "<".into());
    // The name may also contain a byte order (`|`: a single byte), which is replaced.
    element_named(&format!("{order}{}", name.trim_start_matches(['<', '|', '='])))
}

/// The element type for a name such as `<f4`.
pub(super) fn element_named(name: &str) -> Result<Element, String> {
    if name.starts_with('>') {
        return Err("it is big-endian: save it with little-endian numbers".into());
    }
    let number = name.trim_start_matches(['<', '|', '=']);
    let bytes = number.get(1..).and_then(|digits| digits.parse().ok());
    match (number, bytes) {
        ("f4", _) => Ok(Element::F32),
        ("f8", _) => Ok(Element::F64),
        ("f2", _) => Ok(Element::F16),
        (_, Some(bytes)) if "iub".contains(&number[..1]) && (1..=8).contains(&bytes) => {
            Ok(Element::Other { bytes })
        }
        _ => Err(format!("it has the dtype `{}`", number.escape_debug())),
    }
}
