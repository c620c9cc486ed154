//! `[solver.novograd]`, `[solver.lars]` and `[loss_weights]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[solver.novograd]`: read with `solver.optimizer = "novograd"`, which has no use for
/// `solver.momentum`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Novograd {
    /// `"apex"` (default: NVIDIA's `FusedNovoGrad`) or `"paper"` (Algorithm 1 of arXiv 1905.11286).
    pub form: NovogradForm,
    /// Part of the first moment that a step keeps, below 1. Default 0.95, as in the paper.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub beta1: f64,
    /// Part of the second moment, of the gradient's squared norm, that a step keeps, below 1.
    /// Default 0.98, as in the paper.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub beta2: f64,
    /// Added to the root of the second moment. Default 1e-8.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub eps: f64,
    /// Apex: divide both moments by `1 - beta^t`. Default true.
    pub bias_correction: bool,
    /// Apex: normalize and decay before the momentum, not after it. Default false.
    pub reg_inside: bool,
    /// Apex: multiply what the momentum takes in with `1 - beta1`. Default true.
    pub averaging: bool,
    /// Apex: start the second moment at 0, not at the first squared norm. Default false.
    pub init_zero: bool,
}

impl Default for Novograd {
    fn default() -> Self {
        Self {
            form: NovogradForm::Apex,
            beta1: 0.95,
            beta2: 0.98,
            eps: 1e-8,
            bias_correction: true,
            reg_inside: false,
            averaging: true,
            init_zero: false,
        }
    }
}

/// The form of NovoGrad.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NovogradForm {
    /// NVIDIA's `FusedNovoGrad`.
    #[default]
    Apex,
    /// Algorithm 1 of the paper.
    Paper,
}

/// `[solver.lars]`: read with `solver.optimizer = "lars"`, beside `solver.momentum`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Lars {
    /// Length of an update as a part of its weight's, before rate and momentum. Default 0.001, as
    /// in arXiv 1708.03888.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub trust_coefficient: f64,
    /// Whether the rates of biases, and of the scale and shift of norms, follow their norms too;
    /// false updates them by SGD with momentum. Default true, as in the paper.
    pub adapts_vectors: bool,
}

impl Default for Lars {
    fn default() -> Self {
        Self { trust_coefficient: 0.001, adapts_vectors: true }
    }
}

/// `[loss_weights]`: what each loss counts in the sum that training minimizes.
///
/// Logs, metrics and TensorBoard show each loss without its weight, and `loss`, the weighted sum.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LossWeights {
    /// Of `loss_objectness`. Default 1.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub objectness: f32,
    /// Of `loss_rpn_box_reg`. Default 1.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub rpn_box_reg: f32,
    /// Of `loss_classifier`. Default 1.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub classifier: f32,
    /// Of `loss_box_reg`. Default 1.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub box_reg: f32,
    /// Of `loss_mask`. Default 1.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub mask: f32,
}

impl Default for LossWeights {
    fn default() -> Self {
        Self { objectness: 1.0, rpn_box_reg: 1.0, classifier: 1.0, box_reg: 1.0, mask: 1.0 }
    }
}
