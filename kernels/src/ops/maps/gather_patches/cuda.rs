//! CUDA launches of `gather_patches` and its gradient.

use device::{Arg, Buffer, Launch, LaunchArgs, StructArg};

use super::{GatherPatches, GatherPatchesInputs};
use crate::ops::roi_align::pyramid::Pyramid;

pub(super) fn forward(op: &GatherPatches, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let GatherPatchesInputs { features, idx } = GatherPatchesInputs::of(&args.inputs);
    let sizes: Vec<_> = features.iter().map(|f| [f.dim(1), f.dim(2)]).collect();
    let pyramid = Pyramid {
        maps: features.iter().map(|map| map.read()).collect(),
        sizes: &sizes,
        scales: &[],
        images: features[0].dim(0),
        channels: features[0].dim(3),
    };
    let wide = pyramid.vector() == 8;
    let kernel = if wide { "gather_patches_f16x8" } else { "gather_patches_f16" };
    vec![
        Launch::new(kernel, [idx.len(), 1, 1])
            .arg(pyramid.arg())
            .arg(idx.read())
            .arg(args.outputs[0].write())
            .int(idx.dim(1))
            .int(op.anchors_per_cell)
            .int(op.reach),
    ]
}

/// The kernels' `PatchGradients` of `g` and `idx`, or of none.
pub(crate) fn gradients_arg(inputs: Option<[Buffer<'_>; 2]>, anchors_per_cell: usize) -> Arg {
    let (pointers, per_image) = match inputs {
        Some([g, idx]) => (vec![g.read(), idx.read()], idx.dim(1)),
        None => (vec![], 0),
    };
    StructArg::new().pointers(pointers, 2).ints([per_image, anchors_per_cell]).arg()
}

pub(super) fn backward(
    [anchors_per_cell, reach]: [usize; 2],
    level_sizes: &[[usize; 2]],
    args: &LaunchArgs<'_>,
) -> Vec<Launch> {
    let (g, idx) = (args.inputs[0], args.inputs[1]);
    let pyramid = Pyramid {
        maps: args.outputs.iter().map(Buffer::write).collect(),
        sizes: level_sizes,
        scales: &[],
        images: idx.dim(0),
        channels: g.dim(3),
    };
    let wide = pyramid.vector() == 8;
    let kernel = match (reach, wide) {
        (1, true) => "gather_patches_grad_f16x8",
        (1, false) => "gather_patches_grad_f16",
        (_, true) => "gather_patches_grad_5x5_f16x8",
        (_, false) => "gather_patches_grad_5x5_f16",
    };
    vec![
        Launch::new(kernel, pyramid.tile_grid())
            .arg(gradients_arg(Some([g, idx]), anchors_per_cell))
            .arg(pyramid.arg()),
    ]
}
