//! `--run` or `--weights`: which trained model a command takes.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::EngineError;
use crate::evaluate::TrainedModel;
use crate::progress::Progress;
use crate::runtime::Backend;
use crate::weights::{Dialect, differences};

/// A trained model: of a run, or a weights file with its config.
#[derive(Debug, Args)]
pub(super) struct ModelArgs {
    /// Run directory, whose last checkpoint is taken, or one of its checkpoints.
    #[arg(long, value_name = "RUN", conflicts_with = "weights")]
    run: Option<PathBuf>,
    /// Weights of a whole model: safetensors, .pth or .pkl, with the names of torchvision or
    /// detectron2.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Config file or preset of --weights; by default the config.toml beside it.
    #[arg(long, value_name = "CONFIG", requires = "weights")]
    config: Option<PathBuf>,
    /// Exchange the tensors with another project although its models differ from this one in what
    /// no tensor tells.
    #[arg(long)]
    names_only: bool,
}

impl ModelArgs {
    /// Whether differences that no tensor tells are accepted.
    pub(super) fn names_only(&self) -> bool {
        self.names_only
    }

    /// Opens the model, to detect with it.
    ///
    /// # Errors
    /// As for [`TrainedModel::open`]; [`EngineError::Usage`] if the weights are those of a model
    /// that the config cannot describe, unless that is accepted.
    pub(super) fn open_to_detect(
        &self,
        set: &[String],
        backend: &Backend,
        progress: &Progress,
    ) -> Result<TrainedModel, EngineError> {
        let model = self.open(set, backend, progress)?;
        let found = match model.dialect {
            Dialect::Detectron2 => differences(&model.config, Dialect::Detectron2),
            Dialect::Torchvision | Dialect::Detectron => vec![],
        };
        if found.is_empty() || self.names_only {
            return Ok(model);
        }
        let file = self.weights.as_deref().unwrap_or(Path::new("the file")).display();
        Err(EngineError::Usage(format!(
            "{file} has detectron2's names, and its models do not have what this config has: {}; \
             --names-only takes the weights all the same",
            found.join("; ")
        )))
    }

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
