//! Tests that cross rooms. Here is what several of them share: the checks of the whole step, which
//! run on the driver for tests and on a GPU. Golden data, the rules of the house and the end-to-end
//! tests are test targets of their own.

pub mod step;

/// The outputs of both samplers, by name: inputs of a step that is given its samples.
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
