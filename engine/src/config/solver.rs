//! `[solver]`: optimizer, learning rate schedule, loss scale.

use std::sync::Arc;

use configs::{Check, table};
use kernels::ops::rules::{self, Entry, Rule};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Defines the table and its optimizers, with the rules of these.
macro_rules! solver {
    (
        $(#[doc = $about:tt])*
        plain { $($(#[doc = $of_plain:tt])* $plain:ident = $file_of_plain:ident,)* }
        tables { $($(#[doc = $doc:tt])* $rule:ident = $file:ident,)* }
    ) => {
table! {
    /// `[solver]`: how weights are updated.
    pub struct Solver {
        $(#[doc = $about])*
        #[key(resume = State, mlperf = Hyperparameter)]
        pub optimizer: Optimizer = Optimizer::Sgd,
        /// Learning rate after warm-up, for the whole global batch. Default 0.02.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Rule)]
        pub learning_rate: f64 = 0.02,
        /// Batch size that `learning_rate` and `min_learning_rate` are for: for another
        /// `train.batch_size` they are scaled linearly, with AdamW by the square root. Default:
        /// none, no scaling.
        #[key(range = 1..=4096, unit = "images", resume = Step, mlperf = Hyperparameter)]
        pub reference_batch: Option<usize> = None,
        /// SGD and LARS: momentum, at least 0 and below 1. Default 0.9.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Hyperparameter)]
        pub momentum: f64 = 0.9,
        /// SGD: Nesterov momentum. Default false.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub nesterov: bool = false,
        /// Weight decay. SGD, NovoGrad and LARS add it to the gradient (L2); AdamW applies it to
        /// the weight, times the learning rate. Default 1e-4.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub weight_decay: f64 = 1e-4,
        /// Learning rate of biases relative to that of weights. Default 1; the MLPerf reference has
        /// 2.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub bias_lr_factor: f64 = 1.0,
        /// Weight decay of biases. Default: none, use `weight_decay`.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub bias_weight_decay: Option<f64> = None,
        /// Weight decay of the scale and shift of trained norms. Default: none, use `weight_decay`.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub norm_weight_decay: Option<f64> = None,
        /// `"multistep"` (default) or `"cosine"` (down to `min_learning_rate` at `train.steps`).
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub schedule: Schedule = Schedule::Multistep,
        /// Multistep: steps at which the rate is multiplied by `gamma`. Default `[]`.
        #[key(each = 0..=1_000_000_000, unit = "steps", resume = Step, mlperf = Rule)]
        pub milestones: Vec<u64> = Vec::new(),
        /// Multistep: the same in epochs, in place of `milestones`. Default `[]`.
        #[key(each = 0.0..=1e6, unit = "epochs", resume = Free, mlperf = Hyperparameter)]
        pub milestone_epochs: Vec<f64> = Vec::new(),
        /// Multistep: factor at each milestone. Default 0.1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub gamma: f64 = 0.1,
        /// Cosine: learning rate of the last step. Default 0.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub min_learning_rate: f64 = 0.0,
        /// Steps of linear warm-up. Default 1000; 0 is none. If an override makes `train.steps`
        /// shorter than the warm-up, the warm-up is reduced to half of `train.steps`.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Step, mlperf = Free)]
        pub warmup_steps: u64 = 1000,
        /// Epochs of linear warm-up, instead of `warmup_steps`; if a file sets both, the shorter
        /// one is used. Default: none.
        #[key(range = 0.0..=1e6, unit = "epochs", resume = Free, mlperf = Free)]
        pub warmup_epochs: Option<f64> = None,
        /// Learning rate at the start of warm-up, as a share of the full rate, 0 to 1. Default
        /// 0.001.
        #[key(range = 0.0..=1.0, unit = "share", resume = Step, mlperf = Free)]
        pub warmup_factor: f64 = 0.001,
        /// `"scale"` (default; multiplies every learning rate) or `"shared_delta"` (MLPerf;
        /// subtracts the same amount from every learning rate, so biases with a higher one start
        /// higher).
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub warmup_rule: WarmupRule = WarmupRule::Scale,
        /// The schedule's step at the first update. Default 0; the MLPerf reference advances its
        /// schedule before the update and so starts at 1.
        #[key(range = 0..=1_000_000_000, unit = "steps", resume = Step, mlperf = Rule)]
        pub first_schedule_step: u64 = 0,
        /// Clip the global gradient norm to this. Default 0: off.
        #[key(range = 0.0..=1e30, resume = Step, mlperf = Hyperparameter)]
        pub clip_norm: f32 = 0.0,
        /// Initial loss scale, for devices with fp16 gradients. Default 65536.
        #[key(range = 0.0..=1e30, resume = Step, mlperf = Free)]
        pub initial_loss_scale: f32 = 65536.0,
        /// Steps without overflow before the loss scale doubles. Default 1000.
        #[key(range = 1..=1_000_000_000, unit = "steps", resume = Step, mlperf = Free)]
        pub loss_scale_growth_interval: u64 = 1000,
        /// The loss scale is halved on overflow and increased again. Default true; false keeps it
        /// fixed.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub dynamic_loss_scale: bool = true,
        /// The schedule also advances at steps that overflowed, whose update is skipped. Default
        /// false; true in NVIDIA's MLPerf entries.
        #[key(resume = Step, mlperf = Rule)]
        pub count_skipped_steps: bool = false,
        /// Learning rates and weight decays of parameters by name; the last matching group applies.
        /// Default `[]`.
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
    /// Each name, which is also its table's name, with facts about the rule.
    pub(crate) const ALL: &[(&str, &Entry)] = &[
        $((stringify!($file_of_plain), &rules::$file_of_plain::ENTRY),)*
        $((stringify!($file), &rules::$file::ENTRY),)*
    ];
}

impl Solver {
    /// The rule of the optimizer.
    pub fn rule(&self) -> Arc<dyn Rule> {
        match self.optimizer {
            $(Optimizer::$plain => Arc::new(rules::$file_of_plain::$plain),)*
            $(Optimizer::$rule => Arc::new(self.$file.clone()),)*
        }
    }

    /// Checks the keys of all rules.
    pub(crate) fn check_rules(&self, check: &mut Check) {
        $(self.$file.check(check);)*
    }
}
    };
}
kernels::optimizer_rules!(solver);

impl Optimizer {
    /// Facts about its rule.
    pub fn entry(self) -> &'static Entry {
        Self::ALL[self as usize].1
    }

    /// True if a key of `[solver]` has no effect on the rule.
    pub(crate) fn ignores(self, key: &str) -> bool {
        let key = key.strip_prefix("solver.").unwrap_or_default();
        match key.split_once('.') {
            Some((table, _)) => table != Self::ALL[self as usize].0,
            None => key == "momentum" && !self.entry().has_momentum,
        }
    }
}

table! {
    /// `[[solver.groups]]`: how the parameters of these names are updated. The last group that fits
    /// a parameter and gives a value decides it, in place of the keys of `[solver]` for biases and
    /// norms.
    pub struct ParameterGroup {
        /// Parameters, by torchvision's names, where `*` matches any text (`"backbone.*"`).
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

/// Learning rate after warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Constant, times `gamma` at each milestone.
    Multistep,
    /// Half a cosine from `learning_rate` to `min_learning_rate`.
    Cosine,
}

/// Warm-up at schedule step `t`, with `share = (1 - warmup_factor) * (1 - t / warmup_steps)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarmupRule {
    /// Multiplies every rate by `1 - share`.
    Scale,
    /// Subtracts `learning_rate * share` from every learning rate, regardless of its factor.
    SharedDelta,
}
