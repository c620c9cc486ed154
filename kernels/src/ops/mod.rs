//! The ops, one folder each.

pub mod bias_grad;
pub mod conv2d;
pub mod conv_transpose2x2;
pub mod group_norm;
pub mod linear;
pub mod max_pool;
pub mod relu_mask;
pub mod sum;
pub mod upsample_add;

use crate::case::OpCase;

/// The cases of every op.
pub(crate) fn cases() -> Vec<OpCase> {
    [
        bias_grad::cases(),
        conv2d::cases(),
        conv_transpose2x2::cases(),
        group_norm::cases(),
        linear::cases(),
        max_pool::cases(),
        relu_mask::cases(),
        sum::cases(),
        upsample_add::cases(),
    ]
    .concat()
}
