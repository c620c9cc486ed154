//! RoIs of the next cascade stage: the previous stage's RoIs, moved by its deltas and clipped.
//!
//! Matches detectron2's `CascadeROIHeads._create_proposals_from_boxes`, except that zero-area RoIs,
//! which detectron2 removes in training, keep their rows; `match_rois` ignores them.

mod cases;

use device::{Arg, Launch, LaunchArgs};

use crate::boxes::{ImageSize, as_boxes, as_boxes_mut, at_most, clip, decode};
use crate::contract::{Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::op;

pub use cases::cases;

op! {
    /// Decodes each RoI's deltas.
    pub struct RefineRois = "refine_rois" {
        /// Weights of dx, dy, dw, dh in the box coding.
        pub weights: [f32; 4],
        /// Box corners are inclusive: width = x2 - x1 + 1.
        pub plus_one: bool,
    }
    in RefineRoisInputs {
        /// Boxes to which the deltas are applied.
        rois: f32 "[M, 4]",
        /// Deltas shared by all classes.
        deltas: real "[M, 4]",
        /// Image of the row.
        image_idx: i32 "[M]",
        /// Number of rows in use.
        count: i32 "[1]",
        /// Height and width of the network's input without padding.
        network_sizes: i32 "[N, 2]",
    }
    out {
        /// Decoded and clipped; 0 in rows at or past the count or without an image.
        refined: Box "[M, 4]",
    }
}

impl Kernel for RefineRois {
    const FLOPS: Flops = Flops::Output(10);

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let inputs = RefineRoisInputs::of(&args.inputs);
        let (rows, images) = (inputs.image_idx.len(), inputs.network_sizes.dim(0));
        let launch = Launch::over("refine_rois_f16", rows);
        let launch = launch.tensors(args).arg(Arg::of(&self.weights)).arg(self.plus_one);
        vec![launch.int(rows).int(images)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = RefineRoisInputs::of(&args.inputs);
        let (rois, deltas) = (as_boxes(inputs.rois.f32()), as_boxes(inputs.deltas.f32()));
        let (image_idx, sizes) = (inputs.image_idx.i32(), inputs.network_sizes.i32());
        let (count, images) =
            (at_most(inputs.count.i32()[0], rois.len()), inputs.network_sizes.shape()[0]);
        let refined = |row: usize| {
            let image =
                usize::try_from(image_idx[row]).ok().filter(|&n| row < count && n < images)?;
            let b = decode(&rois[row], &deltas[row], &self.weights, self.plus_one);
            Some(clip(&b, ImageSize::from_row(&sizes[2 * image..]), self.plus_one))
        };
        for (row, b) in as_boxes_mut(args.outputs[0].f32()).iter_mut().enumerate() {
            *b = refined(row).unwrap_or([0.0; 4]);
        }
    }
}
