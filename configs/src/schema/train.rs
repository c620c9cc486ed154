//! `[train]` and `[eval]`: length of the run, batch, seed, logging, checkpoints and evaluation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[train]`: the training loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Train {
    /// Optimizer steps. Default 90000.
    #[schemars(range(min = 1, max = 1_000_000_000), extend("unit" = "steps"))]
    pub steps: u64,
    /// Images per step, over all ranks and micro-steps. Default 16.
    #[schemars(range(min = 1, max = 4096), extend("unit" = "images"))]
    pub batch_size: usize,
    /// Micro-steps per step: each runs a part of the batch, and their gradients add up. For batches
    /// that do not fit the device. Divides `batch_size`. Default 1.
    #[schemars(range(min = 1, max = 4096), extend("unit" = "micro-steps"))]
    pub micro_steps: usize,
    /// Images per loss mean (the reference's images per GPU); divides `batch_size / micro_steps`.
    /// Default 2.
    #[schemars(range(min = 1, max = 4096), extend("unit" = "images"))]
    pub images_per_group: usize,
    /// What a GPU computes in: `"fp16"` (default; activations, gradients and the weights that
    /// kernels read are fp16, all sums fp32), or to compare with it, slowly, `"fp32"`, or `"tf32"`
    /// (fp32 in memory, factors of matrix products rounded to 10 bits). The loss scale is then 1.
    /// Detection with the run's weights uses it too. The CPU computes in fp32 whatever this is.
    pub precision: Precision,
    /// Seed of weights, order, flips and sampling. Default 0.
    #[schemars(range(min = 0, max = i64::MAX))]
    pub seed: u64,
    /// Steps between evaluations. Default 0: only at the end.
    #[schemars(range(min = 0, max = 1_000_000_000), extend("unit" = "steps"))]
    pub eval_every_steps: u64,
    /// Epochs between evaluations. Default 0: only at the end.
    #[schemars(range(min = 0, max = 1_000_000_000), extend("unit" = "epochs"))]
    pub eval_every_epochs: u64,
    /// Steps between checkpoints. Default 0: none by steps. There is one before each evaluation and
    /// at the end.
    #[schemars(range(min = 0, max = 1_000_000_000), extend("unit" = "steps"))]
    pub checkpoint_every_steps: u64,
    /// Epochs between checkpoints. Default 1; 0 is none by epochs.
    #[schemars(range(min = 0, max = 1_000_000_000), extend("unit" = "epochs"))]
    pub checkpoint_every_epochs: u64,
    /// Minutes between checkpoints. Default 30; 0 is none by time.
    #[schemars(range(min = 0, max = 1_000_000), extend("unit" = "minutes"))]
    pub checkpoint_every_minutes: u64,
    /// Number of newest checkpoints kept. Default 3.
    #[schemars(range(min = 1, max = 1_000_000), extend("unit" = "checkpoints"))]
    pub keep_checkpoints: usize,
    /// Number of best checkpoints kept besides, by `best_metric`. Default 1.
    #[schemars(range(min = 0, max = 1_000_000), extend("unit" = "checkpoints"))]
    pub keep_best: usize,
    /// Score that compares evaluations: `"auto"` (default; mask AP if the model has masks, else box
    /// AP), `"box"` or `"mask"`.
    pub best_metric: BestMetric,
    /// Stop after this many evaluations in a row without a better score. Default 0: never.
    #[schemars(range(min = 0, max = 1_000_000_000), extend("unit" = "evaluations"))]
    pub patience: u64,
    /// Steps between log lines with losses and speed. Default 20; 0 is never.
    #[schemars(range(min = 0, max = 1_000_000_000), extend("unit" = "steps"))]
    pub log_every_steps: u64,
    /// With each log line, write mean and L2 norm of every weight and its gradient to TensorBoard.
    /// Default false: the update sums nothing.
    pub log_parameters: bool,
    /// Stop when box AP (0 to 1) reaches this, and `target_mask` too. Default: none.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "AP"))]
    pub target_box: Option<f64>,
    /// Stop when mask AP (0 to 1) reaches this, and `target_box` too. Default: none.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "AP"))]
    pub target_mask: Option<f64>,
    /// Folder that contains the run directories. Default `"runs"`.
    pub run_dir: String,
    /// The run's name. Default: none, derived from preset and time.
    pub name: Option<String>,
}

impl Train {
    /// Images per micro-step.
    pub fn micro_batch(&self) -> usize {
        self.batch_size / self.micro_steps
    }
}

impl Default for Train {
    fn default() -> Self {
        Self {
            steps: 90_000,
            batch_size: 16,
            micro_steps: 1,
            images_per_group: 2,
            precision: Precision::Fp16,
            seed: 0,
            eval_every_steps: 0,
            eval_every_epochs: 0,
            checkpoint_every_steps: 0,
            checkpoint_every_epochs: 1,
            checkpoint_every_minutes: 30,
            keep_checkpoints: 3,
            keep_best: 1,
            best_metric: BestMetric::Auto,
            patience: 0,
            log_every_steps: 20,
            log_parameters: false,
            target_box: None,
            target_mask: None,
            run_dir: "runs".to_string(),
            name: None,
        }
    }
}

/// What a GPU holds activations, gradients and weights in, and how it multiplies matrices of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Held in fp16, multiplied on tensor cores.
    #[default]
    Fp16,
    /// Held in fp32, multiplied on tensor cores in tf32.
    Tf32,
    /// Held and multiplied in fp32.
    Fp32,
}

impl Precision {
    /// Its name as a value of `train.precision`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp16 => "fp16",
            Self::Tf32 => "tf32",
            Self::Fp32 => "fp32",
        }
    }
}

/// Score that compares evaluations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BestMetric {
    /// Mask AP if the model has masks, else box AP.
    #[default]
    Auto,
    /// Box AP.
    Box,
    /// Mask AP.
    Mask,
}

/// `[eval]`: evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Eval {
    /// Images per forward pass. Default 8.
    #[schemars(range(min = 1, max = 1024), extend("unit" = "images"))]
    pub batch_size: usize,
    /// Evaluate only the first `max_images` images. Default 0: all.
    #[schemars(range(min = 0, max = 1_000_000_000), extend("unit" = "images"))]
    pub max_images: usize,
    /// Images drawn with their detections. Default 16.
    #[schemars(range(min = 0, max = 256), extend("unit" = "images"))]
    pub draw_images: usize,
    /// Evaluate on the training images, to watch a model overfit. Default false.
    pub train_set: bool,
    /// Score, save and report on other threads while training goes on; a target then ends the run
    /// some steps late, with the weights of the step that reached it. Default true; false waits.
    pub overlap: bool,
    /// Keep the images on the GPU from the first evaluation on, in up to half of its free memory.
    /// Default true.
    pub keep_images: bool,
}

impl Default for Eval {
    fn default() -> Self {
        Self {
            batch_size: 8,
            max_images: 0,
            draw_images: 16,
            train_set: false,
            overlap: true,
            keep_images: true,
        }
    }
}
