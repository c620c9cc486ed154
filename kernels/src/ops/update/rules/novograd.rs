//! NovoGrad in its two common forms, which differ in more than rounding.

use configs::{Check, table};
use device::StructArg;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Entry, Factors, Known, Momentum, Rule, below_one, by_norms, padded, power, sgd};
use crate::Cost;

table! {
    /// `[solver.novograd]`: read with `solver.optimizer = "novograd"`, which ignores
    /// `solver.momentum`.
    ///
    /// Stochastic gradient descent with moments of layer-wise norms:
    /// <https://arxiv.org/abs/1905.11286>.
    pub struct Novograd {
        /// `"apex"` (default: NVIDIA's `FusedNovoGrad`) or `"paper"` (Algorithm 1 of arXiv
        /// 1905.11286).
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub form: NovogradForm = NovogradForm::Apex,
        /// Decay rate of the first moment, below 1. Default 0.95, as in the paper.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Hyperparameter)]
        pub beta1: f64 = 0.95,
        /// Decay rate of the second moment (of the squared gradient norm), below 1. Default 0.98,
        /// as in the paper.
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
        /// Apex: scale the gradient by `1 - beta1` before adding it to the momentum. Default true.
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
    /// Algorithm 1 of the paper:
    /// `m = beta1 * m + (g / (sqrt(v) + eps) + weight_decay * w); w -= rate * m`, without `eps` in
    /// the first update, whose `v` is the squared norm itself.
    Paper,
}

/// Properties of NovoGrad. The scalar per parameter is the root of the second moment.
pub const ENTRY: Entry = Entry {
    mlperf: "novograd",
    has_momentum: false,
    needs_norms: true,
    number: Some("novograd/averages"),
    steps: Some("novograd/steps"),
    cost: Cost { flops: 8, bytes: 20 },
    update: by_norms::update,
    factors: Some("novograd_factors"),
    kernels: by_norms::KERNELS,
    ..sgd::ENTRY
};

impl Rule for Novograd {
    fn entry(&self) -> &'static Entry {
        &ENTRY
    }

    fn check(&self, check: &mut Check) {
        below_one(check, "solver.novograd.beta1", self.beta1);
        below_one(check, "solver.novograd.beta2", self.beta2);
        check.not_negative("solver.novograd.eps", self.eps);
    }

    fn factors(&self, known: &mut Known) -> Factors {
        let Known { norm, rate, weight_decay, grad_factor, t, .. } = *known;
        let (keep, [beta1, beta2, eps]) = (self.beta1 as f32, self.rounded().map(f64::from));
        let (first, is_apex) = (t <= 1, self.form == NovogradForm::Apex);
        let start = if is_apex && self.init_zero { 0.0 } else { norm };
        let before = if first { start } else { f64::from(known.number) };
        let root = if first && !is_apex {
            norm
        } else {
            (beta2 * (before * before) + (1.0 - beta2) * (norm * norm)).sqrt()
        };
        known.number = root as f32;
        if !is_apex {
            let of_grad = inverse(if first { root } else { root + eps }) * grad_factor;
            return padded([keep, of_grad as f32, weight_decay as f32, rate as f32, 0.0]);
        }
        let [c1, c2] = match self.bias_correction {
            true => [1.0 - power(beta1, t), (1.0 - power(beta2, t)).sqrt()],
            false => [1.0, 1.0],
        };
        let taken = if self.averaging { 1.0 - beta1 } else { 1.0 };
        let inverse = inverse(root / c2 + eps);
        let [of_grad, of_weight, of_momentum, decay] = match self.reg_inside {
            true => [taken * inverse * grad_factor, taken * weight_decay, rate / c1, 0.0],
            false => [taken * grad_factor, 0.0, rate * inverse / c1, rate * weight_decay],
        };
        padded([keep, of_grad as f32, of_weight as f32, of_momentum as f32, decay as f32])
    }

    fn factor_fields(&self, fields: StructArg, _momentum: Momentum) -> StructArg {
        let Self { form, bias_correction, reg_inside, averaging, init_zero, .. } = *self;
        let flags = match form {
            NovogradForm::Paper => [0; 5],
            NovogradForm::Apex => {
                [true, bias_correction, reg_inside, averaging, init_zero].map(i32::from)
            }
        };
        fields.field(self.rounded()).field(flags)
    }
}

impl Novograd {
    /// `beta1`, `beta2` and `eps`, rounded as in the kernel.
    fn rounded(&self) -> [f32; 3] {
        [self.beta1, self.beta2, self.eps].map(|value| value as f32)
    }
}

/// 1 / x, or 0 if x is 0: a gradient of zeros stays zero.
fn inverse(x: f64) -> f64 {
    if x > 0.0 { 1.0 / x } else { 0.0 }
}
