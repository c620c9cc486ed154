//! CUDA launch of `clear_outside`.

use device::{Launch, LaunchArgs};

use super::ClearOutside;
use crate::ops::roi_align::pyramid::Pyramid;

pub(super) fn launches(op: &ClearOutside, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (x, idx, y) = (args.inputs[0], args.inputs[1], args.outputs[0]);
    let pyramid = Pyramid {
        maps: vec![],
        sizes: &op.level_sizes,
        scales: &[],
        images: idx.dim(0),
        channels: x.dim(3),
    };
    let wide = pyramid.vector() == 8;
    let kernel = if wide { "clear_outside_f16x8" } else { "clear_outside_f16" };
    vec![
        Launch::new(kernel, [idx.len(), 1, 1])
            .arg(x.read())
            .arg(idx.read())
            .arg(y.write())
            .arg(pyramid.arg())
            .int(op.anchors_per_cell)
            .int(x.dim(1)),
    ]
}
