//! SGD, with the config keys `solver.momentum` and `solver.nesterov`.

use device::StructArg;

use super::{Entry, Factors, Known, Momentum, Rule, padded};
use crate::Cost;
use crate::isa::wide;

/// Stochastic gradient descent with momentum and weight decay, as `torch.optim.SGD`:
///
/// `g = grad + weight_decay * w; m = momentum * m + g;`
/// `w -= rate * (nesterov ? g + momentum * m : m)`
#[derive(Debug, Clone, Copy)]
pub struct Sgd;

/// Properties of SGD, on which the entries of other rules are based: SGD keeps only momenta, and
/// its kernel needs no precomputed factors.
pub const ENTRY: Entry = Entry {
    mlperf: "sgd_with_momentum",
    synonyms: &[],
    has_momentum: true,
    rate_by_root: false,
    needs_norms: false,
    needs_weight_norms: false,
    number: None,
    second: None,
    steps: None,
    cost: Cost { flops: 7, bytes: 20 },
    update,
    factors: None,
    kernels: ["sgd", "sgd_sums"],
};

impl Rule for Sgd {
    fn entry(&self) -> &'static Entry {
        &ENTRY
    }

    fn factors(&self, known: &mut Known) -> Factors {
        let Known { group, control, momentum: Momentum { factor, nesterov }, .. } = *known;
        let rate = control.rate(group.lr_factor);
        padded([rate, control.grad_factor, group.weight_decay, factor, f32::from(nesterov)])
    }

    fn fields(&self, fields: StructArg, momentum: Momentum) -> StructArg {
        fields.field(momentum.factor).field(i32::from(momentum.nesterov))
    }
}

wide! {
    fn update(
        factors: Factors,
        weights: &mut [f32],
        momenta: &mut [f32],
        _seconds: &mut [f32],
        grads: &[f32],
    ) {
        let [rate, grad_factor, weight_decay, momentum, nesterov, ..] = factors;
        for ((w, m), grad) in weights.iter_mut().zip(momenta).zip(grads) {
            let g = grad_factor * grad + weight_decay * *w;
            *m = momentum * *m + g;
            *w -= rate * if nesterov > 0.0 { g + momentum * *m } else { *m };
        }
    }
}
