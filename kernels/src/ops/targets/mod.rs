//! Matching and sampling, and the training targets computed from them.

pub mod gather_anchors;
pub mod keypoint_targets;
pub mod mask_targets;
pub mod match_anchors;
pub mod match_rois;
pub mod roi_candidates;
pub mod sample_anchors;
pub mod sample_rois;

use crate::case::OpCase;

/// The cases of these ops.
pub(super) fn cases() -> Vec<OpCase> {
    [
        gather_anchors::cases(),
        keypoint_targets::cases(),
        mask_targets::cases(),
        match_anchors::cases(),
        match_rois::cases(),
        roi_candidates::cases(),
        sample_anchors::cases(),
        sample_rois::cases(),
    ]
    .concat()
}
