//! AdamW.

use configs::{Check, table};
use device::StructArg;

use super::{Entry, Factors, Known, Momentum, Rule, below_one, power, sgd};
use crate::Cost;
use crate::isa::wide;

table! {
    /// `[solver.adamw]`: read with `solver.optimizer = "adamw"`, which ignores `solver.momentum`.
    ///
    /// Adam with decoupled weight decay, as `torch.optim.AdamW`:
    /// <https://arxiv.org/abs/1711.05101>, Algorithm 2. Update `t`, the first being 1, is:
    ///
    /// `m += (1 - beta1) * (g - m); v = beta2 * v + (1 - beta2) * g * g;`
    /// `w = (1 - rate * weight_decay) * w`
    /// `- rate / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)`
    pub struct Adamw {
        /// Decay rate of the first moment, below 1. Default 0.9, as in torch.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Hyperparameter)]
        pub beta1: f64 = 0.9,
        /// Decay rate of the second moment, below 1. Default 0.999, as in torch.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Hyperparameter)]
        pub beta2: f64 = 0.999,
        /// Added to the root of the second moment. Default 1e-8, as in torch.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Hyperparameter)]
        pub eps: f64 = 1e-8,
    }
}

/// Properties of AdamW.
pub const ENTRY: Entry = Entry {
    mlperf: "adamw",
    synonyms: &["adam", "adamw"],
    has_momentum: false,
    rate_by_root: true,
    second: Some("second_moment/"),
    steps: Some("adamw/steps"),
    cost: Cost { flops: 14, bytes: 28 },
    update,
    factors: Some("adamw_factors"),
    kernels: ["adamw", "adamw_sums"],
    ..sgd::ENTRY
};

impl Rule for Adamw {
    fn entry(&self) -> &'static Entry {
        &ENTRY
    }

    fn check(&self, check: &mut Check) {
        below_one(check, "solver.adamw.beta1", self.beta1);
        below_one(check, "solver.adamw.beta2", self.beta2);
        check.positive("solver.adamw.eps", self.eps);
    }

    fn factors(&self, known: &mut Known) -> Factors {
        let [take1, beta2, take2, eps] = self.read();
        let Known { rate, weight_decay, t, .. } = *known;
        let keep = (1.0 - rate * weight_decay) as f32;
        let step = (rate / (1.0 - power(self.beta1, t))) as f32;
        let root = (1.0 - power(self.beta2, t)).sqrt() as f32;
        [take1, beta2, take2, eps, known.control.grad_factor, keep, step, root]
    }

    fn factor_fields(&self, fields: StructArg, _momentum: Momentum) -> StructArg {
        fields.field([self.beta1, self.beta2])
    }

    fn fields(&self, fields: StructArg, _momentum: Momentum) -> StructArg {
        fields.field(self.read())
    }
}

impl Adamw {
    /// The coefficients of an element's update. `1 - beta` is computed in f64, as in torch, since
    /// the result would have few accurate digits in f32.
    fn read(&self) -> [f32; 4] {
        let rest = |beta: f64| (1.0 - beta) as f32;
        [rest(self.beta1), self.beta2 as f32, rest(self.beta2), self.eps as f32]
    }
}

wide! {
    fn update(
        factors: Factors,
        weights: &mut [f32],
        momenta: &mut [f32],
        seconds: &mut [f32],
        grads: &[f32],
    ) {
        let [take1, beta2, take2, eps, grad_factor, keep, step, root] = factors;
        for (((w, m), v), grad) in weights.iter_mut().zip(momenta).zip(seconds).zip(grads) {
            let g = grad_factor * grad;
            *m += take1 * (g - *m);
            *v = beta2 * *v + take2 * (g * g);
            *w = keep * *w - step * (*m / (v.sqrt() / root + eps));
        }
    }
}
