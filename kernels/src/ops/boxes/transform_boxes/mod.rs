//! Transforms ground-truth boxes from source to network pixels, by each image's
//! [`crate::view::View`].
//!
//! Scales as torchvision's `resize_boxes`: an f32 ratio new / old per axis. Boxes are flipped
//! before they are scaled (x' = W - x in source pixels), as in torchvision's transforms. With
//! `plus_one` they are flipped after they are scaled (x' = W - x - 1 in network pixels), as in
//! maskrcnn-benchmark: for inclusive boxes the order changes x by (ratio - 1) pixels.
//!
//! Edge cases: a window of 0 (an empty slot of the batch) gives ratio 0.

mod cases;

use device::{Launch, LaunchArgs};

use crate::boxes::{as_boxes, as_boxes_mut, gt_rows};
use crate::contract::{Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::op;
use crate::view::View;

pub use cases::cases;

op! {
    /// Crops, scales and flips boxes according to `views`.
    pub struct TransformBoxes = "transform_boxes" {
        /// Box corners are inclusive: width = x2 - x1 + 1.
        pub plus_one: bool,
    }
    in TransformBoxesInputs {
        /// Boxes in source pixels.
        boxes: f32 "[N, G, 4]",
        /// Number of boxes of each image.
        counts: i32 "[N]",
        /// The transform of each image.
        views: i32 "[N, 15]",
    }
    out {
        /// Boxes in network pixels, not clipped; zeros past the count.
        transformed: Box "[N, G, 4]",
    }
}

impl Kernel for TransformBoxes {
    const FLOPS: Flops = Flops::Output(2);

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let inputs = TransformBoxesInputs::of(&args.inputs);
        let (boxes, out) = (*inputs.boxes, args.outputs[0]);
        let launch = Launch::over("transform_boxes_f32", out.len() / 4);
        vec![launch.tensors(args).int(boxes.dim(0)).int(boxes.dim(1)).arg(self.plus_one)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = TransformBoxesInputs::of(&args.inputs);
        let (boxes, counts) = (as_boxes(inputs.boxes.f32()), inputs.counts.i32());
        let capacity = inputs.boxes.shape()[1];
        let output = as_boxes_mut(args.outputs[0].f32());
        output.fill([0.0; 4]);
        for n in 0..counts.len() {
            let view = View::of(inputs.views.i32(), n);
            let rows = &mut output[n * capacity..][..capacity];
            for (out, b) in rows.iter_mut().zip(gt_rows(boxes, counts, n)) {
                let x = view.x.place_ends(b[0], b[2], self.plus_one);
                let y = view.y.place_ends(b[1], b[3], self.plus_one);
                let [[y1, y2], [x1, x2]] = view.turned([y, x]);
                *out = [x1, y1, x2, y2];
            }
        }
    }
}
