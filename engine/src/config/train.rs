//! `[train]` and `[eval]`: length of the run, batch, seed, logging, checkpoints and evaluation.

use choices::{CpuPrecision, Precision};
use configs::table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::train::after_step::collect::LogRule;

table! {
    /// `[train]`: the training loop.
    pub struct Train {
        /// Optimizer steps. Default 90000; 0 if `epochs` is set.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Length, mlperf = Rule)]
        pub steps: u64 = 90_000,
        /// Epochs of the run, instead of `steps`; `config.toml` of the run has both. Default: none.
        #[key(range = 0.0..=1e6, unit = "epochs", resume = Free, mlperf = Free)]
        pub epochs: Option<f64> = None,
        /// Images per step, over all ranks and micro-steps. Default 16.
        #[key(range = 1..=4096, unit = "images", resume = Step, mlperf = Rule)]
        pub batch_size: usize = 16,
        /// Micro-steps per step: each processes a part of the batch, and gradients are accumulated,
        /// for batches that do not fit the device. Divides `batch_size`. Default 1.
        #[key(range = 1..=4096, unit = "micro-steps", resume = Step, mlperf = Free)]
        pub micro_steps: usize = 1,
        /// Images per loss mean (the reference's images per GPU); divides `batch_size /
        /// micro_steps`. Default 2; 0 is the largest divisor up to 2. If an override changes the
        /// batch size, it becomes the largest divisor up to its former value.
        #[key(range = 0..=4096, unit = "images", resume = Step, mlperf = Rule)]
        pub images_per_group: usize = 2,
        /// Precision on a GPU: `"fp16"` (default; activations, gradients and weights read by
        /// kernels are fp16, all accumulation fp32), or for comparison, slowly, `"fp32"` or
        /// `"tf32"` (fp32 in memory, GEMM operands rounded to 10 bits), with a loss scale of 1.
        /// Detection with the run's weights uses it too. Not used on a CPU.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub precision: Precision = Precision::Fp16,
        /// Precision of GEMMs on a CPU: `"fp32"` (default), or `"bf16"` (bf16 operands, fp32
        /// accumulation), which requires AVX512_BF16, is faster, and changes results. Detection
        /// with the run's weights uses it too. Not used on a GPU.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub cpu_precision: CpuPrecision = CpuPrecision::Fp32,
        /// Use Winograd F(2x2, 3x3) for 3x3 convolutions on a CPU where it is faster, with about
        /// twice the rounding error. Default true. Detection with the run's weights uses it too.
        /// Not used on a GPU.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub winograd: bool = true,
        /// Seed of weights, order, flips and sampling. Default 0.
        #[key(range = 0..=i64::MAX, resume = Step, mlperf = Rule)]
        pub seed: u64 = 0,
        /// Steps between evaluations. Default 0: only at the end.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Free, mlperf = Quality)]
        pub eval_every_steps: u64 = 0,
        /// Epochs between evaluations. Default 0: only at the end.
        #[key(range = 0..=1_000_000_000, unit = "epochs", resume = Free, mlperf = Quality)]
        pub eval_every_epochs: u64 = 0,
        /// Evaluate the initial weights, as step 0. Default false.
        #[key(resume = Free, mlperf = Quality)]
        pub eval_at_start: bool = false,
        /// Evaluate the last step, if it was not evaluated already. Default true.
        #[key(resume = Free, mlperf = Quality)]
        pub eval_at_end: bool = true,
        /// Steps between checkpoints. Default 0: none. A checkpoint is always saved before each
        /// evaluation and at the end.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Free, mlperf = Free)]
        pub checkpoint_every_steps: u64 = 0,
        /// Epochs between checkpoints. Default 1; 0 is none.
        #[key(range = 0..=1_000_000_000, unit = "epochs", resume = Free, mlperf = Free)]
        pub checkpoint_every_epochs: u64 = 1,
        /// Minutes between checkpoints. Default 30; 0 is none.
        #[key(range = 0..=1_000_000, unit = "minutes", resume = Free, mlperf = Free)]
        pub checkpoint_every_minutes: u64 = 30,
        /// Number of newest checkpoints kept. Default 3.
        #[key(range = 1..=1_000_000, unit = "checkpoints", resume = Free, mlperf = Free)]
        pub keep_checkpoints: usize = 3,
        /// Number of best checkpoints kept in addition, by `best_metric`. Default 1.
        #[key(range = 0..=1_000_000, unit = "checkpoints", resume = Free, mlperf = Free)]
        pub keep_best: usize = 1,
        /// Metric that compares evaluations: `"auto"` (default; mask or keypoint AP if the model
        /// has them, else box AP), `"box"`, `"mask"` or `"keypoint"`.
        #[key(resume = Free, mlperf = Free)]
        pub best_metric: BestMetric = BestMetric::Auto,
        /// Keep an exponential moving average of the trained parameters, to evaluate and save
        /// (`eval.weights`), with this decay, such as 0.9998, below 1. Skipped steps do not update
        /// it. Default: none.
        #[key(range = 0.0..=1.0, unit = "part", resume = State, mlperf = Hyperparameter)]
        pub ema_decay: Option<f64> = None,
        /// Steps over which `ema_decay` warms up: the decay after step t is `ema_decay * (1 -
        /// exp(-t / ema_warmup_steps))`, so that the initial weights are forgotten quickly. Default
        /// 2000; 0: none.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Step, mlperf = Hyperparameter)]
        pub ema_warmup_steps: u64 = 2000,
        /// Stop after this many consecutive evaluations without a better score, counted from the
        /// first of at least 0.001. Default 0: never.
        #[key(range = 0..=1_000_000_000, unit = "evaluations",
              resume = Free, mlperf = Hyperparameter)]
        pub patience: u64 = 0,
        /// Steps between log lines with losses and speed. Default 20; 0 is never.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Free, mlperf = Free)]
        pub log_every_steps: u64 = 20,
        /// With each log line, write mean and L2 norm of every weight and its gradient to
        /// TensorBoard. Default false.
        #[key(resume = Free, mlperf = Free)]
        pub log_parameters: bool = false,
        /// Statistics of weights, gradients and activations at regular steps. Default `[]`.
        #[key(resume = Free, mlperf = Free)]
        pub log: Vec<LogRule> = Vec::new(),
        /// Compute accuracies in each training step, of RoIs, anchors, objects and mask pixels
        /// (`docs/metrics.md`). Default false: on a GPU they take two launches per step. They do
        /// not affect training.
        #[key(resume = Free, mlperf = Free)]
        pub accuracies: bool = false,
        /// Stop when box AP (0 to 1) reaches this, and the other targets too. Default: none.
        #[key(range = 0.0..=1.0, unit = "AP", resume = Free, mlperf = Rule)]
        pub target_box: Option<f64> = None,
        /// Stop when mask AP (0 to 1) reaches this, and the other targets too. Default: none.
        #[key(range = 0.0..=1.0, unit = "AP", resume = Free, mlperf = Rule)]
        pub target_mask: Option<f64> = None,
        /// Stop when keypoint AP (0 to 1) reaches this, and the other targets too. Default: none.
        #[key(range = 0.0..=1.0, unit = "AP", resume = Free, mlperf = Rule)]
        pub target_keypoint: Option<f64> = None,
        /// Folder that contains the run directories. Default `"runs"`.
        #[key(resume = Free, mlperf = Free)]
        pub run_dir: String = "runs".to_string(),
        /// The run's name. Default: none, the file name of the config.
        #[key(resume = Free, mlperf = Free)]
        pub name: Option<String> = None,
    }
}

