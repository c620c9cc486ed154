//! Weights as the bytes of a safetensors file.

use graph::StateSet;
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::json;

use super::layout::to_torchvision;
use crate::classes::NO_CATEGORY;
use crate::error::EngineError;
use crate::model::Param;

/// Key in the header's metadata of the classes, as JSON: name and COCO id of each, from class 1; a
/// class without a category has null for its name.
pub const CATEGORIES: &str = "onegraph.categories";

/// Bytes of the header's length, and its alignment.
const LENGTH_BYTES: usize = 8;

/// The parameters as the bytes of a safetensors file, with the model's classes in its header.
///
/// # Errors
/// Errors of the safetensors writer; none in practice.
pub fn save_weights(
    params: &[Param],
    state: &StateSet,
    categories: &[(String, u64)],
) -> Result<Vec<u8>, EngineError> {
    let tensors: Vec<(String, Vec<usize>, Vec<f32>)> = params
        .iter()
        .filter_map(|p| {
            let (shape, values) = to_torchvision(p, state.get(&p.name)?.as_f32());
            Some((p.name.clone(), shape, values))
        })
        .collect();
    let fault = |e: safetensors::SafeTensorError| EngineError::Weights {
        path: "(in memory)".into(),
        reason: e.to_string(),
    };
    let views = tensors
        .iter()
        .map(|(name, shape, values)| {
            let bytes = bytemuck::cast_slice(values);
            Ok((name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes)?))
        })
        .collect::<Result<Vec<_>, _>>()
        .map_err(fault)?;
    let bytes = safetensors::serialize(views, None).map_err(fault)?;
    Ok(with_metadata(&bytes, categories))
}

/// Puts the metadata at the head of a file's header. The crate would write it in an order that
/// changes from run to run, and the same state must give the same bytes.
fn with_metadata(file: &[u8], categories: &[(String, u64)]) -> Vec<u8> {
    let (length, rest) = file.split_at(LENGTH_BYTES);
    let length = length.iter().rev().fold(0, |length, byte| length << 8 | usize::from(*byte));
    let (header, data) = rest.split_at(length);
    let class = |(name, id): &(String, u64)| {
        let name = Some(name).filter(|name| *name != NO_CATEGORY);
        json!({"id": id, "name": name})
    };
    let classes: Vec<_> = categories.iter().map(class).collect();
    let classes = serde_json::Value::from(classes).to_string();
    let metadata = json!({"format": "pt", CATEGORIES: classes}).to_string();
    let mut text = format!("{{\"__metadata__\":{metadata}").into_bytes();
    let entries = header[1..].trim_ascii_end();
    if entries != b"}" {
        text.push(b',');
    }
    text.extend(entries);
    text.resize(text.len().next_multiple_of(LENGTH_BYTES), b' ');
    [&(text.len() as u64).to_le_bytes(), text.as_slice(), data].concat()
}
