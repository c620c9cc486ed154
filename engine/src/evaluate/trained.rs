//! A trained model, from a run directory or a weights file.

use std::path::{Path, PathBuf};

use crate::config::{Config, Difference, EvalWeights, Set};
use dali::decode::Exif;
use serde_json::Value;

use super::EvaluationSet;
use super::model::DetectionModel;
use crate::checkpoint;
use crate::classes::{are_same, classes_by_number, coco_classes, describe_classes, why_unlike};
use crate::dataset::{DataSet, Split, identity_of, is_same_data};
use crate::error::EngineError;
use crate::model::Param;
use crate::progress::Progress;
use crate::remote;
use crate::run_dir::Choice;
use crate::runtime::{Backend, ModelState};
use crate::weights::{CATEGORIES, Extent, Tolerance, WeightsFile, check_agreement, fold};

/// Advice for weights that do not fit the config's model.
const MEND: &str = "give the config that the weights were trained with";

/// Prefixes of keys that detection and evaluation read from a config.
const READ: [&str; 9] = [
    "input.",
    "model.",
    "train.cpu_precision",
    "train.winograd",
    "data.",
    "eval.max_images",
    "eval.oks_sigmas",
    "eval.train_set",
    "eval.weights",
];

/// A model whose parameters were all loaded from a file.
#[derive(Debug)]
pub struct TrainedModel {
    /// The config that it was trained with, plus the caller's overrides.
    pub config: Config,
    /// Its parameters.
    pub params: Vec<Param>,
    /// Their values.
    pub state: ModelState,
    /// Names and COCO ids of its classes, from class 1, if they are stored.
    pub categories: Option<Vec<(String, u64)>>,
    /// Names of its keypoints; empty if none are stored.
    pub keypoints: Vec<String>,
    /// How EXIF orientations of its training images were treated; `None` if unknown, or if no image
    /// had one.
    pub exif: Option<Exif>,
    /// Its checkpoint, if it comes from a run.
    pub checkpoint: Option<TrainedCheckpoint>,
}

/// The checkpoint of a trained model.
#[derive(Debug)]
pub struct TrainedCheckpoint {
    path: PathBuf,
    /// Identity of its training data, if it is stored.
    data: Option<String>,
}

impl TrainedModel {
    /// Opens a checkpoint. `run` is the checkpoint, or a run directory, in which
    /// [`checkpoint::choose`] selects one.
    ///
    /// # Errors
    /// A damaged checkpoint, invalid overrides, or weights that do not contain all parameters of
    /// the config's model.
    pub fn open(
        run: &Path,
        overrides: &[String],
        backend: &Backend,
        progress: &Progress,
    ) -> Result<Self, EngineError> {
        let (path, _) = checkpoint::choose(run, Choice::Best)?;
        let (meta, _) = checkpoint::open(&path)?;
        let config = trained_with(&path.join("config.toml"), overrides, progress)?;
        let file = WeightsFile::open(&checkpoint::weights_path(&path))?;
        // The weights file is preferred: unlike the metadata, it distinguishes a class without a
        // category from a class named N/A.
        let stated = file.categories().map(<[_]>::to_vec).unwrap_or(meta.categories);
        let run = Config::load_to_detect(path.join("config.toml"), &[])?;
        let (has_averages, asked) = (run.train.ema_decay.is_some(), config.eval.weights);
        if sets_weights(overrides) && asked == EvalWeights::Ema && !has_averages {
            return Err(no_weights("the run has no averages of its weights (train.ema_decay)"));
        }
        let mut model = Self::whole(config, &file, Some(stated), backend, progress)?;
        if has_averages && asked != run.eval.weights {
            model.take_weights(&path, asked == EvalWeights::Ema)?;
        }
        model.checkpoint = Some(TrainedCheckpoint { path, data: meta.data });
        Ok(model)
    }

    /// Loads the kind of weights (averages or trained weights) that the checkpoint's weights file
    /// does not contain.
    fn take_weights(&mut self, path: &Path, averages: bool) -> Result<(), EngineError> {
        let (params, eps) = (&self.params, self.config.model.backbone.norm_eps);
        let names = params.iter().map(|param| param.name.clone()).collect();
        self.state.change(|state| {
            checkpoint::restore_tensors(path, state, names, averages)?;
            fold(state, params, eps);
            Ok(())
        })
    }

