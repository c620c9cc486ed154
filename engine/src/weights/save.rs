//! Weights as the bytes of a safetensors file.

use std::collections::HashMap;

use graph::StateSet;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use super::layout::to_torchvision;
use crate::error::EngineError;
use crate::model::Param;

/// The parameters as the bytes of a safetensors file, with `metadata` in its header.
///
/// # Errors
/// Errors of the safetensors writer; none in practice.
pub fn save_weights(
    params: &[Param],
    state: &StateSet,
    metadata: HashMap<String, String>,
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
    safetensors::serialize(views, Some(metadata)).map_err(fault)
}
