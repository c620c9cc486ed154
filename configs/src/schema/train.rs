//! `[train]` and `[eval]`: length of the run, batch, seed, logging, checkpoints and evaluation.

use serde::{Deserialize, Serialize};

/// `[train]`: the training loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Train {
    /// Optimizer steps. Default 90000.
    pub steps: u64,
    /// Images per step, over all ranks and micro-steps. Default 16.
    pub batch_size: usize,
    /// Micro-steps per step: each runs a part of the batch, and their gradients add up. For batches
    /// that do not fit the device. Divides `batch_size`. Default 1.
    pub micro_steps: usize,
    /// Images per loss mean (the reference's images per GPU); divides `batch_size / micro_steps`.
    /// Default 2.
    pub images_per_group: usize,
    /// Seed of weights, order, flips and sampling. Default 0.
    pub seed: u64,
    /// Steps between evaluations. Default 0: only at the end.
    pub eval_every_steps: u64,
    /// Epochs between evaluations. Default 0: only at the end.
    pub eval_every_epochs: u64,
    /// Steps between checkpoints. Default 0: none by steps. There is one before each evaluation and
    /// at the end.
    pub checkpoint_every_steps: u64,
    /// Epochs between checkpoints. Default 1; 0 is none by epochs.
    pub checkpoint_every_epochs: u64,
    /// Minutes between checkpoints. Default 30; 0 is none by time.
    pub checkpoint_every_minutes: u64,
    /// Number of newest checkpoints kept. Default 3.
    pub keep_checkpoints: usize,
    /// Number of best checkpoints kept besides, by `best_metric`. Default 1.
    pub keep_best: usize,
    /// Score that compares evaluations: `"auto"` (default; mask AP if the model has masks, else box
    /// AP), `"box"` or `"mask"`.
    pub best_metric: BestMetric,
    /// Stop after this many evaluations in a row without a better score. Default 0: never.
    pub patience: u64,
    /// Steps between log lines with losses and speed. Default 20; 0 is never.
    pub log_every_steps: u64,
    /// Stop when box AP (0 to 1) reaches this, and `target_mask` too. Default: none.
    pub target_box: Option<f64>,
    /// Stop when mask AP (0 to 1) reaches this, and `target_box` too. Default: none.
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
            target_box: None,
            target_mask: None,
            run_dir: "runs".to_string(),
            name: None,
        }
    }
}

/// Score that compares evaluations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Eval {
    /// Images per forward pass. Default 8.
    pub batch_size: usize,
    /// Evaluate only the first `max_images` images. Default 0: all.
    pub max_images: usize,
    /// Images drawn with their detections. Default 16.
    pub draw_images: usize,
    /// Evaluate on the training images, to watch a model overfit. Default false.
    pub train_set: bool,
}

impl Default for Eval {
    fn default() -> Self {
        Self { batch_size: 8, max_images: 0, draw_images: 16, train_set: false }
    }
}
