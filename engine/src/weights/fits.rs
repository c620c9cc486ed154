//! Errors about a weights file that does not match the config, with the presets that match.

use std::collections::BTreeMap;
use std::path::Path;

use configs::preset_names;

use crate::config::Config;
use device::Target;
use graph::StateSet;

use super::container::Values;
use super::conventions::disagreements;
use super::extent::Extent;
use super::file::WeightsFile;
use super::load::weights_from_tensors;
use super::report::{LoadReport, Tolerance, few};
use crate::error::EngineError;
use crate::model::{ModelSpec, detection_program};

/// Names of the presets that the tensors of a model with `classes` match and whose config agrees
/// with them; first those that leave the fewest tensors unused, and among these the most similar to
/// `config`.
pub(super) fn fitting(
    tensors: &BTreeMap<String, Values>,
    classes: usize,
    extent: Extent,
    config: &Config,
    agrees: impl Fn(&Config) -> bool,
) -> Vec<String> {
    let fit = |name: &str| {
        let preset = Config::load(name, &[]).ok().filter(&agrees)?;
        let classes = preset.model.classes_or(classes);
        let spec = ModelSpec::smallest(&preset, classes, Target::Cpu);
        let params = detection_program(&spec).ok()?.params;
        let report = weights_from_tensors(tensors, extent, &params, &mut StateSet::new());
        report.check(Path::new(""), Tolerance::Classes, "").ok()?;
        let differences = config.differences(&preset).ok()?.len();
        Some((report.unexpected.len(), differences, name.to_string()))
    };
    let mut found: Vec<_> = preset_names().filter_map(fit).collect();
    found.sort();
    found.into_iter().map(|(.., name)| name).collect()
}

/// Checks that the part of the config's model that `file` fills computes the same as in detectron2,
/// maskrcnn-benchmark or Tensorpack, unless `model.names_only` accepts differences. Files with
/// other names pass.
///
/// # Errors
/// [`EngineError::Usage`] with each difference.
pub fn check_agreement(
    file: &WeightsFile,
    extent: Extent,
    config: &Config,
) -> Result<(), EngineError> {
    let found = disagreements(file, extent, config);
    if found.is_empty() || config.model.names_only {
        return Ok(());
    }
    let mend = match file.dialect().rules().like {
        None => {
            let presets = file.presets(extent, config).into_iter();
            presets.chain(["detectron2_r50_3x".to_string()]).take(1).collect()
        }
        Some((preset, [])) => preset.to_string(),
        Some((preset, set)) => format!("{preset} with {}", set.join(" and ")),
    };
    Err(EngineError::Usage(format!(
        "{} has {project}'s names, and by its defaults {project}'s models do not have what this \
         config has: {}; extend {mend}, or set the config as the weights were trained, and take \
         them for what still differs with --names-only (model.names_only=true)",
        file.path().display(),
        found.join("; "),
        project = file.dialect().name(),
    )))
}

impl WeightsFile {
    /// Names of the presets that it matches, the most similar to `config` first.
    fn presets(&self, extent: Extent, config: &Config) -> Vec<String> {
        let tensors = self.tensors(config.model.backbone.norm_eps);
        let agrees = |preset: &Config| disagreements(self, extent, preset).is_empty();
        fitting(&tensors, self.num_classes().unwrap_or(1), extent, config, agrees)
    }

    /// Checks a report of loading this file like [`LoadReport::check`]; the error also lists the
    /// presets that match the file.
    ///
    /// # Errors
    /// [`EngineError::Weights`] with the first gaps by name, and the advice `mend`.
    pub fn check_fit(
        &self,
        report: &LoadReport,
        (extent, tolerance): (Extent, Tolerance),
        config: &Config,
        mend: &str,
    ) -> Result<(), EngineError> {
        report.check(self.path(), tolerance, mend).map_err(|fault| {
            let names = self.presets(extent, config);
            match fault {
                EngineError::Weights { path, reason } if !names.is_empty() => {
                    let reason = format!("{reason}; presets that it fits: {}", few(&names));
                    EngineError::Weights { path, reason }
                }
                fault => fault,
            }
        })
    }
}
