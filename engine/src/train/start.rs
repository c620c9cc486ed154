//! The weights that a run starts from.

use std::path::Path;

use configs::Config;
use graph::StateSet;

use crate::error::EngineError;
use crate::model::{Param, classes_of};
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

/// Loads the file that the config starts from, if there is one; `categories` are the classes of the
/// model. What depends on the classes starts anew if the file states others.
///
/// # Errors
/// A file that cannot be read, or that does not fill what it should.
pub(super) fn load(
    config: &Config,
    categories: &[(String, u64)],
    params: &[Param],
    state: &mut StateSet,
) -> Result<Option<LoadReport>, EngineError> {
    let Some((path, asked)) = file_of(config) else { return Ok(None) };
    let file = WeightsFile::open(path)?;
    let has_others = file.categories().is_some_and(|theirs| theirs != categories);
    let extent = match asked {
        Extent::Model if has_others => Extent::AllButClasses,
        other => other,
    };
    let mut report = load_weights(&file, extent, params, state);
    let tolerance = match extent {
        Extent::Backbone => Tolerance::Nothing,
        Extent::Model | Extent::AllButClasses => Tolerance::Classes,
    };
    if !config.model.allow_partial {
        report.check(path, tolerance, MEND)?;
    }
    if asked == Extent::Model {
        report.note = note(&file, has_others, params);
    }
    fold(state, params, config.model.backbone.norm_eps);
    Ok(Some(report))
}

/// Why the predictors start anew, if they do.
fn note(file: &WeightsFile, has_others: bool, params: &[Param]) -> Option<String> {
    let (theirs, ours) = (file.num_classes()?, classes_of(params));
    if theirs != ours {
        return Some(format!(
            "the predictors start anew: the file has {theirs} classes, the model {ours}; \
             model.num_classes={theirs} would keep them"
        ));
    }
    has_others.then(|| "the predictors start anew: the file's classes are others".to_string())
}
