//! Convolutions and linear layers, their gradients, and the ops that are fused into them.

pub mod bias_grad;
pub mod class_masks;
pub mod conv2d;
pub mod conv_transpose;
pub mod device_rounding;
pub mod fold_norm;
pub mod gemm_op;
pub mod layer;
pub mod linear;
pub mod projected;
pub mod relu_mask;
pub mod rpn_head;
pub mod scale_weights;
pub mod stem;
pub mod upsample_add;

use crate::case::OpCase;

/// The cases of these ops.
pub(super) fn cases() -> Vec<OpCase> {
    [
        bias_grad::cases(),
        class_masks::cases(),
        conv2d::cases(),
        conv_transpose::cases(),
        fold_norm::cases(),
        linear::cases(),
        projected::cases(),
        relu_mask::cases(),
        rpn_head::cases(),
        scale_weights::cases(),
        stem::cases(),
        upsample_add::cases(),
    ]
    .concat()
}
