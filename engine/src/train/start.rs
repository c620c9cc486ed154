//! The weights that a run starts from.

use std::path::Path;

use configs::Config;
use graph::StateSet;

use crate::error::EngineError;
use crate::model::Param;
use crate::weights::{Extent, LoadReport, Tolerance, WeightsFile, fold, load_weights};

/// How a run begins that accepts what its file lacks.
const MEND: &str = "give the config that the weights were trained with, or train what does not \
                    fit from initial values with --allow-partial";

/// The file that the config starts from: a whole model's or a backbone's.
pub(super) fn file_of(config: &Config) -> Option<(&Path, Extent)> {
    let model = &config.model;
    let whole = model.weights.as_deref().map(|path| (path.as_ref(), Extent::Model));
    let body = model.backbone.weights.as_deref().map(|path| (path.as_ref(), Extent::Backbone));
    whole.or(body)
}

/// Loads the file that the config starts from, if there is one.
///
/// # Errors
/// A file that cannot be read, or that does not fill what it should.
pub(super) fn load(
    config: &Config,
    params: &[Param],
    state: &mut StateSet,
) -> Result<Option<LoadReport>, EngineError> {
    let Some((path, extent)) = file_of(config) else { return Ok(None) };
    let file = WeightsFile::open(path)?;
    let report = load_weights(&file, extent, params, state);
    let tolerance = match extent {
        Extent::Backbone => Tolerance::Nothing,
        Extent::Model | Extent::AllButClasses => Tolerance::Classes,
    };
    if !config.model.allow_partial {
        report.check(path, tolerance, MEND)?;
    }
    fold(state, params, config.model.backbone.norm_eps);
    Ok(Some(report))
}
