//! CPU reference of `accuracies`.

use rayon::prelude::*;

use super::{Accuracies, COUNTS, COVERS, Count};
use crate::boxes::{as_boxes, at_most, gt_rows, iou};
use crate::cpu::CpuArgs;

pub(super) fn accuracies(op: Accuracies, args: &mut CpuArgs<'_>) {
    let inputs = op.inputs(&args.inputs);
    let mut tally = [0; COUNTS];
    let mut add = |count: Count, holds: bool| tally[count as usize] += i32::from(holds);

    let classes = inputs.class_logits.shape()[1];
    for (row, &label) in inputs.labels.i32().iter().enumerate() {
        let Ok(class) = usize::try_from(label) else { continue };
        let x = &inputs.class_logits.f32()[row * classes..][..classes];
        let is_foreground = class > 0;
        add(Count::Foreground, is_foreground);
        add(Count::Background, !is_foreground);
        add(Count::ForegroundRight, is_foreground && is_predicted(x, class));
        add(Count::BackgroundRight, !is_foreground && is_predicted(x, 0));
        add(Count::Missed, is_foreground && is_predicted(x, 0));
    }
    for (&label, &logit) in inputs.anchor_labels.i32().iter().zip(inputs.anchor_logits.f32()) {
        add(Count::Positives, label > 0);
        add(Count::Negatives, label == 0);
        add(Count::PositivesFound, label > 0 && logit > 0.0);
    }
    let (proposals, counts) = (as_boxes(inputs.proposals.f32()), inputs.counts.i32());
    let (gt_boxes, gt_counts) = (as_boxes(inputs.gt_boxes.f32()), inputs.gt_counts.i32());
    for n in 0..at_most(inputs.num_images.i32()[0], counts.len()) {
        add(Count::Images, true);
        let own = gt_rows(proposals, counts, n);
        for gt in gt_rows(gt_boxes, gt_counts, n) {
            add(Count::Objects, true);
            let covers = |proposal| iou(gt, proposal, op.plus_one) >= COVERS;
            add(Count::ObjectsCovered, own.par_iter().any(covers));
        }
    }
    if let (Some(logits), Some(labels), Some(targets)) =
        (inputs.mask_logits, inputs.mask_labels, inputs.mask_targets)
    {
        let pixels = logits.shape()[1] * logits.shape()[2];
        for (row, _) in labels.i32().iter().enumerate().filter(|(_, label)| **label > 0) {
            for at in row * pixels..(row + 1) * pixels {
                let (is_inside, predicted) = (targets.f32()[at] > 0.5, logits.f32()[at] > 0.0);
                add(Count::Inside, is_inside);
                add(Count::Outside, !is_inside);
                add(Count::InsideWrong, is_inside && !predicted);
                add(Count::OutsideWrong, !is_inside && predicted);
            }
        }
    }
    args.outputs[0].i32().copy_from_slice(&tally);
}

/// True if `class` has the greatest logit, and is the lowest such class.
fn is_predicted(logits: &[f32], class: usize) -> bool {
    let Some(&own) = logits.get(class) else { return false };
    let (before, from) = logits.split_at(class);
    before.iter().all(|&x| own > x) && from.iter().all(|&x| own >= x)
}
