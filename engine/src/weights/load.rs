//! Fills a model's parameters from the tensors of a file.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Config;
use graph::StateSet;

use super::container::Values;
use super::conventions::{contradictions, warnings};
use super::extent::Extent;
use super::file::WeightsFile;
use super::layout::{from_torchvision, torchvision_shape};
use super::names::{BODY, part};
use super::report::{LoadReport, Mismatch};
use crate::model::Param;

/// Loads the parameters in `extent` from the file; all others keep their values. The caller must
/// check for missing parameters with [`LoadReport::check`], and fold frozen norms with
/// [`super::fold`].
///
/// The notes of the report include warnings about contradictions between `config` and the file's
/// origin.
pub fn load_weights(
    file: &WeightsFile,
    extent: Extent,
    config: &Config,
    params: &[Param],
    state: &mut StateSet,
) -> LoadReport {
    let tensors = file.tensors(config.model.backbone.norm_eps);
    let mut report = weights_from_tensors(&tensors, extent, params, state);
    report.notes.extend(file.notes.iter().cloned().chain(contradictions(file, config)));
    report.notes.extend(warnings(file, extent, config));
    report.log(file.path());
    report
}

/// Like [`load_weights`], from tensors (shape and values) with torchvision's names.
///
/// If no name begins with `backbone.`, names of backbone layers may lack this prefix, as in
/// published files of classifiers.
pub fn weights_from_tensors(
    tensors: &BTreeMap<String, Values>,
    extent: Extent,
    params: &[Param],
    state: &mut StateSet,
) -> LoadReport {
    let mut report = LoadReport::default();
    let wanted: Vec<&Param> = params.iter().filter(|p| extent.holds(p)).collect();
    let left = params.iter().filter(|p| !extent.holds(p));
    report.left = left.map(|p| (p.name.clone(), torchvision_shape(p))).collect();
    let bare = bare_layers(tensors, params);
    let full_name = |stored: &str| match bare.contains(first(stored)) {
        true => format!("{BODY}{stored}"),
        false => stored.to_string(),
    };
    let found: BTreeMap<String, &Values> =
        tensors.iter().map(|(stored, values)| (full_name(stored), values)).collect();
    for param in &wanted {
        let (name, model) = (param.name.clone(), torchvision_shape(param));
        match found.get(&name) {
            None => report.missing.push((name, model)),
            Some((file, _)) if *file != model => {
                report.mismatched.push(Mismatch { name, model, file: file.clone() });
            }
            Some((_, values)) => {
                if let Some(tensor) = state.get_mut(&name) {
                    tensor.as_f32_mut().copy_from_slice(&from_torchvision(param, values));
                }
                report.loaded.push(name);
            }
        }
    }
    let parts: BTreeSet<&str> = wanted.iter().map(|p| part(&p.name)).collect();
    let parts: Vec<&str> = parts.into_iter().collect();
    let known: BTreeSet<&str> = params.iter().map(|p| p.name.as_str()).collect();
    for (name, (shape, _)) in found.iter().filter(|(name, _)| !known.contains(name.as_str())) {
        report.add_unexpected(name, shape, &parts);
    }
    report
}

/// Names of backbone layers that may occur without the prefix; empty for the file of a detector.
fn bare_layers<'a>(tensors: &BTreeMap<String, Values>, params: &'a [Param]) -> BTreeSet<&'a str> {
    if tensors.keys().any(|name| name.starts_with("backbone.")) {
        return BTreeSet::new();
    }
    params.iter().filter_map(|p| p.name.strip_prefix(BODY)).map(first).collect()
}

fn first(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}
