//! Reads safetensors files, and writes them with the classes in the header.

use std::collections::BTreeMap;

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::json;

use super::array::{Array, Budget, Element};
use super::{Values, is_counter};

/// Key of the header's metadata with the classes, as JSON: name and COCO id of each, from class 1.
/// The name is null for a class without a category.
pub const CATEGORIES: &str = "onegraph.categories";

/// Bytes of the header's length field; also the alignment of the header.
const LENGTH_BYTES: usize = 8;

/// Tensors by name, and the classes stored in the file.
///
/// # Errors
/// A message: a damaged file, or a tensor that is not floating-point.
pub(super) fn read(bytes: &[u8]) -> Result<(BTreeMap<String, Values>, Option<String>), String> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|e| format!("it is not a complete safetensors file: {e}"))?;
    let mut budget = Budget::of(bytes.len());
    let mut tensors = BTreeMap::new();
    for (name, view) in file.tensors().into_iter().filter(|(name, _)| !is_counter(name)) {
        let shape = view.shape().to_vec();
        let dtype = view.dtype();
        let element = match dtype {
            Dtype::F32 => Element::F32,
            Dtype::F64 => Element::F64,
            Dtype::F16 => Element::F16,
            Dtype::BF16 => Element::Bf16,
            _ => return Err(format!("tensor `{name}` holds {dtype:?}: save the weights as f32")),
        };
        let array = Array::whole(element, shape, false, view.data().into())
            .map_err(|reason| format!("tensor `{name}`: {reason}"))?;
        let values = array.values(&name, &mut budget)?;
        tensors.insert(name, (array.shape, values));
    }
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(|e| e.to_string())?;
    let stated = header.metadata().as_ref().and_then(|metadata| metadata.get(CATEGORIES));
    Ok((tensors, stated.cloned()))
}

/// Serializes tensors to a file whose header contains `categories` (JSON).
///
/// # Errors
/// Errors of the safetensors writer; none in practice.
pub(in crate::weights) fn safetensors_bytes(
    tensors: &[(String, Values)],
    categories: Option<&str>,
) -> Result<Vec<u8>, String> {
    let views = tensors
        .iter()
        .map(|(name, (shape, values))| {
            let bytes = bytemuck::cast_slice(values);
            Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes)?))
        })
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(|e| e.to_string())?;
    let bytes = safetensors::serialize(views, None).map_err(|e| e.to_string())?;
    Ok(with_metadata(&bytes, categories))
}

/// Inserts the metadata at the start of a file's header. The safetensors crate would write it in
/// random order, but equal states must give equal bytes.
fn with_metadata(file: &[u8], categories: Option<&str>) -> Vec<u8> {
    let (length, rest) = file.split_at(LENGTH_BYTES);
    let length = length.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte));
    let (header, data) = rest.split_at(length);
    let mut metadata = json!({"format": "pt"});
    if let Some(categories) = categories {
        metadata[CATEGORIES] = categories.into();
    }
    let mut text = format!("{{\"__metadata__\":{metadata}").into_bytes();
    let entries = header[1..].trim_ascii_end();
    if entries != b"}" {
        text.push(b',');
    }
    text.extend(entries);
    text.resize(text.len().next_multiple_of(LENGTH_BYTES), b' ');
    [&(text.len() as u64).to_le_bytes(), text.as_slice(), data].concat()
}
