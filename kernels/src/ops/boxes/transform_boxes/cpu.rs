//! CPU reference of `transform_boxes`.

use super::{TransformBoxes, TransformBoxesInputs};
use crate::boxes::{ImageSize, as_boxes, as_boxes_mut, flip, gt_rows, scale};
use crate::cpu::CpuArgs;

pub(super) fn transform(op: &TransformBoxes, args: &mut CpuArgs<'_>) {
    let inputs = TransformBoxesInputs::of(&args.inputs);
    let (boxes, counts) = (as_boxes(inputs.boxes.f32()), inputs.counts.i32());
    let (sources, networks) = (inputs.source_sizes.i32(), inputs.network_sizes.i32());
    let capacity = inputs.boxes.shape()[1];
    let output = as_boxes_mut(args.outputs[0].f32());
    output.fill([0.0; 4]);
    for n in 0..counts.len() {
        let source = ImageSize::from_row(&sources[2 * n..]);
        let network = ImageSize::from_row(&networks[2 * n..]);
        let x_ratio = ratio(network.width, source.width);
        let y_ratio = ratio(network.height, source.height);
        let mirror = inputs.flips.i32()[n] != 0;
        let rows = &mut output[n * capacity..][..capacity];
        for (out, b) in rows.iter_mut().zip(gt_rows(boxes, counts, n)) {
            *out = match (mirror, op.plus_one) {
                (false, _) => scale(b, x_ratio, y_ratio),
                (true, false) => scale(&flip(b, source.width as f32, false), x_ratio, y_ratio),
                (true, true) => flip(&scale(b, x_ratio, y_ratio), network.width as f32, true),
            };
        }
    }
}

fn ratio(new: i32, old: i32) -> f32 {
    if old == 0 { 0.0 } else { new as f32 / old as f32 }
}