    /// Opens a weights file; `config` is a config file or a preset, by default the `config.toml`
    /// next to the weights.
    ///
    /// # Errors
    /// As for [`Self::open`]; [`EngineError::Usage`] if there is no config, or if another project's
    /// weights need a model that differs from the config's ([`check_agreement`]).
    pub fn from_weights(
        path: &Path,
        config: Option<&Path>,
        overrides: &[String],
        backend: &Backend,
        progress: &Progress,
    ) -> Result<Self, EngineError> {
        let config = match config {
            Some(config) => Config::load_to_detect(config, overrides)?,
            None => trained_with(&config_next_to(path)?, overrides, progress)?,
        };
        if sets_weights(overrides) {
            return Err(no_weights("a weights file holds only one set of weights"));
        }
        let file = WeightsFile::open(path)?;
        check_agreement(&file, Extent::Model, &config)?;
        let categories = file.categories().map(<[_]>::to_vec);
        Self::whole(config, &file, categories, backend, progress)
    }

    /// A model whose parameters all come from the file. `model.num_classes` 0 is replaced by the
    /// file's number of classes.
    fn whole(
        mut config: Config,
        file: &WeightsFile,
        categories: Option<Vec<(String, u64)>>,
        backend: &Backend,
        progress: &Progress,
    ) -> Result<Self, EngineError> {
        let stated = categories.as_ref().map(Vec::len);
        if let (Some(stated), Some(outputs)) = (stated, file.num_classes()) {
            check_number(stated, outputs, config.model.num_classes).map_err(|reason| {
                EngineError::Weights { path: file.path().to_path_buf(), reason }
            })?;
        }
        let classes = file.num_classes().or(stated).unwrap_or_default();
        config.model.num_classes = config.model.classes_or(classes.max(1));
        let weights = Some((file, Extent::Model));
        let model = DetectionModel::new(&config, config.model.num_classes, weights, backend)?;
        let path = file.path();
        if let Some(report) = &model.loaded {
            file.check_fit(report, (Extent::Model, Tolerance::Nothing), &config, MEND)?;
            progress.say(&format!("weights {}: {}", path.display(), report.describe()));
        }
        let (params, state, exif) = (model.params, model.state, checkpoint::exif_of(path));
        let has_keypoints = config.model.kind.has_keypoints();
        let keypoints = if has_keypoints { file.keypoints().to_vec() } else { vec![] };
        Ok(Self { config, params, state, categories, keypoints, exif, checkpoint: None })
    }

    /// Remarks for the user: class names are not stored, or EXIF orientations are not applied.
    pub fn remarks(&self) -> Vec<String> {
        let ours = self.config.model.num_classes;
        let is_coco = coco_classes(ours).is_some_and(|coco| coco == self.classes());
        let named = if is_coco { "assuming COCO's" } else { "they are numbered" };
        let unnamed = format!("the weights file does not name its {ours} classes: {named}");
        let unturned = "EXIF orientations of images are ignored, as they were in the training data \
                        (prep --exif ignore)";
        let unturned = (self.exif == Some(Exif::Ignore)).then(|| unturned.to_string());
        self.categories.is_none().then_some(unnamed).into_iter().chain(unturned).collect()
    }

    /// Names and COCO ids of the model's classes, from class 1. If they are not stored, COCO's
    /// classes are assumed if the number fits, else classes are numbered.
    pub fn classes(&self) -> Vec<(String, u64)> {
        let by_number = || classes_by_number(self.config.model.num_classes);
        self.categories.clone().unwrap_or_else(by_number)
    }

    /// Checks that the model's classes equal those of `data`, which was opened with the model's
    /// config.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if the classes differ, or if none are stored and the data's classes
    /// cannot be assumed ([`why_unlike`]).
    pub fn check_classes(&self, data: &DataSet) -> Result<(), EngineError> {
        let (path, of_data) = (data.store.to_string(), data.categories());
        let ours = self.config.model.num_classes;
        match &self.categories {
            Some(stated) if are_same(stated, &of_data) => Ok(()),
            Some(stated) => Err(EngineError::Usage(format!(
                "{path} has different classes than the model was trained on: it has {}, the model \
                 has {}",
                describe_classes(&of_data),
                describe_classes(stated)
            ))),
            None => why_unlike(ours, &of_data, &path).map_or(Ok(()), |why| {
                Err(EngineError::Usage(format!(
                    "the weights have {ours} classes without names; {why}: evaluate on data whose \
                     classes have the same numbers, or state the names in the weights file's \
                     metadata `{CATEGORIES}`"
                )))
            }),
        }
    }
}

