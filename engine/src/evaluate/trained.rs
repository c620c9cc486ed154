//! A trained model, as a run or a file holds it.

use std::path::Path;

use configs::Config;

use super::model::DetectionModel;
use crate::checkpoint;
use crate::classes::{classes_by_number, describe_classes};
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::model::Param;
use crate::progress::Progress;
use crate::runtime::{Backend, ModelState};
use crate::weights::{Extent, Tolerance, WeightsFile};

/// What to do about weights of another model.
const MEND: &str = "give the config that the weights were trained with";

/// A model whose every parameter comes from a file.
#[derive(Debug)]
pub struct TrainedModel {
    /// The config of its training, with the caller's overrides.
    pub config: Config,
    /// Its parameters.
    pub params: Vec<Param>,
    /// Their values.
    pub state: ModelState,
    /// Names of its classes with their COCO ids, from class 1, if it states them.
    pub categories: Option<Vec<(String, u64)>>,
}

impl TrainedModel {
    /// Opens the last checkpoint of a run, or a checkpoint itself.
    ///
    /// # Errors
    /// A damaged checkpoint, overrides that are no config, or weights that do not fill the model of
    /// the config.
    pub fn open(
        run: &Path,
        overrides: &[String],
        backend: &Backend,
        progress: &Progress,
    ) -> Result<Self, EngineError> {
        let is_checkpoint = run.join("checkpoint.json").is_file();
        let path = if is_checkpoint { run.to_path_buf() } else { checkpoint::last(run)? };
        let (meta, _) = checkpoint::open(&path)?;
        let config = Config::load(path.join("config.toml"), overrides)?;
        let file = WeightsFile::open(&checkpoint::weights_path(&path))?;
        Self::whole(config, &file, Some(meta.categories), backend, progress)
    }

    /// Opens a weights file; `config` is a file or preset, by default the `config.toml` beside the
    /// weights.
    ///
    /// # Errors
    /// As for [`Self::open`]; [`EngineError::Usage`] without a config.
    pub fn from_weights(
        path: &Path,
        config: Option<&Path>,
        overrides: &[String],
        backend: &Backend,
        progress: &Progress,
    ) -> Result<Self, EngineError> {
        let beside = path.with_file_name("config.toml");
        let config = match config {
            Some(config) => config,
            None if beside.is_file() => &beside,
            None => {
                let path = path.display();
                let message = format!("no config.toml lies beside {path}: give its --config");
                return Err(EngineError::Usage(message));
            }
        };
        let config = Config::load(config, overrides)?;
        let file = WeightsFile::open(path)?;
        let categories = file.categories().map(<[_]>::to_vec);
        Self::whole(config, &file, categories, backend, progress)
    }

    /// A model whose parameters all come from the file; its config then names the classes.
    fn whole(
        mut config: Config,
        file: &WeightsFile,
        categories: Option<Vec<(String, u64)>>,
        backend: &Backend,
        progress: &Progress,
    ) -> Result<Self, EngineError> {
        let stated = categories.as_ref().map_or(0, Vec::len);
        config.model.num_classes =
            config.model.classes_or(file.num_classes().unwrap_or(stated).max(1));
        let weights = Some((file, Extent::Model));
        let model = DetectionModel::new(&config, config.model.num_classes, weights, backend)?;
        let path = file.path();
        if let Some(report) = &model.loaded {
            report.check(path, Tolerance::Nothing, MEND)?;
            progress.say(&format!("weights {}: {}", path.display(), report.describe()));
        }
        Ok(Self { config, params: model.params, state: model.state, categories })
    }

    /// Names of its classes with their COCO ids, from class 1: those that it states, else COCO's or
    /// numbers.
    pub fn classes(&self) -> Vec<(String, u64)> {
        let by_number = || classes_by_number(self.config.model.num_classes);
        self.categories.clone().unwrap_or_else(by_number)
    }

    /// Checks that the model's classes are those of the data, which was opened with its config.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if the model states other classes, or states none and has a number
    /// of them that the data does not explain.
    pub fn check_classes(&self, data: &DataSet) -> Result<(), EngineError> {
        let (path, of_data) = (data.store.path().display(), data.categories());
        let (ours, theirs) = (self.config.model.num_classes, data.num_classes());
        match &self.categories {
            Some(stated) if *stated == of_data => Ok(()),
            Some(stated) => Err(EngineError::Usage(format!(
                "{path} names other classes than the model was trained on: it has {}, the model {}",
                describe_classes(&of_data),
                describe_classes(stated)
            ))),
            None if ours == theirs => Ok(()),
            None if of_data.iter().all(|(_, id)| (1..=ours as u64).contains(id)) => Ok(()),
            None => Err(EngineError::Usage(format!(
                "the weights have {ours} classes and do not say which, and {path} has {theirs} \
                 whose ids are not among 1 to {ours}: evaluate on data with as many classes"
            ))),
        }
    }
}
