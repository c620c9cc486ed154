//! Ground-truth boxes from source pixels to network pixels, by each image's [`crate::view::View`].
//!
//! Scales as torchvision's `resize_boxes`: an f32 ratio new / old an axis. The mirror comes first
//! (x' = W - x in source pixels), where torchvision's transforms have it. With `plus_one` it comes
//! last (x' = W - x - 1 in network pixels), as in maskrcnn-benchmark: there the order matters by
//! (ratio - 1) pixels in x.
//!
//! Tensors: `boxes` (`[N, G, 4]`, f32), `counts` (`[N]`), `views` (`[N, 15]`) -> `boxes`
//! (`[N, G, 4]`, overwritten; rows from `counts[n]` on are 0). Boxes are not clipped.
//! Edges: a window of 0 (an empty slot of the batch) is taken as ratio 0.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, TensorDesc};

pub use cases::cases;

/// Crops, scales and mirrors as `views` says.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformBoxes {
    /// Boxes are inclusive.
    pub plus_one: bool,
}

op_inputs! {
    /// The inputs of [`TransformBoxes`].
    pub struct TransformBoxesInputs {
        /// `[N, G, 4]` f32, in source pixels.
        boxes,
        /// `[N]` i32.
        counts,
        /// `[N, 15]` i32.
        views,
    }
}

const NAME: &str = "transform_boxes";

impl Op for TransformBoxes {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, TransformBoxesInputs::LEN, updates)?;
        let inputs = TransformBoxesInputs::of(inputs);
        dims.f32("boxes", inputs.boxes, "[N, G, 4]")?;
        dims.i32("counts", inputs.counts, "[N]")?;
        dims.i32("views", inputs.views, "[N, 15]")?;
        Ok(vec![inputs.boxes.clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 2 * outputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::transform(self, args);
    }
}
