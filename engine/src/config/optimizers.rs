//! `[solver.novograd]`, `[solver.lars]`, `[solver.adamw]` and `[loss_weights]`.

use configs::table;
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

table! {
    /// `[solver.novograd]`: read with `solver.optimizer = "novograd"`, which has no use for
    /// `solver.momentum`.
    pub struct Novograd {
        /// `"apex"` (default: NVIDIA's `FusedNovoGrad`) or `"paper"` (Algorithm 1 of arXiv
        /// 1905.11286).
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub form: NovogradForm = NovogradForm::Apex,
        /// Part of the first moment that a step keeps, below 1. Default 0.95, as in the paper.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Hyperparameter)]
        pub beta1: f64 = 0.95,
        /// Part of the second moment, of the gradient's squared norm, that a step keeps, below 1.
        /// Default 0.98, as in the paper.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Hyperparameter)]
        pub beta2: f64 = 0.98,
        /// Added to the root of the second moment. Default 1e-8.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Hyperparameter)]
        pub eps: f64 = 1e-8,
        /// Apex: divide both moments by `1 - beta^t`. Default true.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub bias_correction: bool = true,
        /// Apex: normalize and decay before the momentum, not after it. Default false.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub reg_inside: bool = false,
        /// Apex: multiply what the momentum takes in with `1 - beta1`. Default true.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub averaging: bool = true,
        /// Apex: start the second moment at 0, not at the first squared norm. Default false.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub init_zero: bool = false,
    }
}

/// The form of NovoGrad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NovogradForm {
    /// NVIDIA's `FusedNovoGrad`.
    Apex,
    /// Algorithm 1 of the paper.
    Paper,
}

table! {
    /// `[solver.lars]`: read with `solver.optimizer = "lars"`, together with `solver.momentum`.
    pub struct Lars {
        /// Length of an update as a part of its weight's, before rate and momentum. Default 0.001,
        /// as in arXiv 1708.03888.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub trust_coefficient: f64 = 0.001,
        /// If true, the rates of biases, and of the scale and shift of norms, follow their norms
        /// too; false updates them by SGD with momentum. Default true, as in the paper.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub adapts_vectors: bool = true,
    }
}

table! {
    /// `[solver.adamw]`: read with `solver.optimizer = "adamw"`, which has no use for
    /// `solver.momentum`.
    pub struct Adamw {
        /// Part of the first moment that a step keeps, below 1. Default 0.9, as in torch.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Hyperparameter)]
        pub beta1: f64 = 0.9,
        /// Part of the second moment, of the gradient's square, that a step keeps, below 1.
        /// Default 0.999, as in torch.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Hyperparameter)]
        pub beta2: f64 = 0.999,
        /// Added to the root of the second moment. Default 1e-8, as in torch.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Hyperparameter)]
        pub eps: f64 = 1e-8,
    }
}

table! {
    /// `[loss_weights]`: the weight of each loss in the sum that training minimizes.
    ///
    /// Logs, metrics and TensorBoard show each loss without its weight, and `loss`, the weighted
    /// sum.
    pub struct LossWeights {
        /// Weight of `loss_objectness`. Default 1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub objectness: f32 = 1.0,
        /// Weight of `loss_rpn_box_reg`. Default 1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub rpn_box_reg: f32 = 1.0,
        /// Weight of `loss_classifier`. Default 1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub classifier: f32 = 1.0,
        /// Weight of `loss_box_reg`. Default 1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub box_reg: f32 = 1.0,
        /// Weight of `loss_mask`. Default 1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub mask: f32 = 1.0,
        /// Weight of `loss_keypoint`. Default 1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub keypoint: f32 = 1.0,
        /// Weight of an RoI in the mean of `loss_classifier` by its class, by the category's name,
        /// or `background` for an RoI without an object. Default `{}`: 1 for all.
        #[key(entries = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub classes: BTreeMap<String, f32> = BTreeMap::new(),
    }
}
