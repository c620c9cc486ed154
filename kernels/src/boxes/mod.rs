//! Box arithmetic: plain functions that the box ops, the scoring and the tests share.
//!
//! A box is `[x1, y1, x2, y2]` in pixels, f32. With `plus_one`, boxes are inclusive as in
//! maskrcnn-benchmark (a box from 3 to 3 is one pixel wide); otherwise they are as in torchvision.
//! Formulas use the order of operations of these two libraries, so f32 results that involve only `+
//! - * /` are bit-identical to theirs.

mod anchors;
mod coder;
mod columns;
mod geometry;
mod levels;
mod matcher;
mod nms;
mod rank;
mod rows;
mod sampling;
#[cfg(test)]
mod tests;

pub use anchors::{
    AnchorLevel, cell_anchors, cell_anchors_detectron, cell_anchors_exact, grid_anchors,
};
pub use coder::{MAX_LOG_RATIO, decode, encode};
pub use columns::BoxColumns;
pub use geometry::{
    Box4, ImageSize, area, as_boxes, as_boxes_mut, clip, giou, height, inside, iou, is_small, width,
};
pub(crate) use levels::epsilons;
pub use levels::roi_level;
pub use matcher::{BELOW, BETWEEN, Thresholds, match_boxes, match_iou};
pub use nms::{batched_nms, nms, nms_sorted};
pub use rank::{rank_key, sort_by_score, top_k};
pub use sampling::{max_positives, sample};

pub(crate) use geometry::sigmoid;
pub(crate) use matcher::best_gts;
pub(crate) use rank::rank_index;
pub(crate) use rows::{at_most, gt_rows};
