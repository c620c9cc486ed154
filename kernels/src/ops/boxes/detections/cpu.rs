//! CPU reference of `detections`: softmax of the RoIs, then NMS of images x classes, in parallel.

use rayon::prelude::*;

use super::{Detections, DetectionsInputs};
use crate::boxes::{
    Box4, ImageSize, as_boxes, as_boxes_mut, at_most, clip, decode, is_small, nms_sorted, rank_key,
};
use crate::cpu::{CpuArgs, exactly};

/// A class of a RoI that passed score and size.
#[derive(Clone, Copy)]
struct Candidate {
    image: usize,
    class: usize,
    key: u64,
    score: f32,
    b: Box4,
}

pub(super) fn detections(op: &Detections, args: &mut CpuArgs<'_>) {
    let num_images = args.outputs[4].shape()[0];
    let mut candidates = candidates(op, args, num_images);
    // Grouped by image and class, best first.
    candidates.par_sort_unstable_by_key(|c| (c.image, c.class, c.key));
    let groups: Vec<&[Candidate]> =
        candidates.chunk_by(|a, b| (a.image, a.class) == (b.image, b.class)).collect();
    let kept: Vec<Vec<Candidate>> =
        groups.into_par_iter().map(|group| survive(op, group)).collect();

    let mut images: Vec<Vec<Candidate>> = vec![Vec::new(); num_images];
    for c in kept.into_iter().flatten() {
        images[c.image].push(c);
    }
    for image in &mut images {
        image.sort_unstable_by_key(|c| c.key);
        image.truncate(op.per_image);
    }
    write(&images, args);
}

/// All candidates, RoI after RoI.
fn candidates(op: &Detections, args: &CpuArgs<'_>, num_images: usize) -> Vec<Candidate> {
    let inputs = DetectionsInputs::of(&args.inputs);
    let classes = inputs.class_logits.shape()[1];
    let (logits, deltas) = (inputs.class_logits.f32(), as_boxes(inputs.box_deltas.f32()));
    // Deltas of each class, or of all.
    let groups = inputs.box_deltas.shape()[1] / 4;
    let (rois, image_idx) = (as_boxes(inputs.rois.f32()), inputs.image_idx.i32());
    let num_rois = at_most(inputs.num_rois.i32()[0], rois.len());
    let sizes = inputs.network_sizes.i32();
    (0..num_rois)
        .into_par_iter()
        .flat_map_iter(|roi| {
            let image = usize::try_from(image_idx[roi]).ok().filter(|&n| n < num_images);
            let row = roi * classes..(roi + 1) * classes;
            let scores = if image.is_some() { softmax(&logits[row]) } else { Vec::new() };
            let deltas = &deltas[roi * groups..][..groups];
            scores.into_iter().enumerate().skip(1).filter_map(move |(class, score)| {
                let image = image?;
                // NaN is over nothing.
                let passes = score > op.score_threshold;
                if !passes {
                    return None;
                }
                let b =
                    decode(&rois[roi], &deltas[class.min(groups - 1)], &op.weights, op.plus_one);
                let b = clip(&b, ImageSize::from_row(&sizes[2 * image..]), op.plus_one);
                let key = rank_key(score, (roi * (classes - 1) + class - 1) as u32);
                let large = !is_small(&b, op.min_size, op.plus_one);
                large.then_some(Candidate { image, class, key, score, b })
            })
        })
        .collect()
}

fn softmax(logits: &[f32]) -> Vec<f32> {
    let highest = logits.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
    let mut scores: Vec<f32> = logits.iter().map(|x| (x - highest).exp()).collect();
    let sum: f32 = scores.iter().sum();
    scores.iter_mut().for_each(|s| *s /= sum);
    scores
}

/// NMS of one class of one image. More than `per_image` of a class are never kept.
fn survive(op: &Detections, group: &[Candidate]) -> Vec<Candidate> {
    let boxes: Vec<Box4> = group.iter().map(|c| c.b).collect();
    let kept = nms_sorted(&boxes, op.nms_threshold, op.plus_one, op.per_image);
    kept.into_iter().map(|i| group[i]).collect()
}

fn write(images: &[Vec<Candidate>], args: &mut CpuArgs<'_>) {
    let [boxes, scores, labels, image_idx, counts, num_detections] = exactly(&mut args.outputs);
    let (boxes, scores) = (as_boxes_mut(boxes.f32()), scores.f32());
    let (labels, image_idx, counts) = (labels.i32(), image_idx.i32(), counts.i32());
    boxes.fill([0.0; 4]);
    scores.fill(0.0);
    labels.fill(0);
    image_idx.fill(-1);
    let mut row = 0;
    for (n, image) in images.iter().enumerate() {
        counts[n] = image.len() as i32;
        for c in image {
            (boxes[row], scores[row]) = (c.b, c.score);
            (labels[row], image_idx[row]) = (c.class as i32, n as i32);
            row += 1;
        }
    }
    num_detections.i32()[0] = row as i32;
}
