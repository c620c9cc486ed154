//! Anchors, proposals, RoIs and detections.

pub mod anchors;
pub mod decode_proposals;
pub mod detections;
pub mod encode_boxes;
pub mod flatten_rois;
pub mod keypoint_peaks;
pub mod nms_proposals;
pub mod refine_rois;
pub mod roi_levels;
pub mod top_k_per_level;
pub mod transform_boxes;

use crate::case::OpCase;

/// The cases of these ops.
pub(super) fn cases() -> Vec<OpCase> {
    [
        anchors::cases(),
        decode_proposals::cases(),
        detections::cases(),
        encode_boxes::cases(),
        flatten_rois::cases(),
        keypoint_peaks::cases(),
        nms_proposals::cases(),
        refine_rois::cases(),
        roi_levels::cases(),
        top_k_per_level::cases(),
        transform_boxes::cases(),
    ]
    .concat()
}
