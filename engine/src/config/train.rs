//! `[train]` and `[eval]`: length of the run, batch, seed, logging, checkpoints and evaluation.

use choices::{CpuPrecision, Precision};
use configs::table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::train::after_step::collect::LogRule;

table! {
    /// `[train]`: the training loop.
    pub struct Train {
        /// Optimizer steps. Default 90000; 0 where `epochs` decides.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Length, mlperf = Rule)]
        pub steps: u64 = 90_000,
        /// Epochs of the run, in place of `steps`; `config.toml` of the run states both. Default:
        /// none.
        #[key(range = 0.0..=1e6, unit = "epochs", resume = Free, mlperf = Free)]
        pub epochs: Option<f64> = None,
        /// Images per step, over all ranks and micro-steps. Default 16.
        #[key(range = 1..=4096, unit = "images", resume = Step, mlperf = Rule)]
        pub batch_size: usize = 16,
        /// Micro-steps per step: each runs a part of the batch, and their gradients add up. For
        /// batches that do not fit the device. Divides `batch_size`. Default 1.
        #[key(range = 1..=4096, unit = "micro-steps", resume = Step, mlperf = Free)]
        pub micro_steps: usize = 1,
        /// Images per loss mean (the reference's images per GPU); divides `batch_size /
        /// micro_steps`. Default 2; 0 is the largest divisor up to 2. Where a later file or `--set`
        /// changes the batch, it is the largest divisor up to the former value.
        #[key(range = 0..=4096, unit = "images", resume = Step, mlperf = Rule)]
        pub images_per_group: usize = 2,
        /// The precision in which a GPU computes: `"fp16"` (default; activations, gradients and the
        /// weights that kernels read are fp16, all sums fp32), or to compare with it, slowly,
        /// `"fp32"`, or `"tf32"` (fp32 in memory, factors of matrix products rounded to 10 bits).
        /// The loss scale is then 1. Detection with the run's weights uses it too. A CPU does not
        /// read it.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub precision: Precision = Precision::Fp16,
        /// How a CPU multiplies matrices: `"fp32"` (default), or `"bf16"` (factors rounded to 8
        /// bits, sums in fp32), which needs a processor with AVX512_BF16, takes less time, and
        /// gives other numbers. Detection with the run's weights uses it too. A GPU does not read
        /// it.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub cpu_precision: CpuPrecision = CpuPrecision::Fp32,
        /// Let a CPU take 3x3 convolutions in tiles of 2x2 outputs (Winograd's F(2x2, 3x3)) where
        /// that takes less time. Sums then round otherwise, with about twice the error. Default
        /// true. Detection with the run's weights does so too. A GPU does not read it.
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
        /// Evaluate the weights that a run starts from, as step 0. Default false.
        #[key(resume = Free, mlperf = Quality)]
        pub eval_at_start: bool = false,
        /// Evaluate the last step, if it was not evaluated on the way. Default true.
        #[key(resume = Free, mlperf = Quality)]
        pub eval_at_end: bool = true,
        /// Steps between checkpoints. Default 0: none by steps. There is one before each evaluation
        /// and at the end.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Free, mlperf = Free)]
        pub checkpoint_every_steps: u64 = 0,
        /// Epochs between checkpoints. Default 1; 0 is none by epochs.
        #[key(range = 0..=1_000_000_000, unit = "epochs", resume = Free, mlperf = Free)]
        pub checkpoint_every_epochs: u64 = 1,
        /// Minutes between checkpoints. Default 30; 0 is none by time.
        #[key(range = 0..=1_000_000, unit = "minutes", resume = Free, mlperf = Free)]
        pub checkpoint_every_minutes: u64 = 30,
        /// Number of newest checkpoints kept. Default 3.
        #[key(range = 1..=1_000_000, unit = "checkpoints", resume = Free, mlperf = Free)]
        pub keep_checkpoints: usize = 3,
        /// Number of best checkpoints kept besides, by `best_metric`. Default 1.
        #[key(range = 0..=1_000_000, unit = "checkpoints", resume = Free, mlperf = Free)]
        pub keep_best: usize = 1,
        /// Score that compares evaluations: `"auto"` (default; AP of masks or keypoints if the
        /// model has them, else box AP), `"box"`, `"mask"` or `"keypoint"`.
        #[key(resume = Free, mlperf = Free)]
        pub best_metric: BestMetric = BestMetric::Auto,
        /// Keep an exponential moving average of the trained parameters, to score and to save
        /// (`eval.weights`): the part of it that a step keeps, such as 0.9998, below 1. A skipped
        /// step leaves it. Default: none.
        #[key(range = 0.0..=1.0, unit = "part", resume = State, mlperf = Hyperparameter)]
        pub ema_decay: Option<f64> = None,
        /// Steps over which `ema_decay` warms up: after step t the part that is kept is
        /// `ema_decay * (1 - exp(-t / ema_warmup_steps))`, so that the average soon forgets the
        /// weights that the run starts from. Default 2000; 0: none.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Step, mlperf = Hyperparameter)]
        pub ema_warmup_steps: u64 = 2000,
        /// Stop after this many evaluations in a row without a better score, counted from the first
        /// of at least 0.001. Default 0: never.
        #[key(range = 0..=1_000_000_000, unit = "evaluations",
              resume = Free, mlperf = Hyperparameter)]
        pub patience: u64 = 0,
        /// Steps between log lines with losses and speed. Default 20; 0 is never.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Free, mlperf = Free)]
        pub log_every_steps: u64 = 20,
        /// With each log line, write mean and L2 norm of every weight and its gradient to
        /// TensorBoard. Default false: the update sums nothing.
        #[key(resume = Free, mlperf = Free)]
        pub log_parameters: bool = false,
        /// Statistics of weights, gradients and activations, written every so many steps. Default
        /// `[]`.
        #[key(resume = Free, mlperf = Free)]
        pub log: Vec<LogRule> = Vec::new(),
        /// Measure accuracies in each training step: how many RoIs, anchors, objects and pixels of
        /// masks the model gets right (`docs/metrics.md`). Default false: on a GPU they take two
        /// launches a step. They change no bit of the training.
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
        /// Weights that are scored, and that `model.safetensors` of a checkpoint holds: `"ema"`
        /// (default; the averages of `train.ema_decay`, if it is set) or `"trained"`.
        #[key(resume = Free, mlperf = Quality)]
        pub weights: EvalWeights = EvalWeights::Ema,
        /// Compute the losses of the validation images, too, without augmentation and with the same
        /// draws each time: `val_loss` and its parts. Default false.
        #[key(resume = Free, mlperf = Free)]
        pub loss: bool = false,
        /// Sigma of each keypoint in the similarity that keypoints are scored by (OKS): how far, in
        /// parts of the object's size, people place it apart. Default `[]`: COCO's for 17
        /// keypoints, else 1/K for each of K.
        #[key(each = 0.0..=1.0, resume = Free, mlperf = Quality)]
        pub oks_sigmas: Vec<f64> = Vec::new(),
        /// Images drawn with their detections. Default 16.
        #[key(range = 0..=256, unit = "images", resume = Free, mlperf = Free)]
        pub draw_images: usize = 16,
        /// Evaluate on the training images, to watch a model overfit. Default false.
        #[key(resume = Free, mlperf = Quality)]
        pub train_set: bool = false,
        /// Score, save and report on other threads while training goes on; a target then ends the
        /// run some steps late, with the weights of the step that reached it. Default true; false
        /// waits.
        #[key(resume = Free, mlperf = Free)]
        pub overlap: bool = true,
        /// Keep the images on the GPU from the first evaluation on, in up to half of its free
        /// memory. Default true.
        #[key(resume = Free, mlperf = Free)]
        pub keep_images: bool = true,
    }
}