impl Train {
    /// Images per micro-step.
    pub fn micro_batch(&self) -> usize {
        self.batch_size / self.micro_steps
    }

    /// The largest number of images up to `most` that divides a micro-step.
    pub(crate) fn largest_group(&self, most: usize) -> usize {
        let images = self.batch_size / self.micro_steps.max(1);
        (1..=most.min(images)).rev().find(|group| images.is_multiple_of(*group)).unwrap_or(1)
    }
}

impl Train {
    /// The targets that are set, by COCO's name for the kind of score.
    pub fn targets(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("bbox", self.target_box),
            ("segm", self.target_mask),
            ("keypoints", self.target_keypoint),
        ];
        all.into_iter().filter_map(|(kind, ap)| Some((kind, ap?)))
    }
}

/// Weights that are scored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvalWeights {
    /// Averages of the parameters, where the run keeps them.
    Ema,
    /// The parameters.
    Trained,
}

/// Score that compares evaluations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BestMetric {
    /// AP of the last kind that the model has.
    Auto,
    /// Box AP.
    Box,
    /// Mask AP.
    Mask,
    /// Keypoint AP.
    Keypoint,
}

impl BestMetric {
    /// COCO's name for the kind of score; `None` for the last kind that the model has.
    pub fn kind(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::Box => Some("bbox"),
            Self::Mask => Some("segm"),
            Self::Keypoint => Some("keypoints"),
        }
    }
}

table! {
    /// `[eval]`: evaluation.
    pub struct Eval {
        /// Images per forward pass. Default 8.
        #[key(range = 1..=1024, unit = "images", resume = Free, mlperf = Free)]
        pub batch_size: usize = 8,
        /// Evaluate only the first `max_images` images. Default 0: all.
        #[key(range = 0..=1_000_000_000, unit = "images", resume = Free, mlperf = Quality)]
        pub max_images: usize = 0,
        /// Weights that are evaluated, and saved in `model.safetensors` of a checkpoint: `"ema"`
        /// (default; the EMA of `train.ema_decay`, if it is set) or `"trained"`.
        #[key(resume = Free, mlperf = Quality)]
        pub weights: EvalWeights = EvalWeights::Ema,
        /// Also compute validation losses, without augmentation and with the same random samples
        /// each time: `val_loss` and its parts. Default false.
        #[key(resume = Free, mlperf = Free)]
        pub loss: bool = false,
        /// Per-keypoint sigmas of OKS: annotation standard deviation relative to object scale.
        /// Default `[]`: COCO's for 17 keypoints, else 1/K for each of K.
        #[key(each = 0.0..=1.0, resume = Free, mlperf = Quality)]
        pub oks_sigmas: Vec<f64> = Vec::new(),
        /// Number of images drawn with their detections. Default 16.
        #[key(range = 0..=256, unit = "images", resume = Free, mlperf = Free)]
        pub draw_images: usize = 16,
        /// Evaluate on the training images, to check overfitting. Default false.
        #[key(resume = Free, mlperf = Quality)]
        pub train_set: bool = false,
        /// Compute scores, checkpoints and reports on background threads while training continues;
        /// a target then ends the run some steps later, with the weights of the step that reached
        /// it. Default true; false waits.
        #[key(resume = Free, mlperf = Free)]
        pub overlap: bool = true,
        /// Keep the validation images on the GPU after the first evaluation, in up to half of its
        /// free memory. Default true.
        #[key(resume = Free, mlperf = Free)]
        pub keep_images: bool = true,
    }
}
