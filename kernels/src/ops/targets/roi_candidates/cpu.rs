//! CPU reference of `roi_candidates`: images in parallel.

use rayon::prelude::*;

use super::{RoiCandidates, RoiCandidatesInputs};
use crate::boxes::{Thresholds, as_boxes, as_boxes_mut, at_most, gt_rows, match_boxes};
use crate::cpu::CpuArgs;

pub(super) fn roi_candidates(op: &RoiCandidates, args: &mut CpuArgs<'_>) {
    let inputs = RoiCandidatesInputs::of(&args.inputs);
    let (proposals, anchor_idx) =
        (as_boxes(inputs.proposals.f32()), inputs.proposal_anchor_idx.i32());
    let (counts, gt_counts) = (inputs.counts.i32(), inputs.gt_counts.i32());
    let (gt_boxes, gt_classes) = (as_boxes(inputs.gt_boxes.f32()), inputs.gt_classes.i32());
    let num_images = at_most(inputs.num_images.i32()[0], counts.len());
    let thresholds = Thresholds { fg_iou: op.fg_iou, bg_iou: op.bg_iou };

    let [candidates, labels, matched, keys, out_counts] = &mut args.outputs[..] else {
        unreachable!("infer gives five outputs")
    };
    let rows = labels.shape()[1].max(1);
    let (candidates, labels) = (as_boxes_mut(candidates.f32()), labels.i32());
    let (matched, keys, out_counts) = (matched.i32(), keys.i32(), out_counts.i32());
    candidates.fill([0.0; 4]);
    labels.fill(-1);
    matched.fill(0);
    keys.fill(-1);
    out_counts.fill(0);
    candidates
        .par_chunks_mut(rows)
        .zip(labels.par_chunks_mut(rows))
        .zip(matched.par_chunks_mut(rows))
        .zip(keys.par_chunks_mut(rows))
        .zip(out_counts.par_iter_mut())
        .take(num_images)
        .enumerate()
        .for_each(|(n, ((((boxes, labels), matched), keys), count))| {
            let own = gt_rows(proposals, counts, n);
            let (gts, classes) =
                (gt_rows(gt_boxes, gt_counts, n), gt_rows(gt_classes, gt_counts, n));
            let len = own.len() + gts.len();
            boxes[..own.len()].copy_from_slice(own);
            boxes[own.len()..len].copy_from_slice(gts);
            keys[..own.len()].copy_from_slice(gt_rows(anchor_idx, counts, n));
            for (g, key) in keys[own.len()..len].iter_mut().enumerate() {
                *key = -2 - g as i32;
            }
            *count = len as i32;
            let matches = match_boxes(&boxes[..len], gts, thresholds, op.plus_one);
            for ((label, matched), m) in labels.iter_mut().zip(matched).zip(matches) {
                (*label, *matched) = match m {
                    crate::boxes::BELOW => (0, 0),
                    crate::boxes::BETWEEN => (-1, 0),
                    gt => (classes[gt as usize], gt),
                };
            }
        });
}
