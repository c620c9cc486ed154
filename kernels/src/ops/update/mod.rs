//! The optimizer: norms, step control, accumulation, and the update itself.

pub mod accumulate;
pub mod control_step;
pub mod grad_norms;
pub mod parameter_update;
pub mod rules;
pub mod scalar_product;

use crate::case::OpCase;

/// The cases of these ops.
pub(super) fn cases() -> Vec<OpCase> {
    [
        accumulate::cases(),
        control_step::cases(),
        grad_norms::cases(),
        parameter_update::cases(),
        scalar_product::cases(),
    ]
    .concat()
}
