//! `--run` or `--weights`: which trained model a command takes.

use std::path::PathBuf;

use clap::Args;
use configs::Config;

use crate::EngineError;
use crate::evaluate::TrainedModel;
use crate::progress::Progress;
use crate::runtime::Backend;

/// A trained model: of a run, or a weights file with its config.
#[derive(Debug, Args)]
pub(super) struct ModelArgs {
    /// Run directory, whose last checkpoint is taken, or one of its checkpoints.
    #[arg(long, value_name = "RUN", conflicts_with = "weights")]
    run: Option<PathBuf>,
    /// Weights of a whole model: safetensors, .pth, .pkl or .npz, with the names of torchvision,
    /// detectron2, maskrcnn-benchmark or Tensorpack.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Config file or preset of --weights; by default the config.toml next to it.
    #[arg(long, value_name = "CONFIG", requires = "weights")]
    config: Option<PathBuf>,
    /// Exchange tensors even though the other project's model computes something different; what
    /// differs is listed.
    #[arg(long)]
    names_only: bool,
}

impl ModelArgs {
    /// True if differences that no tensor shows are accepted.
    pub(super) fn names_only(&self) -> bool {
        self.names_only
    }

    /// The config that the model is opened with.
    ///
    /// # Errors
    /// As for [`TrainedModel::config_of_run`]; [`EngineError::Usage`] without a model.
    pub(super) fn config(&self, set: &[String]) -> Result<Config, EngineError> {
        match (&self.run, &self.weights) {
            (Some(run), _) => TrainedModel::config_of_run(run, set),
            (None, Some(path)) => {
                TrainedModel::config_of_weights(path, self.config.as_deref(), set)
            }
            (None, None) => Err(without_model()),
        }
    }

    /// Opens the model.
    ///
    /// # Errors
    /// As for [`TrainedModel::open`] and [`TrainedModel::from_weights`].
    pub(super) fn open(
        &self,
        set: &[String],
        backend: &Backend,
        progress: &Progress,
    ) -> Result<TrainedModel, EngineError> {
        match (&self.run, &self.weights) {
            (Some(run), _) => TrainedModel::open(run, set, backend, progress),
            (None, Some(path)) => {
                let config = self.config.as_deref();
                let accepted = self.names_only.then(|| "model.names_only=true".to_string());
                let set: Vec<String> = set.iter().cloned().chain(accepted).collect();
                TrainedModel::from_weights(path, config, &set, backend, progress)
            }
            (None, None) => Err(without_model()),
        }
    }
}

fn without_model() -> EngineError {
    EngineError::Usage("give --run or --weights".into())
}
