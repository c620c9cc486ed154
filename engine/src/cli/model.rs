//! Options that select a trained model (`--run` or `--weights`) and override its config.

use std::path::PathBuf;

use crate::config::Config;
use clap::Args;

use crate::EngineError;
use crate::checkpoint;
use crate::evaluate::{TrainedModel, config_next_to};
use crate::progress::Progress;
use crate::run_dir::Choice;
use crate::runtime::Backend;

/// A trained model: a run, or a weights file with its config.
#[derive(Debug, Args)]
pub(super) struct ModelArgs {
    /// Run directory, whose checkpoint is selected by --checkpoint, or a checkpoint directory.
    #[arg(long, value_name = "RUN", conflicts_with = "weights")]
    run: Option<PathBuf>,
    /// Checkpoint of the run to use.
    #[arg(long, value_enum, default_value = "best", requires = "run", conflicts_with = "weights")]
    checkpoint: Choice,
    /// Weights file of a complete model: safetensors, .pth, .pkl or .npz, with the tensor names
    /// used by torchvision, detectron2, maskrcnn-benchmark or Tensorpack.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Config file or preset for --weights. Default: the config.toml in the same directory.
    #[arg(long, value_name = "CONFIG", requires = "weights")]
    config: Option<PathBuf>,
    /// Read or write weights although the other project's model computes something different from
    /// the same tensors. The differences are listed.
    #[arg(long)]
    names_only: bool,
    /// Override a value of the model's config, such as --set model.detections.per_image=20 or
    /// --set data.val_store=DIR.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
}

impl ModelArgs {
    /// True if weights may be loaded or exported even if the two projects' models compute different
    /// results from the same tensors.
    pub(super) fn names_only(&self) -> bool {
        self.names_only
    }

    /// The config of the model, with the overrides.
    ///
    /// # Errors
    /// A missing checkpoint, or invalid overrides; [`EngineError::Usage`] if no model was given.
    pub(super) fn config(&self) -> Result<Config, EngineError> {
        let path = match (&self.run, &self.config, &self.weights) {
            (Some(run), ..) => checkpoint::choose(run, self.checkpoint)?.0.join("config.toml"),
            (None, Some(config), _) => config.clone(),
            (None, None, Some(weights)) => config_next_to(weights)?,
            (None, None, None) => return Err(without_model()),
        };
        Ok(Config::load_to_detect(path, &self.set)?)
    }

    /// Opens the model. For a run, also prints which checkpoint is used.
    ///
    /// # Errors
    /// As for [`TrainedModel::open`] and [`TrainedModel::from_weights`].
    pub(super) fn open(
        &self,
        backend: &Backend,
        progress: &Progress,
    ) -> Result<TrainedModel, EngineError> {
        match (&self.run, &self.weights) {
            (Some(run), _) => {
                let (run, line) = checkpoint::choose(run, self.checkpoint)?;
                progress.say(&line);
                TrainedModel::open(&run, &self.set, backend, progress)
            }
            (None, Some(path)) => {
                let config = self.config.as_deref();
                let accepted = self.names_only.then(|| "model.names_only=true".to_string());
                let set: Vec<String> = self.set.iter().cloned().chain(accepted).collect();
                TrainedModel::from_weights(path, config, &set, backend, progress)
            }
            (None, None) => Err(without_model()),
        }
    }
}

fn without_model() -> EngineError {
    EngineError::Usage("give --run or --weights".into())
}
