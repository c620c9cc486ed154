//! The ops, one folder each.

pub mod bce_loss;
pub mod control_step;
pub mod gather_patches;
pub mod giou_loss;
pub mod grad_norms;
pub mod mask_bce_loss;
pub mod mask_probabilities;
pub mod mask_targets;
pub mod preprocess;
pub mod roi_align;
pub mod select_columns;
pub mod sgd;
pub mod smooth_l1_loss;
pub mod softmax_cross_entropy;
pub mod sum;

use crate::case::OpCase;

/// The cases of every op.
pub(crate) fn cases() -> Vec<OpCase> {
    [
        bce_loss::cases(),
        control_step::cases(),
        gather_patches::cases(),
        giou_loss::cases(),
        grad_norms::cases(),
        mask_bce_loss::cases(),
        mask_probabilities::cases(),
        mask_targets::cases(),
        preprocess::cases(),
        roi_align::cases(),
        select_columns::cases(),
        sgd::cases(),
        smooth_l1_loss::cases(),
        softmax_cross_entropy::cases(),
        sum::cases(),
    ]
    .concat()
}
