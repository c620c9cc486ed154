//! CPU reference of `nms_proposals`: images x levels in parallel.

use rayon::prelude::*;

use super::{NmsProposals, NmsProposalsInputs, ProposalScope};
use crate::boxes::{Box4, as_boxes, as_boxes_mut, nms_sorted, rank_index, rank_key};
use crate::cpu::{CpuArgs, exactly};

pub(super) fn nms_proposals(op: &NmsProposals, args: &mut CpuArgs<'_>) {
    let inputs = NmsProposalsInputs::of(&args.inputs);
    let (num_images, rows) = (inputs.boxes.shape()[0], inputs.boxes.shape()[1]);
    let (boxes, scores) = (as_boxes(inputs.boxes.f32()), inputs.scores.f32());
    let (levels, idx) = (inputs.levels.i32(), inputs.idx.i32());
    let groups = rows_by_level(levels);

    let tasks: Vec<(usize, &Vec<usize>)> =
        (0..num_images).flat_map(|n| groups.iter().map(move |g| (n, g))).collect();
    // Survivors of each image and level, as keys of their rank.
    let survivors: Vec<Vec<u64>> = tasks
        .into_par_iter()
        .map(|(n, group)| {
            let at = n * rows;
            survive(op, &boxes[at..at + rows], &scores[at..at + rows], group)
        })
        .collect();

    let mut lists: Vec<Vec<u64>> =
        (0..num_images).map(|n| survivors[n * groups.len()..][..groups.len()].concat()).collect();
    match op.scope {
        ProposalScope::Level => {}
        ProposalScope::Image => lists.iter_mut().for_each(|kept| {
            kept.sort_unstable();
            kept.truncate(op.post_top_n);
        }),
        ProposalScope::Batch { images } => {
            lists.chunks_mut(images).for_each(|group| cut(group, op.post_top_n));
        }
    }

    let [out_boxes, out_scores, out_idx, counts] = exactly(&mut args.outputs);
    let capacity = out_scores.shape()[1];
    let (out_boxes, out_scores) = (as_boxes_mut(out_boxes.f32()), out_scores.f32());
    let (out_idx, counts) = (out_idx.i32(), counts.i32());
    out_boxes.fill([0.0; 4]);
    out_scores.fill(0.0);
    out_idx.fill(-1);
    for (n, kept) in lists.iter().enumerate() {
        counts[n] = kept.len() as i32;
        for (slot, &key) in kept.iter().enumerate() {
            let (from, to) = (n * rows + rank_index(key), n * capacity + slot);
            out_boxes[to] = boxes[from];
            out_scores[to] = scores[from];
            out_idx[to] = idx[from];
        }
    }
}

/// Keeps the `count` best survivors of a group of images, each image's in their order.
fn cut(group: &mut [Vec<u64>], count: usize) {
    let rank = |key: u64| key >> 32;
    let mut all: Vec<(u64, usize, usize)> = group
        .iter()
        .enumerate()
        .flat_map(|(i, kept)| kept.iter().map(move |&key| (rank(key), i, rank_index(key))))
        .collect();
    let Some(first_out) = (count < all.len()).then(|| *all.select_nth_unstable(count).1) else {
        return;
    };
    for (i, kept) in group.iter_mut().enumerate() {
        kept.retain(|&key| (rank(key), i, rank_index(key)) < first_out);
    }
}

/// The rows of each level, levels ascending.
fn rows_by_level(levels: &[i32]) -> Vec<Vec<usize>> {
    let mut rows: Vec<usize> = (0..levels.len()).collect();
    rows.sort_by_key(|&row| levels[row]);
    rows.chunk_by(|&a, &b| levels[a] == levels[b]).map(<[usize]>::to_vec).collect()
}

/// NMS of the rows `group` of an image.
fn survive(op: &NmsProposals, boxes: &[Box4], scores: &[f32], group: &[usize]) -> Vec<u64> {
    let counted = group.iter().filter(|&&row| scores[row] >= 0.0);
    let mut keys: Vec<u64> = counted.map(|&row| rank_key(scores[row], row as u32)).collect();
    keys.sort_unstable();
    let sorted: Vec<Box4> = keys.iter().map(|&key| boxes[rank_index(key)]).collect();
    let kept = nms_sorted(&sorted, op.threshold, op.plus_one, op.most_of_level());
    kept.into_iter().map(|i| keys[i]).collect()
}
