//! CPU reference of `transform_boxes`.

use super::{TransformBoxes, TransformBoxesInputs};
use crate::boxes::{as_boxes, as_boxes_mut, gt_rows};
use crate::cpu::CpuArgs;
use crate::view::View;

pub(super) fn transform(op: &TransformBoxes, args: &mut CpuArgs<'_>) {
    let inputs = TransformBoxesInputs::of(&args.inputs);
    let (boxes, counts) = (as_boxes(inputs.boxes.f32()), inputs.counts.i32());
    let capacity = inputs.boxes.shape()[1];
    let output = as_boxes_mut(args.outputs[0].f32());
    output.fill([0.0; 4]);
    for n in 0..counts.len() {
        let view = View::of(inputs.views.i32(), n);
        let rows = &mut output[n * capacity..][..capacity];
        for (out, b) in rows.iter_mut().zip(gt_rows(boxes, counts, n)) {
            let x = view.x.place_ends(b[0], b[2], op.plus_one);
            let y = view.y.place_ends(b[1], b[3], op.plus_one);
            let [[y1, y2], [x1, x2]] = view.turned([y, x]);
            *out = [x1, y1, x2, y2];
        }
    }
}
