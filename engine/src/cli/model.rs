//! `--run` or `--weights`: which trained model a command takes.

use std::path::PathBuf;

use clap::Args;

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
    /// Weights of a whole model (safetensors, under torchvision's names).
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Config file or preset of --weights; by default the config.toml beside it.
    #[arg(long, value_name = "CONFIG", requires = "weights")]
    config: Option<PathBuf>,
}

impl ModelArgs {
    /// Opens the model.
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
                TrainedModel::from_weights(path, config, set, backend, progress)
            }
            (None, None) => Err(EngineError::Usage("give --run or --weights".into())),
        }
    }
}
