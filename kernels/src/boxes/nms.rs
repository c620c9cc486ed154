//! Greedy non-maximum suppression.

use super::columns::BoxColumns;
use super::geometry::Box4;
use super::rank::{rank_index, rank_key, sort_by_score};

/// Indices of the kept boxes, sorted by (score descending, index ascending). A box is suppressed if
/// its IoU with an earlier kept box is strictly greater than `threshold`.
pub fn nms(boxes: &[Box4], scores: &[f32], threshold: f32, plus_one: bool) -> Vec<usize> {
    let order = sort_by_score(scores);
    let sorted: Vec<Box4> = order.iter().map(|&i| boxes[i]).collect();
    let kept = nms_sorted(&sorted, threshold, plus_one, usize::MAX);
    kept.into_iter().map(|i| order[i]).collect()
}

/// [`nms`] of boxes that are already sorted; stops once `max_keep` are kept.
pub fn nms_sorted(boxes: &[Box4], threshold: f32, plus_one: bool, max_keep: usize) -> Vec<usize> {
    let columns = BoxColumns::new(boxes, plus_one);
    let mut suppressed = vec![false; boxes.len()];
    let mut ious = vec![0.0; boxes.len()];
    let mut kept = Vec::new();
    for i in 0..boxes.len() {
        if kept.len() == max_keep {
            break;
        }
        if suppressed[i] {
            continue;
        }
        kept.push(i);
        let later = &mut ious[i + 1..];
        columns.iou_into(&boxes[i], i + 1, later);
        for (gone, &iou) in suppressed[i + 1..].iter_mut().zip(later.iter()) {
            *gone |= iou > threshold;
        }
    }
    kept
}

/// [`nms`] within each group (a class or level). Returns the kept indices of all groups, sorted by
/// (score descending, index ascending).
pub fn batched_nms(
    boxes: &[Box4],
    scores: &[f32],
    groups: &[i32],
    threshold: f32,
    plus_one: bool,
) -> Vec<usize> {
    let mut order = sort_by_score(scores);
    // A stable sort: within a group, boxes remain sorted by score.
    order.sort_by_key(|&i| groups[i]);
    let mut kept = Vec::new();
    for group in order.chunk_by(|&a, &b| groups[a] == groups[b]) {
        let sorted: Vec<Box4> = group.iter().map(|&i| boxes[i]).collect();
        let indices = nms_sorted(&sorted, threshold, plus_one, usize::MAX);
        kept.extend(indices.into_iter().map(|i| rank_key(scores[group[i]], group[i] as u32)));
    }
    kept.sort_unstable();
    kept.into_iter().map(rank_index).collect()
}
