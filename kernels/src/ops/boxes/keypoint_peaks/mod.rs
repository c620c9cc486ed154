//! The peak of each keypoint map of each detection: where the keypoint is, and how sure.
//!
//! Matches `heatmaps_to_keypoints` of torchvision and detectron2: a map is enlarged to its box,
//! whose sides are rounded up to whole pixels of at least 1, by bicubic interpolation (a = -0.75,
//! repeated borders), and its greatest pixel's centre taken; of equal ones the first, row by row.
//! Tensors: `maps` (`[M*K, S*S]`, logits), `boxes` (`[M, 4]`, network pixels), `count` (`[1]`,
//! rows in use; all in) -> `peaks` (`[M, K, 4]`, overwritten): x and y as shares of the box, the
//! logit at the peak, and the exponential of that over the sum of the map's; 0 in rows at or past
//! the count.
//! Edges: in a box without extent the share is a half; a map of NaNs peaks at its first pixel.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check::{self, Dims};
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Finds the peaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeypointPeaks;

op_inputs! {
    /// The inputs of [`KeypointPeaks`].
    pub struct KeypointPeaksInputs {
        /// `[M*K, S*S]`.
        maps,
        /// `[M, 4]` f32.
        boxes,
        /// `[1]` i32.
        count,
    }
}

const NAME: &str = "keypoint_peaks";
/// The longest side of a map: a block of the kernel holds a whole one.
pub const MAX_SIDE: usize = 64;

/// Keypoints of a box, and the side of their maps.
fn sizes([maps, boxes]: [&TensorDesc; 2]) -> [usize; 2] {
    [maps.dim(0) / boxes.dim(0).max(1), maps.dim(1).isqrt()]
}

impl Op for KeypointPeaks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, KeypointPeaksInputs::LEN, updates)?;
        let inputs = KeypointPeaksInputs::of(inputs);
        dims.f32("maps", inputs.maps, "[Rows, Pixels]")?;
        dims.f32("boxes", inputs.boxes, "[M, 4]")?;
        dims.i32("count", inputs.count, "[1]")?;
        let [per_box, side] = sizes([inputs.maps, inputs.boxes]);
        let rows = dims.get("M");
        let is_whole = per_box * rows == dims.get("Rows") && side * side == dims.get("Pixels");
        if !is_whole || !(1..=MAX_SIDE).contains(&side) {
            let expected = format!("[{rows} * K, S * S] with S of 1 to {MAX_SIDE}");
            return Err(check::shape_error(NAME, "maps", inputs.maps, expected));
        }
        Ok(vec![TensorDesc::new(Role::Box, &[rows, per_box, 4])])
    }

    /// The work follows the boxes; boxes of 200 pixels are reckoned.
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let maps = outputs[0].len() as u64 / 4;
        Cost::streaming(inputs, outputs, maps * 8 * (200 * 200 + 200 * MAX_SIDE as u64))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::peaks(args);
    }
}
