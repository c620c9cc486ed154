//! CPU reference of `decode_proposals`: images in parallel.

use rayon::prelude::*;

use super::{DecodeProposals, DecodeProposalsInputs};
use crate::boxes::{Box4, ImageSize, as_boxes, as_boxes_mut, clip, decode, is_small, sigmoid};
use crate::cpu::CpuArgs;

/// Logits and deltas of a level, and which anchors are its own.
struct Level<'a> {
    logits: &'a [f32],
    deltas: &'a [Box4],
    first: usize,
    len: usize,
}

pub(super) fn decode_proposals(op: &DecodeProposals, args: &mut CpuArgs<'_>) {
    let DecodeProposalsInputs { idx, anchors, network_sizes, logits, deltas } =
        DecodeProposalsInputs::of(&args.inputs);
    let rows = idx.shape()[1];
    let (idx, anchors, sizes) = (idx.i32(), as_boxes(anchors.f32()), network_sizes.i32());
    let mut levels = Vec::new();
    let mut first = 0;
    for (logits, deltas) in logits.iter().zip(deltas) {
        let len = logits.shape()[1..].iter().product();
        levels.push(Level { logits: logits.f32(), deltas: as_boxes(deltas.f32()), first, len });
        first += len;
    }
    let [boxes, scores] = &mut args.outputs[..] else { unreachable!("infer gives two outputs") };
    let rows = rows.max(1);
    as_boxes_mut(boxes.f32())
        .par_chunks_mut(rows)
        .zip(scores.f32().par_chunks_mut(rows))
        .zip(idx.par_chunks(rows))
        .enumerate()
        .for_each(|(n, ((boxes, scores), idx))| {
            let size = ImageSize::from_row(&sizes[2 * n..]);
            for ((b, score), &i) in boxes.iter_mut().zip(scores).zip(idx) {
                (*b, *score) = proposal(op, anchors, &levels, n, i, size);
            }
        });
}

fn proposal(
    op: &DecodeProposals,
    anchors: &[Box4],
    levels: &[Level<'_>],
    n: usize,
    idx: i32,
    size: ImageSize,
) -> (Box4, f32) {
    let found = usize::try_from(idx).ok().and_then(|i| {
        let level = levels.iter().find(|l| i < l.first + l.len)?;
        Some((anchors[i], level, n * level.len + i - level.first))
    });
    let Some((anchor, level, at)) = found else { return ([0.0; 4], -1.0) };
    let b = decode(&anchor, &level.deltas[at], &op.weights, op.plus_one);
    let b = clip(&b, size, op.plus_one);
    let score = sigmoid(level.logits[at]);
    let counts = !is_small(&b, op.min_size, op.plus_one) && score >= op.score_threshold;
    (b, if counts { score } else { -1.0 })
}
