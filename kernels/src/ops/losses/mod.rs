//! Losses and their gradients, selection of the columns that a loss reads, and accuracies.

pub mod accuracies;
pub mod bce_loss;
pub mod giou_loss;
pub mod mask_bce_loss;
pub mod mask_probabilities;
pub mod mean_logits;
pub mod select_columns;
pub mod smooth_l1_loss;
pub mod softmax_cross_entropy;
pub mod weighted_cross_entropy;

use crate::case::OpCase;

/// The cases of these ops.
pub(super) fn cases() -> Vec<OpCase> {
    [
        accuracies::cases(),
        bce_loss::cases(),
        giou_loss::cases(),
        mask_bce_loss::cases(),
        mask_probabilities::cases(),
        mean_logits::cases(),
        select_columns::cases(),
        smooth_l1_loss::cases(),
        softmax_cross_entropy::cases(),
        weighted_cross_entropy::cases(),
    ]
    .concat()
}
