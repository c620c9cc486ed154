//! COCO and LVIS scoring: detections against annotations, by boxes, masks or keypoints.
//!
//! `hotcoco` computes the metrics. This crate adds types, checks that report a user's mistake in
//! one line, and pycocotools' printout. The metrics are bit-identical to pycocotools' and, for LVIS
//! annotations, to lvis-api's; with more than 4096 categories they are equal except for rounding.

mod analysis;
mod class_scores;
mod class_table;
mod compare;
mod detections;
mod error;
mod evaluate;
mod ground_truth;
mod json;
#[cfg(test)]
mod keypoint_tests;
mod keypoints;
mod lvis;
mod report;
mod resample;
mod results_file;
mod rle;
#[cfg(test)]
mod samples;
mod summary;
#[cfg(test)]
mod tests;

pub use analysis::{Analysis, ErrorKind, ImageScores, LabelDoubt, analyze};
pub use class_scores::{ClassScores, Threshold};
pub use class_table::{class_table, short_class_table};
pub use compare::{Comparison, ScoreDifference, compare};
pub use detections::{Detection, Results};
pub use error::ScoreError;
pub use evaluate::{Curves, evaluate, evaluate_files, evaluate_results};
pub use ground_truth::{GroundTruth, GtAnnotation, GtCategory, GtImage, GtMask};
pub use lvis::{LVIS_STAT_NAMES, LvisSummary, evaluate_lvis};
pub use report::report_files;
pub use results_file::{
    result_json, write_results_json, write_results_json_of, write_results_json_with_files,
};
pub use rle::{Rle, bbox_iou, encode_mask, mask_iou};
pub use summary::{KEYPOINT_STAT_NAMES, STAT_NAMES, Summary, Undefined};

/// An IoU type: the kind of shapes that are compared (by IoU or, for keypoints, by OKS).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IouType {
    /// Boxes.
    Bbox,
    /// Masks.
    Segm,
    /// Keypoints.
    Keypoints,
}

impl IouType {
    /// All IoU types. A model is evaluated by the last type that it predicts.
    pub const ALL: [Self; 3] = [Self::Bbox, Self::Segm, Self::Keypoints];

    /// COCO's name of the IoU type: `bbox`, `segm` or `keypoints`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            IouType::Bbox => "bbox",
            IouType::Segm => "segm",
            IouType::Keypoints => "keypoints",
        }
    }

    /// The shape's name in messages: `box`, `mask` or `keypoint`.
    #[must_use]
    pub fn shape(self) -> &'static str {
        match self {
            IouType::Bbox => "box",
            IouType::Segm => "mask",
            IouType::Keypoints => "keypoint",
        }
    }

    /// The plural of [`shape`](Self::shape): `boxes`, `masks` or `keypoints`.
    #[must_use]
    pub fn shapes(self) -> &'static str {
        match self {
            IouType::Bbox => "boxes",
            IouType::Segm => "masks",
            IouType::Keypoints => "keypoints",
        }
    }

    /// The measure of overlap: `IoU` or `OKS`.
    #[must_use]
    pub fn measure(self) -> &'static str {
        match self {
            IouType::Bbox | IouType::Segm => "IoU",
            IouType::Keypoints => "OKS",
        }
    }

    /// COCO's names of its metrics, in the order of [`Summary::stats`]: twelve, ten for keypoints.
    #[must_use]
    pub fn stat_names(self) -> &'static [&'static str] {
        match self {
            IouType::Bbox | IouType::Segm => &STAT_NAMES,
            IouType::Keypoints => &KEYPOINT_STAT_NAMES,
        }
    }

    /// The name of a class's recall over all sizes: `AR100` (100 detections per image) or, for
    /// keypoints, `AR` (20 detections).
    #[must_use]
    pub fn recall_name(self) -> &'static str {
        match self {
            IouType::Bbox | IouType::Segm => "AR100",
            IouType::Keypoints => "AR",
        }
    }
}

impl std::fmt::Display for IouType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
