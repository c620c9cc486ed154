//! CPU reference of `sample_anchors`: images in parallel.

use rayon::prelude::*;

use super::SampleAnchors;
use crate::boxes::sample;
use crate::cpu::CpuArgs;
use crate::philox::{Purpose, keyed};

pub(super) fn sample_anchors(op: &SampleAnchors, args: &mut CpuArgs<'_>) {
    let inputs = &args.inputs;
    let (labels, keys) = (inputs[0].i32(), inputs[1].i32());
    let (num_images, anchors) = (inputs[0].shape()[0], inputs[0].shape()[1]);
    let drawn: Vec<(Vec<usize>, Vec<usize>)> = (0..num_images)
        .into_par_iter()
        .map(|n| {
            let image_key = &keys[4 * n..][..4];
            let key = |i: usize| keyed(op.seed, image_key, Purpose::Anchors, i as u32);
            sample(&labels[n * anchors..][..anchors], op.batch, op.positive_fraction, key)
        })
        .collect();
    let [idx, counts] = &mut args.outputs[..] else { unreachable!("infer gives two outputs") };
    let (idx, counts) = (idx.i32(), counts.i32());
    idx.fill(-1);
    for (n, (positives, negatives)) in drawn.iter().enumerate() {
        let slots = &mut idx[n * op.batch..][..op.batch];
        for (slot, &i) in slots.iter_mut().zip(positives.iter().chain(negatives)) {
            *slot = i as i32;
        }
        counts[2 * n] = positives.len() as i32;
        counts[2 * n + 1] = (positives.len() + negatives.len()) as i32;
    }
}
