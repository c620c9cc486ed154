//! Checks that a weights file matches the config. The error messages suggest presets that match.

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

/// Names of the presets whose models these tensors fit (with `classes` classes) and for which
/// `agrees` returns true. Presets that leave the fewest tensors unused come first; ties are ordered
/// by similarity to `config`.
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

/// For a file with names from detectron2, maskrcnn-benchmark or Tensorpack: checks that the
/// config's model computes the same as that project's, unless `model.names_only` is set. Other
/// files pass.
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
        "{} has {project}'s names, but this config has properties that {project}'s default model \
         lacks: {}; extend {mend}, or set the config as the weights were trained; --names-only \
         (model.names_only=true) accepts the remaining differences",
        file.path().display(),
        found.join("; "),
        project = file.dialect().name(),
    )))
}

impl WeightsFile {
    /// Names of the presets that the file fits, best first.
    fn presets(&self, extent: Extent, config: &Config) -> Vec<String> {
        let tensors = self.tensors(config.model.backbone.norm_eps);
        let agrees = |preset: &Config| disagreements(self, extent, preset).is_empty();
        fitting(&tensors, self.num_classes().unwrap_or(1), extent, config, agrees)
    }

    /// Like [`LoadReport::check`], for a report about loading this file. The error also lists
    /// presets that the file fits.
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
