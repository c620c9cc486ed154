//! Weights as safetensors under torchvision's names.

use std::collections::BTreeMap;
use std::path::Path;

use graph::StateSet;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::layout::{from_torchvision, permutation, to_torchvision};
use crate::error::EngineError;
use crate::model::Param;

/// What became of each parameter when weights were loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Names that were found and fit.
    pub loaded: Vec<String>,
    /// Names that the file does not hold.
    pub missing: Vec<String>,
    /// Names that the file holds with another shape, with that shape.
    pub mismatched: Vec<(String, Vec<usize>)>,
    /// Names of the file that the model does not have.
    pub unused: Vec<String>,
}

/// Loads the parameters that a safetensors file holds; the others keep their values.
///
/// # Errors
/// A file that cannot be read or is no safetensors file of f32 tensors.
pub fn load_weights(
    path: &Path,
    params: &[Param],
    state: &mut StateSet,
) -> Result<LoadReport, EngineError> {
    let fault = |reason: String| EngineError::Weights { path: path.to_path_buf(), reason };
    let bytes = std::fs::read(path).map_err(|e| fault(e.to_string()))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| fault(e.to_string()))?;
    let mut tensors = BTreeMap::new();
    for (name, view) in file.tensors() {
        if view.dtype() != Dtype::F32 {
            return Err(fault(format!("tensor `{name}` holds {:?}, not F32", view.dtype())));
        }
        let values = bytemuck::pod_collect_to_vec(view.data());
        tensors.insert(name, (view.shape().to_vec(), values));
    }
    Ok(weights_from_tensors(&tensors, params, state))
}

/// Loads parameters from tensors by torchvision's name: shape and values.
pub fn weights_from_tensors(
    tensors: &BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    params: &[Param],
    state: &mut StateSet,
) -> LoadReport {
    let mut report = LoadReport::default();
    for param in params {
        let (shape, _) = permutation(param);
        match tensors.get(&param.name) {
            None => report.missing.push(param.name.clone()),
            Some((theirs, _)) if *theirs != shape => {
                report.mismatched.push((param.name.clone(), theirs.clone()));
            }
            Some((_, values)) => {
                if let Some(tensor) = state.get_mut(&param.name) {
                    tensor.as_f32_mut().copy_from_slice(&from_torchvision(param, values));
                    report.loaded.push(param.name.clone());
                }
            }
        }
    }
    let known = |name: &&String| params.iter().any(|p| p.name == **name);
    report.unused = tensors.keys().filter(|n| !known(n)).cloned().collect();
    report
}

/// The parameters as the bytes of a safetensors file, `metadata` in its header.
///
/// # Errors
/// None in practice; what the format's writer reports is passed on.
pub fn save_weights(
    params: &[Param],
    state: &StateSet,
    metadata: std::collections::HashMap<String, String>,
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
