//! `[train]` and `[eval]`: length of the run, batch, seed, logging, checkpoints and evaluation.

use choices::{CpuPrecision, Precision};
use configs::table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::train::after_step::collect::LogRule;

table! {
    /// `[train]`: the training loop.
    pub struct Train {
        /// Number of optimizer steps. Default 90000; 0 if `epochs` is set.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Length, mlperf = Rule)]
        pub steps: u64 = 90_000,
        /// Number of epochs, instead of `steps`. The `config.toml` of the run contains both.
        /// Default: none.
        #[key(range = 0.0..=1e6, unit = "epochs", resume = Free, mlperf = Free)]
        pub epochs: Option<f64> = None,
        /// Images per step, over all ranks and micro-steps. Default 16.
        #[key(range = 1..=4096, unit = "images", resume = Step, mlperf = Rule)]
        pub batch_size: usize = 16,
        /// Micro-steps per step, for batches that do not fit into the device's memory: each
        /// processes a part of the batch, and gradients are accumulated. Must divide `batch_size`.
        /// Default 1.
        #[key(range = 1..=4096, unit = "micro-steps", resume = Step, mlperf = Free)]
        pub micro_steps: usize = 1,
        /// Group size: losses are averaged over groups of this many images, then over the groups.
        /// Corresponds to the images per GPU in other projects. Must divide `batch_size /
        /// micro_steps`. Default 2; 0: the largest divisor up to 2. If an override changes the
        /// batch size, it is reduced to the largest divisor up to its previous value.
        #[key(range = 0..=4096, unit = "images", resume = Step, mlperf = Rule)]
        pub images_per_group: usize = 2,
        /// Precision on a GPU: `"fp16"` (default; activations, gradients and the weights that
        /// kernels read are fp16, accumulation is fp32), or for comparison, slower and with a loss
        /// scale of 1, `"fp32"` or `"tf32"` (fp32 in memory, mantissas of GEMM operands rounded to
        /// 10 bits). Also used for detection with the run's weights. Not used on a CPU.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub precision: Precision = Precision::Fp16,
        /// Precision of GEMMs on a CPU: `"fp32"` (default) or `"bf16"` (bf16 operands, fp32
        /// accumulation), which requires AVX512_BF16, is faster, and changes results. Also used for
        /// detection with the run's weights. Not used on a GPU.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub cpu_precision: CpuPrecision = CpuPrecision::Fp32,
        /// Use Winograd F(2x2, 3x3) for 3x3 convolutions on a CPU where it is faster. The rounding
        /// error is about twice as large. Default true. Also used for detection with the run's
        /// weights. Not used on a GPU.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub winograd: bool = true,
        /// Random seed of initial weights, image order, augmentation and sampling. Default 0.
        #[key(range = 0..=i64::MAX, resume = Step, mlperf = Rule)]
        pub seed: u64 = 0,
        /// Steps between evaluations. Default 0: only at the end.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Free, mlperf = Quality)]
        pub eval_every_steps: u64 = 0,
        /// Epochs between evaluations. Default 0: only at the end.
        #[key(range = 0..=1_000_000_000, unit = "epochs", resume = Free, mlperf = Quality)]
        pub eval_every_epochs: u64 = 0,
        /// Evaluate the initial weights, before the first step. Default false.
        #[key(resume = Free, mlperf = Quality)]
        pub eval_at_start: bool = false,
        /// Evaluate after the last step. Default true.
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
        /// Number of newest checkpoints to keep. Default 3.
        #[key(range = 1..=1_000_000, unit = "checkpoints", resume = Free, mlperf = Free)]
        pub keep_checkpoints: usize = 3,
        /// Number of checkpoints with the best `best_metric` to keep in addition. Default 1.
        #[key(range = 0..=1_000_000, unit = "checkpoints", resume = Free, mlperf = Free)]
        pub keep_best: usize = 1,
        /// Metric by which evaluations are compared: `"auto"` (default; mask or keypoint AP if the
        /// model has them, else box AP), `"box"`, `"mask"` or `"keypoint"`.
        #[key(resume = Free, mlperf = Free)]
        pub best_metric: BestMetric = BestMetric::Auto,
        /// Decay of an exponential moving average (EMA) of the trained parameters, such as 0.9998,
        /// which is then evaluated and saved (`eval.weights`). Skipped steps do not update it.
        /// Default: none, no average.
        #[key(range = 0.0..=1.0, unit = "part", resume = State, mlperf = Hyperparameter)]
        pub ema_decay: Option<f64> = None,
        /// Warm-up of `ema_decay`: the decay after step t is `ema_decay * (1 - exp(-t /
        /// ema_warmup_steps))`, so that the average quickly forgets the initial weights. Default
        /// 2000; 0: none.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Step, mlperf = Hyperparameter)]
        pub ema_warmup_steps: u64 = 2000,
        /// Stop after this many consecutive evaluations without a better score. Counting starts at
        /// the first score of at least 0.001. Default 0: never.
        #[key(range = 0..=1_000_000_000, unit = "evaluations",
              resume = Free, mlperf = Hyperparameter)]
        pub patience: u64 = 0,
        /// Steps between log lines with losses and speed. Default 20; 0: never.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Free, mlperf = Free)]
        pub log_every_steps: u64 = 20,
        /// With each log line, write mean and L2 norm of each parameter and its gradient to
        /// TensorBoard. Default false.
        #[key(resume = Free, mlperf = Free)]
        pub log_parameters: bool = false,
        /// Rules for logging statistics of weights, gradients and activations at regular steps.
        /// Default `[]`.
        #[key(resume = Free, mlperf = Free)]
        pub log: Vec<LogRule> = Vec::new(),
        /// Compute accuracies of RoIs, anchors, objects and mask pixels in each training step
        /// (`docs/metrics.md`). They do not affect training, but cost two launches per step on a
        /// GPU. Default false.
        #[key(resume = Free, mlperf = Free)]
        pub accuracies: bool = false,
        /// Target box AP (0 to 1). Training stops when all targets that are set are reached.
        /// Default: none.
        #[key(range = 0.0..=1.0, unit = "AP", resume = Free, mlperf = Rule)]
        pub target_box: Option<f64> = None,
        /// Target mask AP (0 to 1), like `target_box`. Default: none.
        #[key(range = 0.0..=1.0, unit = "AP", resume = Free, mlperf = Rule)]
        pub target_mask: Option<f64> = None,
        /// Target keypoint AP (0 to 1), like `target_box`. Default: none.
        #[key(range = 0.0..=1.0, unit = "AP", resume = Free, mlperf = Rule)]
        pub target_keypoint: Option<f64> = None,
        /// Folder that contains the run directories. Default `"runs"`.
        #[key(resume = Free, mlperf = Free)]
        pub run_dir: String = "runs".to_string(),
        /// Name of the run. Default: none, the name of the config file.
        #[key(resume = Free, mlperf = Free)]
        pub name: Option<String> = None,
    }
}

