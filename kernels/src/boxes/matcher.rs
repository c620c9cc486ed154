//! Assignment of ground-truth boxes to anchors and proposals (torchvision's Matcher).

use super::columns::BoxColumns;
use super::geometry::Box4;

/// Background: the best IoU is below the background threshold.
pub const BELOW: i32 = -1;
/// Neither foreground nor background.
pub const BETWEEN: i32 = -2;

/// IoU from which a box is foreground, and below which it is background.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// A box with at least this IoU is foreground.
    pub fg_iou: f32,
    /// A box below this IoU is background.
    pub bg_iou: f32,
}

impl Thresholds {
    /// `best_gt` if its IoU is foreground, else [`BELOW`] or [`BETWEEN`].
    pub fn classify(&self, best_iou: f32, best_gt: i32) -> i32 {
        if best_iou < self.bg_iou {
            BELOW
        } else if best_iou < self.fg_iou {
            BETWEEN
        } else {
            best_gt
        }
    }
}

/// Matches the columns of `iou` (`[num_gts, num_boxes]`, row-major): the index of the best ground
/// truth (the lowest at ties), [`BELOW`] or [`BETWEEN`]. With `low_quality`, a box whose IoU with
/// some ground truth is the highest that this ground truth has, even if 0, is matched with the
/// box's own best ground truth regardless of the thresholds.
pub fn match_iou(
    iou: &[f32],
    num_boxes: usize,
    thresholds: Thresholds,
    low_quality: bool,
) -> Vec<i32> {
    let mut best = vec![(-1.0f32, BELOW); num_boxes];
    let rows = || iou.chunks_exact(num_boxes.max(1)).enumerate();
    for (gt, row) in rows() {
        for (best, &iou) in best.iter_mut().zip(row) {
            if iou > best.0 {
                *best = (iou, gt as i32);
            }
        }
    }
    let mut matches: Vec<i32> =
        best.iter().map(|&(iou, gt)| thresholds.classify(iou, gt)).collect();
    if low_quality {
        for (_, row) in rows() {
            let highest = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
            for ((m, &(_, gt)), &iou) in matches.iter_mut().zip(&best).zip(row) {
                if iou == highest {
                    *m = gt;
                }
            }
        }
    }
    matches
}

/// Updates `best_iou` and `best_gt` of each box with the ground truths in order, so that the lowest
/// index wins a tie, and returns the highest IoU of each ground truth. `row` is scratch memory with
/// one element per box.
pub(crate) fn best_gts(
    boxes: &BoxColumns,
    gts: &[Box4],
    best_iou: &mut [f32],
    best_gt: &mut [i32],
    row: &mut [f32],
) -> Vec<f32> {
    best_iou.fill(-1.0);
    best_gt.fill(0);
    let mut highest = Vec::with_capacity(gts.len());
    for (gt, b) in gts.iter().enumerate() {
        boxes.iou_into(b, 0, row);
        let mut high = -1.0f32;
        for ((best, idx), &iou) in best_iou.iter_mut().zip(best_gt.iter_mut()).zip(row.iter()) {
            *idx = if iou > *best { gt as i32 } else { *idx };
            *best = if iou > *best { iou } else { *best };
            high = if iou > high { iou } else { high };
        }
        highest.push(high);
    }
    highest
}

/// Matches `boxes` with `gts` without low-quality matches, as the RoI heads do.
pub fn match_boxes(
    boxes: &[Box4],
    gts: &[Box4],
    thresholds: Thresholds,
    plus_one: bool,
) -> Vec<i32> {
    if gts.is_empty() {
        return vec![BELOW; boxes.len()];
    }
    let columns = BoxColumns::new(boxes, plus_one);
    let (mut best_iou, mut row) = (vec![0.0; boxes.len()], vec![0.0; boxes.len()]);
    let mut best_gt = vec![0; boxes.len()];
    best_gts(&columns, gts, &mut best_iou, &mut best_gt, &mut row);
    let best = best_iou.iter().zip(&best_gt);
    best.map(|(&iou, &gt)| thresholds.classify(iou, gt)).collect()
}
