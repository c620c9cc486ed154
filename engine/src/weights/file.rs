//! Reads a weights file of any supported format and project; tensors get current torchvision names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::json;

use super::container::{self, CATEGORIES, Container, Values};
use super::dialect::{self, Dialect};
use super::names::BODY;
use super::published;
use crate::classes::{NO_CATEGORY, NOT_AVAILABLE};
use crate::error::EngineError;
use crate::model::{class_rows, is_of_detector};
use crate::remote;

/// The tensors of a file, with current torchvision names.
#[derive(Debug)]
pub struct WeightsFile {
    path: PathBuf,
    /// Format of the file.
    pub(super) container: Container,
    dialect: Dialect,
    /// Shapes and values as in the file, by our names.
    pub(super) tensors: BTreeMap<String, Values>,
    /// Mean and standard deviation of pixels, in 0..255 and in the file's channel order, if the
    /// file has them (detectron2).
    pub(super) pixels: Option<[[f32; 3]; 2]>,
    categories: Option<Vec<(String, u64)>>,
    keypoints: Vec<String>,
    /// Notes about the file for the user, one line each.
    pub(super) notes: Vec<String>,
}

impl WeightsFile {
    /// Reads and checks a file: safetensors, `.pth` in either format, `.pkl` or `.npz`, with the
    /// names of any [`Dialect`]. Nothing in it is executed. Step counters of batch norms are
    /// skipped.
    ///
    /// # Errors
    /// [`EngineError::Weights`] if the file cannot be read, is damaged or of unknown format, does
    /// not match the checksum in its name, contains anything but tensors, contains a tensor twice
    /// (including under an old and a new name), or has values that are not finite or not exact in
    /// f32, or negative variances.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let path = &remote::local(path)?;
        let fault = |reason: String| EngineError::Weights { path: path.to_path_buf(), reason };
        let bytes = dali::file::read(path).map_err(|e| fault(e.to_string()))?;
        published::check(path, &bytes).map_err(&fault)?;
        let contents = container::read(&bytes).map_err(&fault)?;
        let translated = dialect::translate(contents.tensors).map_err(&fault)?;
        let dialect::Translated { dialect, tensors, pixels, notes } = translated;
        for (name, (_, values)) in &tensors {
            check(name, values).map_err(&fault)?;
        }
        let stated = contents.categories.as_deref().map(categories).transpose();
        let (categories, keypoints) = stated.map_err(&fault)?.unzip();
        let keypoints = keypoints.unwrap_or_default();
        let container = contents.container;
        let path = path.to_path_buf();
        Ok(Self { path, container, dialect, tensors, pixels, categories, keypoints, notes })
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The project whose tensor names the file uses.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// Names and COCO ids of the model's classes, from class 1, if the file contains them.
    pub fn categories(&self) -> Option<&[(String, u64)]> {
        self.categories.as_deref()
    }

    /// Names of the model's keypoints, in order; empty if the file does not contain them.
    pub fn keypoints(&self) -> &[String] {
        &self.keypoints
    }

    /// Number of foreground classes of the detector's classifier, if the file has one.
    pub fn num_classes(&self) -> Option<usize> {
        let rows = |bias: &str| self.tensors.get(bias)?.0.first().copied();
        class_rows(rows).map(|(_, classes)| classes)
    }

    /// True if the file contains a backbone and no other part of a detector, such as the weights of
    /// an ImageNet classifier.
    pub fn is_backbone(&self) -> bool {
        let has_body = |name: &String| {
            let bare = name.strip_prefix(BODY).unwrap_or(name);
            ["conv1.", "layer1.", "features."].iter().any(|first| bare.starts_with(first))
        };
        self.tensors.keys().any(has_body) && !self.tensors.keys().any(|name| is_of_detector(name))
    }

    /// True if the file's norms have statistics (mean and variance).
    pub(super) fn has_statistics(&self) -> bool {
        dialect::has_statistics(self.tensors.keys())
    }

    /// Shapes and values by name, for a model whose norms add `norm_eps` to the variance. In
    /// Detectron's files, the statistics of norms are adapted to `norm_eps`, or added if missing.
    pub fn tensors(&self, norm_eps: f64) -> BTreeMap<String, Values> {
        let mut tensors = self.tensors.clone();
        if self.dialect == Dialect::Detectron {
            dialect::fill_statistics(&mut tensors, norm_eps);
        }
        tensors
    }
}

/// Classes and keypoint names in a file.
type Stated = (Vec<(String, u64)>, Vec<String>);

/// A class in the file's metadata.
#[derive(Debug, Deserialize)]
struct Category {
    id: u64,
    name: Option<String>,
    #[serde(default)]
    keypoints: Vec<String>,
}

/// The JSON text that stores classes in files. The first class has the keypoint names, which apply
/// to all.
pub(super) fn stated(categories: &[(String, u64)], keypoints: &[String]) -> String {
    let class = |(name, id): &(String, u64)| {
        let name = Some(name).filter(|name| *name != NO_CATEGORY);
        json!({"id": id, "name": name})
    };
    let mut classes: Vec<_> = categories.iter().map(class).collect();
    if let Some(first) = classes.first_mut().filter(|_| !keypoints.is_empty()) {
        first["keypoints"] = json!(keypoints);
    }
    serde_json::Value::from(classes).to_string()
}

/// Parses the classes and keypoint names in a file.
fn categories(text: &str) -> Result<Stated, String> {
    let mut list: Vec<Category> = serde_json::from_str(text).map_err(|e| {
        format!("its metadata `{CATEGORIES}` is not a list of class ids and names: {e}")
    })?;
    let keypoints = list.first_mut().map(|first| std::mem::take(&mut first.keypoints));
    // If several classes have this name, it is torchvision's placeholder for classes without a
    // category, since names of categories are distinct.
    let is_not_available = |name: &String| name == NOT_AVAILABLE;
    let several = list.iter().filter_map(|c| c.name.as_ref()).filter(|n| is_not_available(n));
    let several = several.count() > 1;
    let named = |name: Option<String>| {
        let name = name.filter(|name| !(several && is_not_available(name)));
        name.unwrap_or_else(|| NO_CATEGORY.to_string())
    };
    let classes = list.into_iter().map(|c| (named(c.name), c.id)).collect();
    Ok((classes, keypoints.unwrap_or_default()))
}

/// Checks the values of a tensor.
fn check(name: &str, values: &[f32]) -> Result<(), String> {
    if let Some(at) = values.iter().position(|value| !value.is_finite()) {
        return Err(format!("element {at} of tensor `{name}` is {}", values[at]));
    }
    let is_variance = name.ends_with(".running_var");
    match values.iter().position(|value| is_variance && *value < 0.0) {
        Some(at) => {
            let value = values[at];
            Err(format!(
                "element {at} of tensor `{name}` is {value}, but a variance cannot be negative"
            ))
        }
        None => Ok(()),
    }
}
