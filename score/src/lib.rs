//! COCO and LVIS scoring: detections against annotations, by boxes or by masks.
//!
//! `hotcoco` computes; this room adds the checks that turn a user's mistake into one sentence,
//! our own types, and the familiar printout. The numbers equal pycocotools' bit for bit, and
//! those of LVIS annotations lvis-api's.

mod analysis;
mod class_table;
mod compare;
mod detections;
mod error;
mod evaluate;
mod ground_truth;
mod json;
mod lvis;
mod report;
mod results_file;
mod rle;
mod summary;
#[cfg(test)]
mod tests;

pub use analysis::{Analysis, ClassScores, ErrorKind, ImageScores, LabelDoubt, Threshold, analyze};
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
pub use summary::{STAT_NAMES, Summary, Undefined};

/// A kind of score: the shapes whose overlap is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IouType {
    /// Boxes.
    Bbox,
    /// Masks.
    Segm,
}

impl IouType {
    /// All of them. A model is judged by the last one that it has.
    pub const ALL: [Self; 2] = [Self::Bbox, Self::Segm];

    /// COCO's name for it: `bbox` or `segm`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            IouType::Bbox => "bbox",
            IouType::Segm => "segm",
        }
    }

    /// One such shape in a sentence: `box` or `mask`.
    #[must_use]
    pub fn shape(self) -> &'static str {
        match self {
            IouType::Bbox => "box",
            IouType::Segm => "mask",
        }
    }

    /// Several of them: `boxes` or `masks`.
    #[must_use]
    pub fn shapes(self) -> &'static str {
        match self {
            IouType::Bbox => "boxes",
            IouType::Segm => "masks",
        }
    }
}

impl std::fmt::Display for IouType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