impl TrainedCheckpoint {
    /// A warning if the model was trained on images of `set`, or if the training data is not
    /// available for the check.
    pub fn warn_of_shared(&self, set: &EvaluationSet) -> Option<String> {
        match self.training_data() {
            Some(data) => set.warn_of_shared(&data),
            None => Some(
                "the training set of the run was removed or changed, so it could not be searched \
                 for these images"
                    .into(),
            ),
        }
    }

    /// The run's training data, if it still exists and is unchanged.
    fn training_data(&self) -> Option<DataSet> {
        let path = self.path.canonicalize().ok()?;
        let report = std::fs::read(path.parent()?.parent()?.join("report.json")).ok()?;
        let report: Value = serde_json::from_slice(&report).ok()?;
        let mut config = Config::load_to_detect(path.join("config.toml"), &[]).ok()?;
        // Opens the stores that the report names; does not rebuild them from annotations.
        let stores = report["data"]["train"]["path"].as_str()?.split(" + ");
        let set = |store: &str| Set { store: Some(store.into()), ..Set::default() };
        config.data.train = stores.map(set).collect();
        let data = DataSet::open_index(&config, Split::Train, &Progress::quiet()).ok()?;
        is_same_data(self.data.as_ref()?, &identity_of(&data)).then_some(data)
    }
}

/// The config next to a weights file.
///
/// # Errors
/// [`EngineError::Usage`] if there is none.
pub(crate) fn config_next_to(weights: &Path) -> Result<PathBuf, EngineError> {
    let config = remote::sibling(&weights.with_file_name("config.toml"))?;
    if config.is_file() {
        return Ok(config);
    }
    let weights = weights.display();
    let message =
        format!("no config.toml next to {weights}: give the config of the weights with --config");
    Err(EngineError::Usage(message))
}

/// True if an override sets `eval.weights`.
fn sets_weights(overrides: &[String]) -> bool {
    overrides.iter().any(|set| set.trim_start().starts_with("eval.weights"))
}

fn no_weights(why: &str) -> EngineError {
    EngineError::Usage(format!("eval.weights: {why}; remove the key"))
}

/// Loads the config that a model was trained with, and applies the caller's overrides; prints the
/// overrides that affect detection or evaluation.
fn trained_with(
    path: &Path,
    overrides: &[String],
    progress: &Progress,
) -> Result<Config, EngineError> {
    let config = Config::load_to_detect(path, overrides)?;
    let changes = Config::load_to_detect(path, &[])?.differences(&config)?;
    let is_read = |change: &&Difference| {
        let Difference { key, to, .. } = change;
        // If synthetic data is disabled, its keys are not read.
        let is_gone = key.starts_with("data.synthetic.") && to == "none";
        READ.iter().any(|table| key.starts_with(table)) && key != "model.names_only" && !is_gone
    };
    for change in changes.iter().filter(is_read) {
        progress.say(&format!("changed since training: {change}"));
    }
    Ok(config)
}

/// Checks the number of classes that a file states against `outputs`, the classifier's outputs
/// without the background. A model may have more classes than its data has categories, but only if
/// its config sets `num_classes` (0: the number of categories).
fn check_number(stated: usize, outputs: usize, num_classes: usize) -> Result<(), String> {
    let mend = if stated == 0 || stated > outputs {
        "correct or remove the metadata".to_string()
    } else if stated < outputs && num_classes == 0 {
        format!(
            "if it was trained with more classes than its data had, set model.num_classes={outputs}"
        )
    } else {
        return Ok(());
    };
    Err(format!(
        "its metadata `{CATEGORIES}` states {stated} classes, but its classifier has {outputs}: \
         {mend}"
    ))
}

#[cfg(test)]
mod tests {
    use super::check_number;

    #[test]
    fn stated_class_count_is_checked_against_classifier() {
        for (stated, outputs, num_classes) in [(4, 4, 0), (4, 4, 4), (1, 4, 4), (90, 90, 0)] {
            assert_eq!(check_number(stated, outputs, num_classes), Ok(()));
        }
        for (stated, num_classes, mend) in
            [(0, 4, "or remove"), (5, 5, "or remove"), (1, 0, "model.num_classes=4")]
        {
            let refusal = check_number(stated, 4, num_classes).unwrap_err();
            assert!(refusal.contains(mend), "{refusal}");
        }
    }
}
