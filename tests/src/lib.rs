//! Tests across crates. This library contains the checks of the whole training step, which run on
//! the emulated driver and on a GPU. Golden data, the repository checks and the end-to-end tests
//! are separate test targets.

pub mod step;

/// Names of the outputs of both samplers, which are the inputs of a step with given samples.
pub const SAMPLES: [&str; 11] = [
    "rpn_sample_idx",
    "rois",
    "roi_image_idx",
    "roi_labels",
    "roi_matched",
    "num_rois",
    "mask_rois",
    "mask_roi_image_idx",
    "mask_roi_labels",
    "mask_roi_matched",
    "num_mask_rois",
];
