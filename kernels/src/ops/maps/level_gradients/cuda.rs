//! CUDA launches of `level_gradients`: the lists of each head, then all tiles of all maps.

use device::{Buffer, Launch, LaunchArgs};

use super::{FEW_HEADS, LevelGradients, MAX_HEADS, ROI_INPUTS};
use crate::ops::gather_patches::gradients_arg;
use crate::ops::roi_align::pyramid::Pyramid;
use crate::ops::roi_align::{no_gradients, tile_shared_bytes};

/// Scratch of each head, for `rows(head)` RoIs.
pub(super) fn list_bytes(op: &LevelGradients, rows: impl Fn(usize) -> usize) -> Vec<usize> {
    op.rois.iter().enumerate().map(|(i, head)| head.list_bytes(rows(i))).collect()
}

pub(super) fn launches(op: &LevelGradients, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (of_rois, of_patches) = args.inputs.split_at(ROI_INPUTS * op.rois.len());
    let bytes = list_bytes(op, |head| of_rois[head * ROI_INPUTS + 1].dim(0));
    let mut offset = 0;
    let (mut launches, mut gradients) = (vec![], vec![]);
    for ((head, inputs), bytes) in op.rois.iter().zip(of_rois.chunks(ROI_INPUTS)).zip(bytes) {
        let (list, of_head) = head.lists(&args.workspace, offset, inputs);
        launches.push(list);
        gradients.push(of_head);
        offset += bytes;
    }
    let few = !op.has_many_heads();
    gradients.resize(if few { FEW_HEADS } else { MAX_HEADS }, no_gradients());
    let patches = match (&op.patches, of_patches) {
        (Some(patches), &[g, idx]) => gradients_arg(Some([g, idx]), patches.anchors_per_cell),
        _ => gradients_arg(None, 1),
    };
    let first = &op.rois[0];
    let pyramid = Pyramid {
        maps: args.outputs.iter().map(Buffer::write).collect(),
        sizes: op.level_sizes(),
        ..first.pyramid(vec![], of_rois[0].dim(3))
    };
    let wide = pyramid.vector() == 8;
    let kernel = match (op.patches.as_ref().map_or(1, |patches| patches.reach), wide, few) {
        (1, true, true) => "level_gradients_f16x8",
        (1, false, true) => "level_gradients_f16",
        (_, true, true) => "level_gradients_5x5_f16x8",
        (_, false, true) => "level_gradients_5x5_f16",
        (_, true, false) => "level_gradients_of_four_f16x8",
        (_, false, false) => "level_gradients_of_four_f16",
    };
    let pooled = op.rois.iter().map(|head| head.forward.pooled).max().unwrap_or(0);
    let tiles = Launch::new(kernel, pyramid.tile_grid()).shared(tile_shared_bytes(pooled));
    let tiles = gradients.into_iter().fold(tiles, Launch::arg);
    launches.push(tiles.arg(patches).arg(pyramid.arg()));
    launches
}
