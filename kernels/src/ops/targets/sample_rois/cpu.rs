//! CPU reference of `sample_rois`: draws of the images in parallel, then one list.

use rayon::prelude::*;

use super::{SampleRois, SampleRoisInputs};
use crate::boxes::{Box4, as_boxes, as_boxes_mut, at_most, sample};
use crate::cpu::{CpuArgs, TensorMut, exactly};
use crate::philox::{Purpose, keyed};

/// A row of either list.
struct Row {
    roi: Box4,
    image: i32,
    label: i32,
    matched: i32,
}

pub(super) fn sample_rois(op: &SampleRois, args: &mut CpuArgs<'_>) {
    let inputs = SampleRoisInputs::of(&args.inputs);
    let (candidates, labels) = (as_boxes(inputs.candidates.f32()), inputs.labels.i32());
    let (matched, keys) = (inputs.matched_idx.i32(), inputs.keys.i32());
    let (counts, image_keys) = (inputs.counts.i32(), inputs.image_keys.i32());
    let capacity = inputs.labels.shape()[1];
    let drawn: Vec<Vec<usize>> = (0..counts.len())
        .into_par_iter()
        .map(|n| {
            let first = n * capacity;
            let image_key = &image_keys[4 * n..][..4];
            let key = |i| keyed(op.seed, image_key, Purpose::Rois, keys[first + i] as u32);
            let own = &labels[first..][..at_most(counts[n], capacity)];
            let (mut all, negatives) = sample(own, op.batch, op.positive_fraction, key);
            all.extend(negatives);
            all.sort_unstable();
            all
        })
        .collect();

    let mut rois = Vec::new();
    for (n, own) in drawn.iter().enumerate() {
        rois.extend(own.iter().map(|i| {
            let at = n * capacity + i;
            let (label, matched) = (labels[at], matched[at]);
            Row { roi: candidates[at], image: n as i32, label, matched }
        }));
    }
    let (all, positives) = args.outputs.split_at_mut(5);
    write(rois.iter(), all);
    write(rois.iter().filter(|row| row.label > 0), positives);
}

/// Writes the rows and their number, and pads.
fn write<'a>(rows: impl Iterator<Item = &'a Row>, outputs: &mut [TensorMut<'_>]) {
    let [rois, image_idx, labels, matched, count] = exactly(outputs);
    let rois = as_boxes_mut(rois.f32());
    let (image_idx, labels, matched) = (image_idx.i32(), labels.i32(), matched.i32());
    rois.fill([0.0; 4]);
    image_idx.fill(-1);
    labels.fill(-1);
    matched.fill(-1);
    let mut len = 0;
    for row in rows {
        rois[len] = row.roi;
        (image_idx[len], labels[len], matched[len]) = (row.image, row.label, row.matched);
        len += 1;
    }
    count.i32()[0] = len as i32;
}