impl Train {
    /// Images per micro-step.
    pub fn micro_batch(&self) -> usize {
        self.batch_size / self.micro_steps
    }

    /// The largest group size up to `most` that divides the number of images of a micro-step.
    pub(crate) fn largest_group(&self, most: usize) -> usize {
        let images = self.batch_size / self.micro_steps.max(1);
        (1..=most.min(images)).rev().find(|group| images.is_multiple_of(*group)).unwrap_or(1)
    }
}

impl Train {
    /// The targets that are set, each with COCO's name of its IoU type.
    pub fn targets(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let all = [
            ("bbox", self.target_box),
            ("segm", self.target_mask),
            ("keypoints", self.target_keypoint),
        ];
        all.into_iter().filter_map(|(kind, ap)| Some((kind, ap?)))
    }
}

/// Weights that are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EvalWeights {
    /// The moving averages of the parameters, if the run computes them.
    Ema,
    /// The parameters.
    Trained,
}

/// Score by which evaluations are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BestMetric {
    /// AP of masks or keypoints if the model has them, else of boxes.
    Auto,
    /// Box AP.
    Box,
    /// Mask AP.
    Mask,
    /// Keypoint AP.
    Keypoint,
}

impl BestMetric {
    /// COCO's name of the IoU type; `None` for `Auto`.
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
        /// Weights that are evaluated, and saved in a checkpoint's `model.safetensors`: `"ema"`
        /// (default; the moving average, if `train.ema_decay` is set) or `"trained"`.
        #[key(resume = Free, mlperf = Quality)]
        pub weights: EvalWeights = EvalWeights::Ema,
        /// Also compute the losses on the validation images (`val_loss` and its parts), without
        /// augmentation and with the same random samples each time. Default false.
        #[key(resume = Free, mlperf = Free)]
        pub loss: bool = false,
        /// Sigma of each keypoint for OKS: the standard deviation of annotations, relative to
        /// object scale. Default `[]`: COCO's values for 17 keypoints, else 1/K for each of K
        /// keypoints.
        #[key(each = 0.0..=1.0, resume = Free, mlperf = Quality)]
        pub oks_sigmas: Vec<f64> = Vec::new(),
        /// Number of validation images that are drawn with their detections. Default 16.
        #[key(range = 0..=256, unit = "images", resume = Free, mlperf = Free)]
        pub draw_images: usize = 16,
        /// Evaluate on the training images instead of validation images, to check that the model
        /// can overfit. Default false.
        #[key(resume = Free, mlperf = Quality)]
        pub train_set: bool = false,
        /// Compute scores and write checkpoints and reports on background threads while training
        /// continues. A run that reaches its target then ends some steps later, with the weights of
        /// the step that reached it. Default true; false: training waits.
        #[key(resume = Free, mlperf = Free)]
        pub overlap: bool = true,
        /// Keep the validation images on the GPU after the first evaluation, in up to half of its
        /// free memory. Default true.
        #[key(resume = Free, mlperf = Free)]
        pub keep_images: bool = true,
    }
}
