//! The ops, one folder each.

pub mod anchors;
pub mod decide_flips;
pub mod decode_proposals;
pub mod detections;
pub mod encode_boxes;
pub mod flatten_rois;
pub mod gather_anchors;
pub mod match_anchors;
pub mod nms_proposals;
pub mod roi_candidates;
pub mod roi_levels;
pub mod sample_anchors;
pub mod sample_rois;
pub mod sum;
pub mod top_k_per_level;
pub mod transform_boxes;

use crate::case::OpCase;

/// The cases of every op.
pub(crate) fn cases() -> Vec<OpCase> {
    [
        anchors::cases(),
        decide_flips::cases(),
        decode_proposals::cases(),
        detections::cases(),
        encode_boxes::cases(),
        flatten_rois::cases(),
        gather_anchors::cases(),
        match_anchors::cases(),
        nms_proposals::cases(),
        roi_candidates::cases(),
        roi_levels::cases(),
        sample_anchors::cases(),
        sample_rois::cases(),
        sum::cases(),
        top_k_per_level::cases(),
        transform_boxes::cases(),
    ]
    .concat()
}
