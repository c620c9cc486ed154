//! The update of optimizers whose coefficients (`keep`, `of_grad`, `of_weight`, `of_momentum` and
//! `decay`) are computed from norms.

use super::Factors;
use crate::isa::wide;

/// Names of the kernel without and with sums for statistics.
pub(super) const KERNELS: [&str; 2] = ["update_by_norms", "update_by_norms_sums"];

wide! {
    /// `m = keep * m + (of_grad * grad + of_weight * w); w -= of_momentum * m + decay * w`.
    pub(super) fn update(
        factors: Factors,
        weights: &mut [f32],
        momenta: &mut [f32],
        _seconds: &mut [f32],
        grads: &[f32],
    ) {
        let [keep, of_grad, of_weight, of_momentum, decay, ..] = factors;
        for ((w, m), grad) in weights.iter_mut().zip(momenta).zip(grads) {
            *m = keep * *m + (of_grad * grad + of_weight * *w);
            *w -= of_momentum * *m + decay * *w;
        }
    }
}
