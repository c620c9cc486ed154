//! `[solver]`: optimizer, learning rate schedule, loss scale.

use std::sync::Arc;

use configs::{Check, table};
use kernels::ops::rules::{self, Entry, Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Defines the table, and the optimizers with their update rules.
macro_rules! solver {
    (
        $(#[doc = $about:tt])*
        plain { $($(#[doc = $of_plain:tt])* $plain:ident = $file_of_plain:ident,)* }
        tables { $($(#[doc = $doc:tt])* $rule:ident = $file:ident,)* }
    ) => {
table! {
    /// `[solver]`: optimizer, learning rate schedule and loss scale.
    pub struct Solver {
        $(#[doc = $about])*
        #[key(resume = State, mlperf = Hyperparameter)]
        pub optimizer: Optimizer = Optimizer::Sgd,
        /// Learning rate after warm-up, for the global batch. Default 0.02.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Rule)]
        pub learning_rate: f64 = 0.02,
        /// Batch size for which `learning_rate` and `min_learning_rate` are given. If
        /// `train.batch_size` differs, they are scaled in proportion to the batch size, for AdamW
        /// to its square root. Default: none, no scaling.
        #[key(range = 1..=4096, unit = "images", resume = Step, mlperf = Hyperparameter)]
        pub reference_batch: Option<usize> = None,
        /// SGD and LARS: momentum, at least 0 and below 1. Default 0.9.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Hyperparameter)]
        pub momentum: f64 = 0.9,
        /// SGD: Nesterov momentum. Default false.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub nesterov: bool = false,
        /// Weight decay. SGD, NovoGrad and LARS add it to the gradient (L2); AdamW applies it to
        /// the weight directly (decoupled), multiplied by the learning rate. Default 1e-4.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub weight_decay: f64 = 1e-4,
        /// Learning rate of biases relative to that of weights. Default 1; the MLPerf reference
        /// uses 2.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub bias_lr_factor: f64 = 1.0,
        /// Weight decay of biases. Default: none, use `weight_decay`.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub bias_weight_decay: Option<f64> = None,
        /// Weight decay of the scale and shift of trained norms. Default: none, use `weight_decay`.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub norm_weight_decay: Option<f64> = None,
        /// Learning rate schedule: `"multistep"` (default) or `"cosine"` (decays to
        /// `min_learning_rate` at `train.steps`).
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub schedule: Schedule = Schedule::Multistep,
        /// Multistep: steps at which the rate is multiplied by `gamma`. Default `[]`.
        #[key(each = 0..=1_000_000_000, unit = "steps", resume = Step, mlperf = Rule)]
        pub milestones: Vec<u64> = Vec::new(),
        /// Multistep: milestones in epochs, instead of `milestones`. Default `[]`.
        #[key(each = 0.0..=1e6, unit = "epochs", resume = Free, mlperf = Hyperparameter)]
        pub milestone_epochs: Vec<f64> = Vec::new(),
        /// Multistep: factor of the learning rate at each milestone. Default 0.1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub gamma: f64 = 0.1,
        /// Cosine: learning rate of the last step. Default 0.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub min_learning_rate: f64 = 0.0,
        /// Steps of linear warm-up. Default 1000; 0: none. If an override makes `train.steps`
        /// shorter than the warm-up, the warm-up is reduced to half of `train.steps`.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Step, mlperf = Free)]
        pub warmup_steps: u64 = 1000,
        /// Epochs of linear warm-up, instead of `warmup_steps`. If both are set, the shorter is
        /// used. Default: none.
        #[key(range = 0.0..=1e6, unit = "epochs", resume = Free, mlperf = Free)]
        pub warmup_epochs: Option<f64> = None,
        /// Learning rate at the start of warm-up, as a fraction of the full rate. Default 0.001.
        #[key(range = 0.0..=1.0, unit = "share", resume = Step, mlperf = Free)]
        pub warmup_factor: f64 = 0.001,
        /// Warm-up rule: `"scale"` (default) multiplies all learning rates by the same factor;
        /// `"shared_delta"` (MLPerf) subtracts the same amount from all, so biases with a higher
        /// learning rate start higher.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub warmup_rule: WarmupRule = WarmupRule::Scale,
        /// Step of the schedule at the first update. Default 0; the MLPerf reference advances the
        /// schedule before the update, and so starts at 1.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Step, mlperf = Rule)]
        pub first_schedule_step: u64 = 0,
        /// Maximum global gradient norm; larger gradients are scaled down. Default 0: no clipping.
        #[key(range = 0.0..=1e30, resume = Step, mlperf = Hyperparameter)]
        pub clip_norm: f32 = 0.0,
        /// Initial loss scale, for devices with fp16 gradients. Default 65536.
        #[key(range = 0.0..=1e30, resume = Step, mlperf = Free)]
        pub initial_loss_scale: f32 = 65536.0,
        /// Steps without overflow before the loss scale doubles. Default 1000.
        #[key(range = 1..=1_000_000_000, unit = "steps", resume = Step, mlperf = Free)]
        pub loss_scale_growth_interval: u64 = 1000,
        /// Halve the loss scale on overflow, and double it again later. Default true; false keeps
        /// it fixed.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub dynamic_loss_scale: bool = true,
        /// Advance the schedule also at steps whose update is skipped because of an overflow.
        /// Default false; NVIDIA's MLPerf submissions do so.
        #[key(resume = Step, mlperf = Rule)]
        pub count_skipped_steps: bool = false,
        /// Learning rates and weight decays of parameters by name. For each value, the last
        /// matching group that sets it applies. Default `[]`.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub groups: Vec<ParameterGroup> = Vec::new(),
        $($(#[doc = $doc])* pub $file: rules::$file::$rule,)*
    }
}

/// Update rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Optimizer {
    $($(#[doc = $of_plain])* $plain,)*
    $($(#[doc = $doc])* $rule,)*
}

impl Optimizer {
    /// Name of each optimizer, which is also the name of its table, with its properties.
    pub(crate) const ALL: &[(&str, &Entry)] = &[
        $((stringify!($file_of_plain), &rules::$file_of_plain::ENTRY),)*
        $((stringify!($file), &rules::$file::ENTRY),)*
    ];
}

impl Solver {
    /// The optimizer's update rule.
    pub fn rule(&self) -> Arc<dyn Rule> {
        match self.optimizer {
            $(Optimizer::$plain => Arc::new(rules::$file_of_plain::$plain),)*
            $(Optimizer::$rule => Arc::new(self.$file.clone()),)*
        }
    }

    /// Checks the keys of all optimizers.
    pub(crate) fn check_rules(&self, check: &mut Check) {
        $(self.$file.check(check);)*
    }
}
    };
}
kernels::optimizer_rules!(solver);

impl Optimizer {
    /// Properties of the optimizer.
    pub fn entry(self) -> &'static Entry {
        Self::ALL[self as usize].1
    }

    /// True if a key of `[solver]` has no effect with this optimizer.
    pub(crate) fn ignores(self, key: &str) -> bool {
        let key = key.strip_prefix("solver.").unwrap_or_default();
        match key.split_once('.') {
            Some((table, _)) => table != Self::ALL[self as usize].0,
            None => key == "momentum" && !self.entry().has_momentum,
        }
    }
}

table! {
    /// `[[solver.groups]]`: learning rate and weight decay of a group of parameters. For each
    /// value, the last group that matches a parameter and sets the value applies, and takes
    /// precedence over the keys of `[solver]` for biases and norms.
    pub struct ParameterGroup {
        /// Pattern of torchvision parameter names; `*` matches any text (`"backbone.*"`).
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub r#match: String = String::new(),
        /// Learning rate relative to `solver.learning_rate`. Default: none, unchanged.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub lr_factor: Option<f64> = None,
        /// Weight decay. Default: none, unchanged.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub weight_decay: Option<f64> = None,
    }
}

/// Learning rate schedule after warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Constant, multiplied by `gamma` at each milestone.
    Multistep,
    /// Cosine decay from `learning_rate` to `min_learning_rate`.
    Cosine,
}

/// Warm-up at schedule step `t`, with `share = (1 - warmup_factor) * (1 - t / warmup_steps)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarmupRule {
    /// Multiplies every learning rate by `1 - share`.
    Scale,
    /// Subtracts the same amount, `learning_rate * share`, from every learning rate.
    SharedDelta,
}
