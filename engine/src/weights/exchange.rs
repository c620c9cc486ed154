//! Weights as safetensors under torchvision's names.

use std::collections::BTreeMap;
use std::path::Path;

use graph::StateSet;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};

use super::layout::{from_torchvision, permutation, to_torchvision};
use crate::error::EngineError;
use crate::model::Param;

/// Prefix of the backbone's parameters.
const BODY: &str = "backbone.body.";

/// The outcome for each parameter when weights are loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Names found with the right shape.
    pub loaded: Vec<String>,
    /// Names missing from the file.
    pub missing: Vec<String>,
    /// Names with another shape in the file, with that shape.
    pub mismatched: Vec<(String, Vec<usize>)>,
    /// Names in the file that the model does not have.
    pub unused: Vec<String>,
}

/// Loads the parameters that a safetensors file contains; the others keep their values.
///
/// Weights of a plain classifier, as published for ImageNet, lack the prefix `backbone.body.` and
/// are taken as the backbone's.
///
/// # Errors
/// A file that cannot be read or is not safetensors, a parameter that is not f32 in it, or a file
/// without any of the model's parameters.
pub fn load_weights(
    path: &Path,
    params: &[Param],
    state: &mut StateSet,
) -> Result<LoadReport, EngineError> {
    let fault = |reason: String| EngineError::Weights { path: path.to_path_buf(), reason };
    let bytes = std::fs::read(path).map_err(|e| fault(e.to_string()))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| fault(e.to_string()))?;
    let views = file.tensors();
    let holds = |name: &str| views.iter().any(|(theirs, _)| theirs == name);
    let short = |name: &str| name.strip_prefix(BODY).filter(|n| holds(n)).map(str::to_string);
    let names: BTreeMap<String, String> = params
        .iter()
        .filter(|p| !holds(&p.name))
        .filter_map(|p| Some((short(&p.name)?, p.name.clone())))
        .collect();
    let mut tensors = BTreeMap::new();
    for (theirs, view) in views {
        let name = names.get(&theirs).unwrap_or(&theirs).clone();
        if view.dtype() == Dtype::F32 {
            let values = bytemuck::pod_collect_to_vec(view.data());
            tensors.insert(name, (view.shape().to_vec(), values));
        } else if params.iter().any(|p| p.name == name) {
            return Err(fault(format!("tensor `{theirs}` holds {:?}, not F32", view.dtype())));
        }
    }
    let report = weights_from_tensors(&tensors, params, state);
    match (report.loaded.is_empty(), params.first()) {
        (true, Some(first)) => Err(fault(format!(
            "it holds none of the model's parameters, such as `{}` of shape {:?}; names and \
             layouts are torchvision's",
            first.name,
            permutation(first).0
        ))),
        _ => Ok(report),
    }
}

/// Loads parameters from tensors (shape and values) under torchvision's names.
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

impl LoadReport {
    /// The number of parameters found, and the first one that keeps its initial value.
    pub fn describe(&self) -> String {
        let left = self.missing.iter().chain(self.mismatched.iter().map(|(name, _)| name));
        let left: Vec<&String> = left.collect();
        let mut text = format!("{} parameters loaded", self.loaded.len());
        if let Some(first) = left.first() {
            text += &format!(", {} keep their initial values, such as `{first}`", left.len());
        }
        text
    }
}

/// The parameters as the bytes of a safetensors file, with `metadata` in its header.
///
/// # Errors
/// Errors of the safetensors writer; none in practice.
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
