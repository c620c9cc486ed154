//! `[solver]`: optimizer, learning rate schedule, loss scale.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::optimizers::{Lars, Novograd};

/// `[solver]`: how weights are updated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Solver {
    /// `"sgd"` (default), `"novograd"` or `"lars"`.
    pub optimizer: Optimizer,
    /// Learning rate after warm-up, for the whole global batch. Default 0.02.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub learning_rate: f64,
    /// SGD and LARS: momentum, at least 0 and below 1. Default 0.9.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub momentum: f64,
    /// SGD: Nesterov momentum. Default false.
    pub nesterov: bool,
    /// Weight decay (L2, added to the gradient). Default 1e-4.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub weight_decay: f64,
    /// Learning rate of biases relative to that of weights. Default 1; the MLPerf reference has 2.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub bias_lr_factor: f64,
    /// Weight decay of biases. Default: none, use `weight_decay`.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub bias_weight_decay: Option<f64>,
    /// Weight decay of the scale and shift of trained norms. Default: none, use `weight_decay`.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub norm_weight_decay: Option<f64>,
    /// `"multistep"` (default) or `"cosine"` (down to `min_learning_rate` at `train.steps`).
    pub schedule: Schedule,
    /// Multistep: steps at which the rate is multiplied by `gamma`. Default `[]`.
    #[schemars(inner(range(min = 0, max = 1_000_000_000)), extend("unit" = "steps"))]
    pub milestones: Vec<u64>,
    /// Multistep: factor at each milestone. Default 0.1.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub gamma: f64,
    /// Cosine: learning rate of the last step. Default 0.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub min_learning_rate: f64,
    /// Steps of linear warm-up. Default 1000; 0 is none. Where a later file or `--set` cuts
    /// `train.steps` so short that it would not end, it is half of them.
    #[schemars(range(min = 0, max = 1_000_000_000), extend("unit" = "steps"))]
    pub warmup_steps: u64,
    /// Learning rate at the start of warm-up, as a share of the full rate, 0 to 1. Default 0.001.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "share"))]
    pub warmup_factor: f64,
    /// `"scale"` (default; multiplies every rate) or `"shared_delta"` (MLPerf; subtracts the same
    /// amount from every rate, so biases with a larger rate start higher).
    pub warmup_rule: WarmupRule,
    /// The schedule's step at the first update. Default 0; the MLPerf reference advances its
    /// schedule before the update and so starts at 1.
    #[schemars(range(min = 0, max = 1_000_000_000), extend("unit" = "steps"))]
    pub first_schedule_step: u64,
    /// Clip the global gradient norm to this. Default 0: off.
    #[schemars(range(min = 0.0, max = 1e30))]
    pub clip_norm: f32,
    /// Initial loss scale, for devices with fp16 gradients. Default 65536.
    #[schemars(range(min = 0.0, max = 1e30))]
    pub initial_loss_scale: f32,
    /// Steps without overflow before the loss scale doubles. Default 1000.
    #[schemars(range(min = 1, max = 1_000_000_000), extend("unit" = "steps"))]
    pub loss_scale_growth_interval: u64,
    /// The loss scale halves on overflow and grows again. Default true; false keeps it fixed.
    pub dynamic_loss_scale: bool,
    /// The schedule goes on at a step that overflowed, whose update is skipped. Default false; in
    /// NVIDIA's MLPerf entries it does.
    pub count_skipped_steps: bool,
    /// Moments and form of NovoGrad.
    pub novograd: Novograd,
    /// Trust of LARS.
    pub lars: Lars,
}

impl Default for Solver {
    fn default() -> Self {
        Self {
            optimizer: Optimizer::Sgd,
            learning_rate: 0.02,
            momentum: 0.9,
            nesterov: false,
            weight_decay: 1e-4,
            bias_lr_factor: 1.0,
            bias_weight_decay: None,
            norm_weight_decay: None,
            schedule: Schedule::Multistep,
            milestones: Vec::new(),
            gamma: 0.1,
            min_learning_rate: 0.0,
            warmup_steps: 1000,
            warmup_factor: 0.001,
            warmup_rule: WarmupRule::Scale,
            first_schedule_step: 0,
            clip_norm: 0.0,
            initial_loss_scale: 65536.0,
            loss_scale_growth_interval: 1000,
            dynamic_loss_scale: true,
            count_skipped_steps: false,
            novograd: Novograd::default(),
            lars: Lars::default(),
        }
    }
}

/// Update rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Optimizer {
    /// Stochastic gradient descent with momentum.
    #[default]
    Sgd,
    /// Stochastic gradient descent with moments of layer-wise norms.
    Novograd,
    /// Layer-wise adaptive rate scaling of SGD with momentum.
    Lars,
}

/// Learning rate after warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// Constant, times `gamma` at each milestone.
    #[default]
    Multistep,
    /// Half a cosine from `learning_rate` to `min_learning_rate`.
    Cosine,
}

/// Warm-up at schedule step `t`, with `share = (1 - warmup_factor) * (1 - t / warmup_steps)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WarmupRule {
    /// Multiplies every rate by `1 - share`.
    #[default]
    Scale,
    /// Subtracts `learning_rate * share` from every rate, whatever its own factor.
    SharedDelta,
}
