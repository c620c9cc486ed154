//! Ops on feature maps: input, pooling, normalisation, pyramids, sums.

pub mod clear_outside;
pub mod fill;
pub mod gather_patches;
pub mod gelu;
pub mod group_norm;
pub mod keypoint_maps;
pub mod layer_norm;
pub mod level_gradients;
pub mod max_pool;
pub mod mean_positions;
pub mod preprocess;
pub mod roi_align;
pub mod scaled_residual;
pub mod sum;

use crate::case::OpCase;

/// The cases of these ops.
pub(super) fn cases() -> Vec<OpCase> {
    [
        clear_outside::cases(),
        fill::cases(),
        gather_patches::cases(),
        gelu::cases(),
        group_norm::cases(),
        keypoint_maps::cases(),
        layer_norm::cases(),
        level_gradients::cases(),
        max_pool::cases(),
        mean_positions::cases(),
        preprocess::cases(),
        roi_align::cases(),
        scaled_residual::cases(),
        sum::cases(),
    ]
    .concat()
}
