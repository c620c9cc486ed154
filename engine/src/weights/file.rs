//! A file of weights: safetensors under torchvision's names of either generation.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde::Deserialize;

use super::names::{CLASSIFIER, current, is_batch_counter};
use super::save::CATEGORIES;
use crate::classes::{NO_CATEGORY, NOT_AVAILABLE};
use crate::error::EngineError;

/// First bytes of the archive that `torch.save` writes, and of the bare pickle that it once wrote.
const TORCH_MAGIC: [&[u8]; 2] = [b"PK\x03\x04", b"\x80\x02"];

/// Shape and values under torchvision's layout.
pub type Values = (Vec<usize>, Vec<f32>);

/// The tensors of a file, by today's names.
#[derive(Debug)]
pub struct WeightsFile {
    path: PathBuf,
    tensors: BTreeMap<String, Values>,
    categories: Option<Vec<(String, u64)>>,
}

impl WeightsFile {
    /// Reads and checks a file. Counters of batch norms are left out: nothing uses them.
    ///
    /// # Errors
    /// [`EngineError::Weights`] if the file cannot be read, is no safetensors file, names a tensor
    /// twice (under its old and new name), or holds values that are not finite f32, or variances
    /// below 0.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let fault = |reason: String| EngineError::Weights { path: path.to_path_buf(), reason };
        let kind = fs::metadata(path).map_err(|e| fault(e.to_string()))?;
        if !kind.is_file() {
            return Err(fault("it is not a regular file".into()));
        }
        let bytes = fs::read(path).map_err(|e| fault(e.to_string()))?;
        if TORCH_MAGIC.iter().any(|magic| bytes.starts_with(magic)) {
            return Err(fault(convert(path)));
        }
        let file = SafeTensors::deserialize(&bytes)
            .map_err(|e| fault(format!("it is no whole safetensors file: {e}")))?;
        let mut tensors = BTreeMap::new();
        for (stored, view) in file.tensors().into_iter().filter(|(n, _)| !is_batch_counter(n)) {
            let values = values(&stored, &view).map_err(&fault)?;
            let name = current(&stored);
            if tensors.insert(name.clone(), (view.shape().to_vec(), values)).is_some() {
                let reason = format!("it holds `{name}` twice, under its old and its new name");
                return Err(fault(reason));
            }
        }
        let categories = categories(&bytes).map_err(&fault)?;
        Ok(Self { path: path.to_path_buf(), tensors, categories })
    }

    /// Where the file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Names and COCO ids of the model's classes, from class 1, if the file says.
    pub fn categories(&self) -> Option<&[(String, u64)]> {
        self.categories.as_deref()
    }

    /// Foreground classes of the classifier, if the file holds one.
    pub fn num_classes(&self) -> Option<usize> {
        let (shape, _) = self.tensors.get(CLASSIFIER)?;
        shape.first()?.checked_sub(1)
    }

    /// Shapes and values by name.
    pub fn tensors(&self) -> &BTreeMap<String, Values> {
        &self.tensors
    }
}

/// A class in the metadata.
#[derive(Debug, Deserialize)]
struct Category {
    id: u64,
    name: Option<String>,
}

/// The classes that the header's metadata states.
fn categories(file: &[u8]) -> Result<Option<Vec<(String, u64)>>, String> {
    let (_, header) = SafeTensors::read_metadata(file).map_err(|e| e.to_string())?;
    let stated = header.metadata().as_ref().and_then(|metadata| metadata.get(CATEGORIES));
    let Some(text) = stated else { return Ok(None) };
    let list: Vec<Category> = serde_json::from_str(text)
        .map_err(|e| format!("its metadata `{CATEGORIES}` is no list of ids and names: {e}"))?;
    // torchvision calls every class without a category so, and categories have distinct names.
    let is_not_available = |name: &String| name == NOT_AVAILABLE;
    let several = list.iter().filter_map(|c| c.name.as_ref()).filter(|n| is_not_available(n));
    let several = several.count() > 1;
    let named = |name: Option<String>| {
        let name = name.filter(|name| !(several && is_not_available(name)));
        name.unwrap_or_else(|| NO_CATEGORY.to_string())
    };
    Ok(Some(list.into_iter().map(|c| (named(c.name), c.id)).collect()))
}

/// The values of a tensor, or what is wrong with it.
fn values(name: &str, view: &TensorView<'_>) -> Result<Vec<f32>, String> {
    if view.dtype() != Dtype::F32 {
        let dtype = view.dtype();
        return Err(format!("tensor `{name}` holds {dtype:?}, not F32: save the weights as f32"));
    }
    let values: Vec<f32> = bytemuck::pod_collect_to_vec(view.data());
    if let Some(at) = values.iter().position(|value| !value.is_finite()) {
        return Err(format!("element {at} of tensor `{name}` is {}", values[at]));
    }
    let is_variance = name.ends_with(".running_var");
    match values.iter().position(|value| is_variance && *value < 0.0) {
        Some(at) => {
            let value = values[at];
            Err(format!("element {at} of tensor `{name}` is {value}, and no variance is negative"))
        }
        None => Ok(values),
    }
}

/// What to do with a file of PyTorch's own format.
fn convert(path: &Path) -> String {
    let (from, to) = (path.display(), path.with_extension("safetensors"));
    format!(
        "it is a PyTorch file; convert it with: python -c 'import torch, safetensors.torch as s; \
         s.save_file(torch.load(\"{from}\", map_location=\"cpu\"), \"{}\")'",
        to.display()
    )
}
