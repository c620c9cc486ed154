//! CPU reference of `match_anchors`: tiles of anchors in parallel.

use rayon::prelude::*;

use super::{MatchAnchors, MatchAnchorsInputs};
use crate::boxes::{
    Box4, BoxColumns, ImageSize, Thresholds, as_boxes, at_most, best_gts, gt_rows, inside,
};
use crate::cpu::{CpuArgs, exactly};

/// Anchors of a tile: their columns, one row of overlaps and the results fit in L1 and L2.
const TILE: usize = 2048;

/// The inputs of the matching of one image.
struct Image<'a> {
    anchors: &'a [Box4],
    gts: &'a [Box4],
    size: ImageSize,
}

pub(super) fn match_anchors(op: &MatchAnchors, args: &mut CpuArgs<'_>) {
    let inputs = MatchAnchorsInputs::of(&args.inputs);
    let anchors = as_boxes(inputs.anchors.f32());
    let (gt_boxes, gt_counts) = (as_boxes(inputs.gt_boxes.f32()), inputs.gt_counts.i32());
    let sizes = inputs.network_sizes.i32();
    let num_images = at_most(inputs.num_images.i32()[0], gt_counts.len());
    let [labels, matched] = exactly(&mut args.outputs);
    let len = anchors.len().max(1);
    let images = labels.i32().par_chunks_mut(len).zip(matched.i32().par_chunks_mut(len));
    images.zip(args.workspace.par_chunks_mut(len)).enumerate().for_each(
        |(n, ((labels, matched), best_iou))| {
            if n >= num_images {
                labels.fill(-1);
                matched.fill(0);
                return;
            }
            let gts = gt_rows(gt_boxes, gt_counts, n);
            let image = Image { anchors, gts, size: ImageSize::from_row(&sizes[2 * n..]) };
            let highest = find_best(op, &image, matched, best_iou);
            label(op, &image, &highest, labels, matched, best_iou);
        },
    );
}

/// First pass: the best ground truth of each anchor, and for each tile the highest IoU of each
/// ground truth.
fn find_best(
    op: &MatchAnchors,
    image: &Image<'_>,
    matched: &mut [i32],
    best_iou: &mut [f32],
) -> Vec<Vec<f32>> {
    let tiles = matched.par_chunks_mut(TILE).zip(best_iou.par_chunks_mut(TILE));
    tiles
        .zip(image.anchors.par_chunks(TILE))
        .map(|((matched, best_iou), anchors)| {
            let mut row = [0.0; TILE];
            let columns = BoxColumns::new(anchors, op.plus_one);
            best_gts(&columns, image.gts, best_iou, matched, &mut row[..anchors.len()])
        })
        .collect()
}

/// Second pass: labels. Overlaps are computed again only where a tile holds the best anchor of a
/// ground truth.
fn label(
    op: &MatchAnchors,
    image: &Image<'_>,
    highest: &[Vec<f32>],
    labels: &mut [i32],
    matched: &mut [i32],
    best_iou: &[f32],
) {
    let of_image: Vec<f32> = (0..image.gts.len())
        .map(|gt| highest.iter().fold(-1.0f32, |high, tile| high.max(tile[gt])))
        .collect();
    let thresholds = Thresholds { fg_iou: op.fg_iou, bg_iou: op.bg_iou };
    let tiles = labels.par_chunks_mut(TILE).zip(matched.par_chunks_mut(TILE));
    let tiles = tiles.zip(best_iou.par_chunks(TILE)).zip(image.anchors.par_chunks(TILE));
    tiles.zip(highest).for_each(|((((labels, matched), best_iou), anchors), highest)| {
        for ((label, &gt), &iou) in labels.iter_mut().zip(matched.iter()).zip(best_iou) {
            *label = thresholds.classify(iou, gt);
        }
        if op.low_quality {
            restore(op, image.gts, anchors, highest, &of_image, labels, matched);
        }
        for ((label, gt), anchor) in labels.iter_mut().zip(matched).zip(anchors) {
            *gt = (*label).max(0);
            *label = match *label {
                crate::boxes::BELOW => 0,
                crate::boxes::BETWEEN => -1,
                _ => 1,
            };
            if op.straddle_filter && !inside(anchor, image.size) {
                *label = -1;
            }
        }
    });
}

/// Gives every anchor of the tile that ties a ground truth's best IoU its own best one.
fn restore(
    op: &MatchAnchors,
    gts: &[Box4],
    anchors: &[Box4],
    highest: &[f32],
    of_image: &[f32],
    matches: &mut [i32],
    best_gt: &[i32],
) {
    let holds_best = |gt: &usize| highest[*gt] == of_image[*gt];
    let mut row = [0.0; TILE];
    let row = &mut row[..anchors.len()];
    let mut columns = None;
    for gt in (0..gts.len()).filter(holds_best) {
        let columns = columns.get_or_insert_with(|| BoxColumns::new(anchors, op.plus_one));
        columns.iou_into(&gts[gt], 0, row);
        for ((m, &best), &iou) in matches.iter_mut().zip(best_gt).zip(row.iter()) {
            if iou == of_image[gt] {
                *m = best;
            }
        }
    }
}
