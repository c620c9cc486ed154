//! The initial weights of a run.

use std::path::Path;

use crate::config::Config;
use graph::StateSet;

use crate::classes::{are_same, coco_classes, describe_classes, why_unlike};
use crate::error::EngineError;
use crate::model::{Param, classes_of};
use crate::weights::{
    Extent, LoadReport, Tolerance, WeightsFile, check_agreement, fold, load_weights, map_classes,
    map_keypoints,
};

/// Advice for a weights file that does not fit the model.
const MEND: &str = "give the config that the weights were trained with, or --allow-partial \
                    to keep the initial values of parameters that do not fit";

/// The config's initial weights file: of the whole model if set, else of the backbone.
pub(super) fn file_of(config: &Config) -> Option<(&Path, Extent)> {
    let model = &config.model;
    let whole = model.weights.as_deref().map(|path| (path.as_ref(), Extent::Model));
    let body = model.backbone.weights.as_deref().map(|path| (path.as_ref(), Extent::Backbone));
    whole.or(body)
}

/// Loads the config's initial weights file, if there is one; `categories` and `keypoints` are the
/// model's. Parameters that depend on the classes are reinitialised if the file's classes differ.
///
/// # Errors
/// A file that cannot be read, that belongs to a different model, or that lacks required
/// parameters.
pub(super) fn load(
    config: &Config,
    (categories, keypoints): (&[(String, u64)], &[String]),
    params: &[Param],
    state: &mut StateSet,
) -> Result<Option<LoadReport>, EngineError> {
    let Some((path, asked)) = file_of(config) else { return Ok(None) };
    let file = WeightsFile::open(path)?;
    check_agreement(&file, asked, config)?;
    let others = others(&file, categories, params);
    let are_same = others.is_none()
        && file.categories().is_some()
        && file.num_classes() == Some(classes_of(params));
    let maps = asked == Extent::Model && config.model.finetune && !are_same;
    let extent = match asked {
        Extent::Model if maps || others.is_some() => Extent::AllButClasses,
        other => other,
    };
    let mut report = load_weights(&file, extent, config, params, state);
    let tolerance = match extent {
        Extent::Backbone => Tolerance::Nothing,
        Extent::Model | Extent::AllButClasses => Tolerance::Classes,
    };
    match config.model.allow_partial {
        true => report.check_some(path)?,
        false => file.check_fit(&report, (extent, tolerance), config, MEND)?,
    }
    if asked == Extent::Model && config.model.finetune && are_same {
        let classes = describe_classes(categories);
        report
            .notes
            .push(format!("the file has the data's classes, so all rows are kept: {classes}"));
    }
    if maps {
        finetune(&file, categories, params, state, &mut report);
    } else if asked == Extent::Model {
        report.notes.extend(note(&file, others, categories, params));
    }
    let seed = config.train.seed;
    report.notes.extend(map_keypoints(file.keypoints(), keypoints, seed, params, state));
    fold(state, params, config.model.backbone.norm_eps);
    Ok(Some(report))
}

/// The reason why the file's classes differ from the model's, which they may do even if their
/// number is equal; `None` if they do not differ.
fn others(file: &WeightsFile, categories: &[(String, u64)], params: &[Param]) -> Option<String> {
    if let Some(theirs) = file.categories() {
        return (!are_same(theirs, categories)).then(|| "the file's classes differ".to_string());
    }
    let theirs = file.num_classes().filter(|theirs| *theirs == classes_of(params))?;
    let why = why_unlike(theirs, categories, "the data")?;
    Some(format!("the file does not name its {theirs} classes; {why}"))
}

/// Copies the predictors' rows of the classes that have the same name in the file.
fn finetune(
    file: &WeightsFile,
    categories: &[(String, u64)],
    params: &[Param],
    state: &mut StateSet,
    report: &mut LoadReport,
) {
    let count = file.num_classes().unwrap_or(0);
    let stated = file.categories().map(<[_]>::to_vec);
    let is_stated = stated.is_some();
    let Some(theirs) = stated.or_else(|| coco_classes(count)) else {
        report.notes.push(format!(
            "warning: the predictors are reinitialised: the file does not name its {count} \
             classes, and COCO has 80 or 90"
        ));
        return;
    };
    if !is_stated {
        report.notes.push(format!("the file has no class names: assuming COCO's {count}"));
    }
    let mapped = map_classes(file, &theirs, categories, params, state);
    report.left.retain(|(name, _)| !mapped.params.contains(name));
    report.loaded.extend(mapped.params.iter().cloned());
    report.notes.push(mapped.describe());
}

/// A note: why the predictors are reinitialised, or which classes they are assumed to have.
fn note(
    file: &WeightsFile,
    others: Option<String>,
    categories: &[(String, u64)],
    params: &[Param],
) -> Option<String> {
    let (theirs, ours) = (file.num_classes()?, classes_of(params));
    if theirs != ours {
        return Some(format!(
            "the predictors are reinitialised: the file has {theirs} classes, the model {ours}; \
             model.num_classes={theirs} would keep them"
        ));
    }
    if let Some(why) = others {
        return Some(format!("the predictors are reinitialised: {why}"));
    }
    file.categories().is_none().then(|| {
        let classes = describe_classes(categories);
        format!("the file has no class names: the data's order is assumed, {classes}")
    })
}
