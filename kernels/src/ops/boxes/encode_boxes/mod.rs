//! Regression targets of sampled anchors or RoIs: deltas to the matched ground truth.
//!
//! Matches torchvision's `BoxCoder.encode` (and maskrcnn-benchmark's with `plus_one`).
//!
//! Edge cases: rows with an invalid ground-truth index are 0 in both outputs.

mod cases;

use device::{Arg, Launch, LaunchArgs};

use crate::boxes::{as_boxes, as_boxes_mut, encode};
use crate::contract::Kernel;
use crate::cpu::{CpuArgs, exactly};
use crate::{Cost, TensorDesc, op};

pub use cases::cases;

op! {
    /// Encodes the rows with a positive label.
    pub struct EncodeBoxes = "encode_boxes" {
        /// Weights of dx, dy, dw, dh in the box coding.
        pub weights: [f32; 4],
        /// Box corners are inclusive: width = x2 - x1 + 1.
        pub plus_one: bool,
    }
    in EncodeBoxesInputs {
        /// Anchors or RoIs.
        boxes: f32 "[M, 4]",
        /// Image of the row.
        image_idx: i32 "[M]",
        /// Index of the matched ground truth within the row's image.
        matched: i32 "[M]",
        /// Ground truth.
        gt_boxes: f32 "[N, G, 4]",
        /// Above 0: positive.
        labels: i32 "[M]",
    }
    out {
        /// Deltas times `weights`; 0 in rows that are not positive.
        targets: Box "[M, 4]",
        /// The matched ground-truth box, or zeros.
        matched_boxes: Box "[M, 4]",
    }
}

impl Kernel for EncodeBoxes {
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 30 * EncodeBoxesInputs::of(inputs).image_idx.len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let inputs = EncodeBoxesInputs::of(&args.inputs);
        let (rows, gt_boxes) = (inputs.image_idx.len(), *inputs.gt_boxes);
        let launch = Launch::over("encode_boxes", rows).tensors(args);
        vec![
            launch
                .arg(Arg::of(&self.weights))
                .arg(self.plus_one)
                .int(rows)
                .int(gt_boxes.dim(0))
                .int(gt_boxes.dim(1)),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = EncodeBoxesInputs::of(&args.inputs);
        let (boxes, gt_boxes) = (as_boxes(inputs.boxes.f32()), as_boxes(inputs.gt_boxes.f32()));
        let (image_idx, matched, labels) =
            (inputs.image_idx.i32(), inputs.matched.i32(), inputs.labels.i32());
        let (images, capacity) = (inputs.gt_boxes.shape()[0], inputs.gt_boxes.shape()[1]);
        let gt_of = |row: usize| {
            let image = usize::try_from(image_idx[row]).ok().filter(|&n| n < images)?;
            let gt = usize::try_from(matched[row]).ok().filter(|&g| g < capacity)?;
            (labels[row] > 0).then(|| gt_boxes[image * capacity + gt])
        };
        let [targets, matched_boxes] = exactly(&mut args.outputs);
        let (targets, matched_boxes) =
            (as_boxes_mut(targets.f32()), as_boxes_mut(matched_boxes.f32()));
        for (row, b) in boxes.iter().enumerate() {
            (targets[row], matched_boxes[row]) = match gt_of(row) {
                Some(gt) => (encode(b, &gt, &self.weights, self.plus_one), gt),
                None => ([0.0; 4], [0.0; 4]),
            };
        }
    }
}
