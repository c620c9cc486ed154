//! LARS.

use configs::{Check, table};
use device::StructArg;

use super::{Entry, Factors, Known, Momentum, Rule, by_norms, padded, sgd};
use crate::Cost;

table! {
    /// `[solver.lars]`: read with `solver.optimizer = "lars"`, together with `solver.momentum`.
    ///
    /// Layer-wise adaptive rate scaling: <https://arxiv.org/abs/1708.03888>, Algorithm 1.
    /// `m = momentum * m + rate * local * (g + weight_decay * w); w -= m`, with
    /// `local = trust * |w| / (|g| + weight_decay * |w|)`, or 1 where a norm is 0.
    pub struct Lars {
        /// Trust coefficient: norm of an update relative to its weight's, before learning rate and
        /// momentum. Default 0.001, as in arXiv 1708.03888.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Hyperparameter)]
        pub trust_coefficient: f64 = 0.001,
        /// If true, learning rates of biases and of the scale and shift of normalization layers are
        /// adapted too; if false, SGD with momentum updates them. Default true, as in the paper.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub adapts_vectors: bool = true,
    }
}

/// Properties of LARS.
pub const ENTRY: Entry = Entry {
    mlperf: "lars",
    needs_norms: true,
    needs_weight_norms: true,
    cost: Cost { flops: 10, bytes: 24 },
    update: by_norms::update,
    factors: Some("lars_factors"),
    kernels: by_norms::KERNELS,
    ..sgd::ENTRY
};

impl Rule for Lars {
    fn entry(&self) -> &'static Entry {
        &ENTRY
    }

    fn check(&self, check: &mut Check) {
        check.positive("solver.lars.trust_coefficient", self.trust_coefficient);
    }

    fn adapts(&self, is_weight: bool) -> bool {
        self.adapts_vectors || is_weight
    }

    fn factors(&self, known: &mut Known) -> Factors {
        let Known { group, weight_decay, norm, weight_norm, .. } = *known;
        let trust = f64::from(self.trust_coefficient as f32);
        let local = if self.adapts(group.is_weight) && norm > 0.0 && weight_norm > 0.0 {
            trust * weight_norm / (norm + weight_decay * weight_norm)
        } else {
            1.0
        };
        let rate = known.rate * local;
        let [of_grad, of_weight] = [known.grad_factor, weight_decay].map(|of| (rate * of) as f32);
        padded([known.momentum.factor, of_grad, of_weight, 1.0, 0.0])
    }

    fn factor_fields(&self, fields: StructArg, momentum: Momentum) -> StructArg {
        fields.field([momentum.factor, self.trust_coefficient as f32])
    }
}
