//! Serializes a model's weights with torchvision's or detectron2's names.

use std::path::Path;

use graph::StateSet;
use kernels::cpu::HostTensor;

use super::container::{Values, safetensors_bytes, torch_bytes};
use super::dialect::{Dialect, EPS};
use super::file::stated;
use super::layout::to_torchvision;
use crate::error::EngineError;
use crate::model::{AVERAGE, Param};

/// Names and COCO ids of a model's classes, and names of its keypoints.
pub type Classes<'a> = (&'a [(String, u64)], &'a [String]);

/// The format of an exported file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExportForm {
    /// `.safetensors`.
    Safetensors,
    /// `.pth`, which `torch.load(weights_only=True)` reads.
    Torch,
}

impl ExportForm {
    /// The format for a file extension.
    ///
    /// # Errors
    /// [`EngineError::Usage`] for any other extension.
    pub fn of(path: &Path) -> Result<Self, EngineError> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("safetensors") => Ok(Self::Safetensors),
            Some("pth" | "pt") => Ok(Self::Torch),
            _ => Err(EngineError::Usage(format!(
                "--out {}: the name must end in .safetensors or .pth, which selects the format",
                path.display()
            ))),
        }
    }
}

/// The bytes of a weights file with the parameters and, if known, the model's classes and
/// keypoints.
///
/// # Errors
/// Errors of the writers; none in practice.
pub fn export_weights(
    params: &[Param],
    state: &StateSet,
    classes: Option<Classes<'_>>,
    form: ExportForm,
    dialect: Dialect,
) -> Result<Vec<u8>, EngineError> {
    write_weights(params, &|name| state.get(name), classes, form, dialect)
}

/// Converts the variances of norms that add `eps` for norms that add other projects' `EPS`, so that
/// the folded scales and shifts stay the same. A variance that would become negative is set to 0,
/// and the weight is scaled instead.
pub fn fold_eps(params: &[Param], state: &mut StateSet, eps: f64) {
    for norm in params.iter().filter_map(|param| param.name.strip_suffix(".running_var")) {
        let [weight, variance] = ["weight", "running_var"].map(|what| format!("{norm}.{what}"));
        let mut factors = Vec::new();
        for variance in state.get_mut(&variance).into_iter().flat_map(HostTensor::as_f32_mut) {
            let sum = f64::from(*variance) + eps;
            *variance = (sum - EPS).max(0.0) as f32;
            factors.push((EPS / sum).sqrt().max(1.0) as f32);
        }
        let weights = state.get_mut(&weight).into_iter().flat_map(HostTensor::as_f32_mut);
        weights.zip(&factors).for_each(|(weight, factor)| *weight *= factor);
    }
}

fn write_weights<'a>(
    params: &[Param],
    tensor: &dyn Fn(&str) -> Option<&'a HostTensor>,
    classes: Option<Classes<'_>>,
    form: ExportForm,
    dialect: Dialect,
) -> Result<Vec<u8>, EngineError> {
    let ours: Vec<(String, Values)> = params
        .iter()
        .filter_map(|p| {
            let values = to_torchvision(p, tensor(&p.name)?.as_f32());
            Some((p.name.clone(), values))
        })
        .collect();
    let tensors = match dialect {
        // Current torchvision names, which are ours.
        Dialect::Torchvision => ours,
        other => other.export(ours),
    };
    let classes = classes.map(|(categories, keypoints)| stated(categories, keypoints));
    let bytes = match form {
        ExportForm::Safetensors => safetensors_bytes(&tensors, classes.as_deref()),
        ExportForm::Torch => torch_bytes(&tensors, classes.as_deref()),
    };
    bytes.map_err(|reason| EngineError::Weights { path: "(in memory)".into(), reason })
}

/// The bytes of a checkpoint's safetensors file, with torchvision's names. With `averages`,
/// parameters are replaced by their moving averages.
///
/// # Errors
/// As for [`export_weights`].
pub fn save_weights(
    params: &[Param],
    state: &StateSet,
    classes: Classes<'_>,
    averages: bool,
) -> Result<Vec<u8>, EngineError> {
    let (form, dialect) = (ExportForm::Safetensors, Dialect::Torchvision);
    let average = |name: &str| state.get(&format!("{AVERAGE}{name}"));
    let scored = |name: &str| average(name).filter(|_| averages).or_else(|| state.get(name));
    write_weights(params, &scored, Some(classes), form, dialect)
}
