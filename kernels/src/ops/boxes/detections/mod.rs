//! Detections of each image from the box head's outputs.
//!
//! Matches torchvision's `RoIHeads.postprocess_detections`: softmax, a box for each class, clip to
//! the image, drop scores <= `score_threshold` and sides < `min_size`, NMS within each class, the
//! best `per_image`. Orders are total: (score descending, roi * K + class ascending).
//! maskrcnn-benchmark finds the same set (unless scores tie at the last place), in another order.
//!
//! Tensors: `class_logits` (`[M, K+1]`, class 0 = background), `box_deltas` (`[M, 4(K+1)]`, or
//! `[M, 4]` of all classes), `rois` (`[M, 4]`), `image_idx` (`[M]`), `num_rois` (`[1]`),
//! `network_sizes` (`[N, 2]`) ->
//! `boxes` (`[N*D, 4]`, network pixels), `scores` (`[N*D]`), `labels` (`[N*D]`), `image_idx`
//! (`[N*D]`), `counts` (`[N]`), `num_detections` (`[1]`); all overwritten. D = `per_image`. The
//! rows in use stand together in image order; the others hold 0, image -1.
//! Edges: a RoI with a logit that is NaN gives no detection.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Scores, decodes and suppresses.
#[derive(Debug, Clone, PartialEq)]
pub struct Detections {
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

op_inputs! {
    /// The inputs of [`Detections`].
    pub struct DetectionsInputs {
        /// `[M, K+1]`.
        class_logits,
        /// `[M, 4(K+1)]`, or `[M, 4]` of all classes.
        box_deltas,
        /// `[M, 4]` f32.
        rois,
        /// `[M]` i32.
        image_idx,
        /// `[1]` i32.
        num_rois,
        /// `[N, 2]` i32.
        network_sizes,
    }
}

const NAME: &str = "detections";

impl Op for Detections {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, DetectionsInputs::LEN, updates)?;
        let inputs = DetectionsInputs::of(inputs);
        dims.f32("class_logits", inputs.class_logits, "[M, Classes]")?;
        let classes = dims.get("Classes");
        if classes == 0 {
            let expected = "[M, K+1] with a column for the background".to_string();
            return Err(check::shape_error(NAME, "class_logits", inputs.class_logits, expected));
        }
        dims.bind("4(K+1)", 4 * classes);
        let is_shared = inputs.box_deltas.shape.get(1) == Some(&4);
        let shape = if is_shared { "[M, 4]" } else { "[M, 4(K+1)]" };
        dims.f32("box_deltas", inputs.box_deltas, shape)?;
        dims.f32("rois", inputs.rois, "[M, 4]")?;
        dims.i32("image_idx", inputs.image_idx, "[M]")?;
        dims.i32("num_rois", inputs.num_rois, "[1]")?;
        dims.i32("network_sizes", inputs.network_sizes, "[N, 2]")?;
        let n = dims.get("N");
        let rows = n * self.per_image;
        let index = |len: usize| TensorDesc::new(Role::Index, &[len]);
        Ok(vec![
            TensorDesc::new(Role::Box, &[rows, 4]),
            TensorDesc::new(Role::Score, &[rows]),
            index(rows),
            index(rows),
            index(n),
            index(1),
        ])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 5 * DetectionsInputs::of(inputs).class_logits.len() as u64)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(self, inputs)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::detections(self, args);
    }
}
