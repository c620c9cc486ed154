//! Detections of each image from the box head's outputs.
//!
//! Matches torchvision's `RoIHeads.postprocess_detections`: softmax, a box for each class, clip to
//! the image, drop scores <= `score_threshold` and sides < `min_size`, NMS within each class, the
//! best `per_image`. Orders are total: (score descending, roi * K + class ascending).
//! maskrcnn-benchmark finds the same set (unless scores tie at the last place), in another order.
//!
//! Edges: a RoI with a logit that is NaN gives no detection.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{Cost, OpError, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Scores, decodes and suppresses. D is `per_image`; rows in use stand together in image order.
    pub struct Detections = "detections" {
        /// A detection's score is over this.
        pub score_threshold: f32,
        /// A detection falls if its IoU with a better one of its class is over this.
        pub nms_threshold: f32,
        /// Detections kept per image.
        pub per_image: usize,
        /// Factors of the four deltas.
        pub weights: [f32; 4],
        /// Least width and height in network pixels; torchvision: 1e-2.
        pub min_size: f32,
        /// Boxes are inclusive.
        pub plus_one: bool,
    }
    in DetectionsInputs {
        /// Class logits; column 0 is the background.
        class_logits: float "[M, K+1]",
        /// `4(K+1)` columns, or 4 of all classes.
        box_deltas: float "[M, Deltas]",
        /// Boxes that the deltas start from.
        rois: f32 "[M, 4]",
        /// Image of the RoI.
        image_idx: i32 "[M]",
        /// RoIs in use.
        num_rois: i32 "[1]",
        /// Height and width of the network's input without padding.
        network_sizes: i32 "[N, 2]",
    }
    out {
        /// Detections in network pixels, image after image, then zeros.
        boxes: Box "[N*D, 4]",
        /// Descending within an image.
        scores: Score "[N*D]",
        /// 1: the first foreground class.
        labels: Index "[N*D]",
        /// Image of the detection, or -1.
        image_of_row: Index "[N*D]",
        /// Detections of each image.
        counts: Index "[N]",
        /// Detections of all images.
        num_detections: Index "[1]",
    }
}

impl Kernel for Detections {
    fn sizes(&self, dims: &mut Dims) {
        dims.bind("D", self.per_image);
    }

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let (of, columns) = (DetectionsInputs::of(inputs), dims.get("K+1"));
        if columns == 0 {
            let expected = "[M, K+1] with a column for the background".to_string();
            return Err(check::shape_error(dims.op(), "class_logits", of.class_logits, expected));
        }
        match dims.get("Deltas") {
            4 => Ok(()),
            deltas if deltas == 4 * columns => Ok(()),
            _ => {
                let expected = format!("[M, {}], 4 for each class, or [M, 4]", 4 * columns);
                Err(check::shape_error(dims.op(), "box_deltas", of.box_deltas, expected))
            }
        }
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 5 * DetectionsInputs::of(inputs).class_logits.len() as u64)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        cuda::workspace_bytes(self, inputs)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::detections(self, args);
    }
}
