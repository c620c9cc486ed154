//! A trained model, as a run or a file holds it.

use std::path::Path;

use configs::Config;

use super::model::DetectionModel;
use crate::checkpoint;
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
    /// Class names with their COCO ids, in the order of labels from 1.
    pub categories: Vec<(String, u64)>,
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
        let classes = meta.categories.len().max(config.model.num_classes);
        let file = WeightsFile::open(&checkpoint::weights_path(&path))?;
        let (params, state) = whole_model(&config, classes, &file, backend, progress)?;
        Ok(Self { config, params, state, categories: meta.categories })
    }
}

/// The parameters of a model of `classes` foreground classes, all from the file.
fn whole_model(
    config: &Config,
    classes: usize,
    file: &WeightsFile,
    backend: &Backend,
    progress: &Progress,
) -> Result<(Vec<Param>, ModelState), EngineError> {
    let weights = Some((file, Extent::Model));
    let model = DetectionModel::new(config, classes, weights, backend)?;
    let path = file.path();
    if let Some(report) = &model.loaded {
        report.check(path, Tolerance::Nothing, MEND)?;
        progress.say(&format!("weights {}: {}", path.display(), report.describe()));
    }
    Ok((model.params, model.state))
}
