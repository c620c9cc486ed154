//! Tensors in PyTorch pickles. They refer to storages outside the pickle.

use std::borrow::Cow;

use super::array::{Array, Element};
use crate::weights::pickle::{Id, Node, Pickle};

/// Maximum nesting of `Parameter` objects.
const MAX_WRAPPED: usize = 4;

/// A storage as referenced in the pickle.
#[derive(Debug)]
pub(super) struct Storage {
    pub(super) key: String,
    pub(super) element: Element,
    /// Number of elements.
    pub(super) count: usize,
}

/// Converts a value of the pickle to an array; `None` if it is not a tensor. `stored` returns the
/// bytes of a storage.
///
/// # Errors
/// A message: a storage that is missing or has the wrong length, or a malformed tensor.
pub(super) fn array<'a>(
    pickle: &Pickle<'_>,
    value: Id,
    stored: impl Fn(&Storage) -> Result<&'a [u8], String>,
) -> Result<Option<Array<'a>>, String> {
    let mut value = value;
    for _ in 0..MAX_WRAPPED {
        let is_parameter = match pickle.class(value) {
            Some(("torch._utils", "_rebuild_tensor" | "_rebuild_tensor_v2")) => false,
            Some(("torch._utils", "_rebuild_parameter")) => true,
            Some(("torch.nn.parameter", "Parameter")) => true,
            _ => return Ok(None),
        };
        let args = pickle.args(value).unwrap_or_default();
        if is_parameter {
            value =
                *args.first().ok_or_else(|| "it is a Parameter without a tensor".to_string())?;
            continue;
        }
        let [place, offset, shape, strides, ..] = args else {
            return Err("it is a malformed tensor".into());
        };
        let storage = storage(pickle, *place)?;
        let view = (pickle.count(*offset), pickle.counts(*shape), pickle.counts(*strides));
        let (Some(offset), Some(shape), Some(strides)) = view else {
            return Err("it has an offset, shape or strides that are not counts".into());
        };
        let data = stored(&storage)?;
        if Some(data.len()) != storage.count.checked_mul(storage.element.bytes()) {
            return Err(format!(
                "its storage `{}` has {} bytes, but should have {} elements of {} bytes",
                storage.key,
                data.len(),
                storage.count,
                storage.element.bytes()
            ));
        }
        let (element, data) = (storage.element, Cow::Borrowed(data));
        return Ok(Some(Array { element, data, offset, shape, strides }));
    }
    Err("its Parameters are nested too deeply".into())
}

/// The storage of a persistent id: ("storage", type, key, location, count, ..).
pub(super) fn storage(pickle: &Pickle<'_>, place: Id) -> Result<Storage, String> {
    let fault = || "its storage has a malformed name".to_string();
    let Node::Persistent(id) = pickle.node(place) else { return Err(fault()) };
    let [tag, kind, key, _location, count, rest @ ..] = pickle.sequence(*id).ok_or_else(fault)?
    else {
        return Err(fault());
    };
    if pickle.text(*tag).as_deref() != Some("storage") {
        return Err(fault());
    }
    // Since PyTorch 0.4, no storage is a view of another storage.
    if rest.iter().any(|view| !matches!(pickle.node(*view), Node::None)) {
        return Err(
            "its storage is a view of another storage: save it again with PyTorch 1 or later"
                .into(),
        );
    }
    let (module, name) = pickle.global(*kind).ok_or_else(fault)?;
    let element = element(name).filter(|_| module.starts_with("torch"));
    let element = element.ok_or_else(|| format!("its storage is of type `{module}.{name}`"))?;
    let key = pickle.text(*key).ok_or_else(fault)?;
    let count = pickle.count(*count).ok_or_else(fault)?;
    Ok(Storage { key, element, count })
}

fn element(storage: &str) -> Option<Element> {
    let other = |bytes| Some(Element::Other { bytes });
    match storage {
        "FloatStorage" => Some(Element::F32),
        "DoubleStorage" => Some(Element::F64),
        "HalfStorage" => Some(Element::F16),
        "BFloat16Storage" => Some(Element::Bf16),
        "LongStorage" => other(8),
        "IntStorage" => other(4),
        "ShortStorage" => other(2),
        "CharStorage" | "ByteStorage" | "BoolStorage" => other(1),
        _ => None,
    }
}
