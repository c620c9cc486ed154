//! The ops, one folder each.

pub mod accumulate;
pub mod all_reduce;
pub mod anchors;
pub mod bce_loss;
pub mod bias_grad;
pub mod bucket;
pub mod class_masks;
pub mod control_step;
pub mod conv2d;
pub mod conv_transpose2x2;
pub mod decide_flips;
pub mod decode_proposals;
pub mod detections;
pub mod device_rounding;
pub mod encode_boxes;
pub mod fill;
pub mod flatten_rois;
pub mod gather_anchors;
pub mod gather_patches;
pub mod giou_loss;
pub mod grad_norms;
pub mod group_norm;
pub mod layer;
pub mod level_gradients;
pub mod linear;
pub mod mask_bce_loss;
pub mod mask_probabilities;
pub mod mask_targets;
pub mod match_anchors;
pub mod max_pool;
pub mod nms_proposals;
pub mod parameter_update;
pub mod preprocess;
pub mod product;
pub mod publish;
pub mod relu_mask;
pub mod roi_align;
pub mod roi_candidates;
pub mod roi_levels;
pub mod rpn_head;
pub mod sample_anchors;
pub mod sample_rois;
pub mod scalar_product;
pub mod scale_weights;
pub mod select_columns;
pub mod smooth_l1_loss;
pub mod softmax_cross_entropy;
pub mod stem;
pub mod sum;
pub mod top_k_per_level;
pub mod transform_boxes;
pub mod upsample_add;
pub mod weighted_losses;

use crate::case::OpCase;

/// The cases of every op.
pub fn cases() -> Vec<OpCase> {
    [
        accumulate::cases(),
        all_reduce::cases(),
        anchors::cases(),
        bce_loss::cases(),
        bias_grad::cases(),
        bucket::cases(),
        class_masks::cases(),
        control_step::cases(),
        conv2d::cases(),
        conv_transpose2x2::cases(),
        decide_flips::cases(),
        decode_proposals::cases(),
        detections::cases(),
        encode_boxes::cases(),
        fill::cases(),
        flatten_rois::cases(),
        gather_anchors::cases(),
        gather_patches::cases(),
        giou_loss::cases(),
        grad_norms::cases(),
        group_norm::cases(),
        level_gradients::cases(),
        linear::cases(),
        mask_bce_loss::cases(),
        mask_probabilities::cases(),
        mask_targets::cases(),
        match_anchors::cases(),
        max_pool::cases(),
        nms_proposals::cases(),
        parameter_update::cases(),
        preprocess::cases(),
        publish::cases(),
        relu_mask::cases(),
        roi_align::cases(),
        roi_candidates::cases(),
        roi_levels::cases(),
        rpn_head::cases(),
        sample_anchors::cases(),
        sample_rois::cases(),
        scalar_product::cases(),
        scale_weights::cases(),
        select_columns::cases(),
        smooth_l1_loss::cases(),
        softmax_cross_entropy::cases(),
        stem::cases(),
        sum::cases(),
        top_k_per_level::cases(),
        transform_boxes::cases(),
        upsample_add::cases(),
        weighted_losses::cases(),
    ]
    .concat()
}
