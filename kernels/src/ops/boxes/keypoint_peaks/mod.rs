//! The peak of each keypoint map of each detection: where the keypoint is, and how sure.
//!
//! Matches `heatmaps_to_keypoints` of torchvision and detectron2: a map is enlarged to its box,
//! whose sides are rounded up to whole pixels of at least 1, by bicubic interpolation (a = -0.75,
//! repeated borders), and its greatest pixel's centre taken; of equal ones the first, row by row.
//! Edges: in a box without extent the share is a half; a map of NaNs peaks at its first pixel.

mod cases;
mod cpu;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{Cost, OpError, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Finds the peaks.
    #[derive(Copy, Eq)]
    pub struct KeypointPeaks = "keypoint_peaks" {}
    in KeypointPeaksInputs {
        /// Logits: M * K maps of S * S.
        maps: real "[Rows, Pixels]",
        /// Boxes in network pixels.
        boxes: f32 "[M, 4]",
        /// Rows in use.
        count: i32 "[1]",
    }
    out {
        /// x and y as shares of the box, the logit at the peak, and the exponential of that over
        /// the sum of the map's; 0 in rows at or past the count.
        peaks: Box "[M, K, 4]",
    }
}

/// The longest side of a map: a block of the kernel holds a whole one.
pub const MAX_SIDE: usize = 64;

/// Keypoints of a box, and the side of their maps.
fn sizes([maps, boxes]: [&TensorDesc; 2]) -> [usize; 2] {
    [maps.dim(0) / boxes.dim(0).max(1), maps.dim(1).isqrt()]
}

impl Kernel for KeypointPeaks {
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let of = KeypointPeaksInputs::of(inputs);
        let ([per_box, side], rows) = (sizes([of.maps, of.boxes]), dims.get("M"));
        let is_whole = per_box * rows == dims.get("Rows") && side * side == dims.get("Pixels");
        if !is_whole || !(1..=MAX_SIDE).contains(&side) {
            let expected = format!("[{rows} * K, S * S] with S of 1 to {MAX_SIDE}");
            return Err(check::shape_error(dims.op(), "maps", of.maps, expected));
        }
        dims.bind("K", per_box);
        Ok(())
    }

    /// The work follows the boxes; boxes of 200 pixels are reckoned.
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let maps = outputs[0].len() as u64 / 4;
        Cost::streaming(inputs, outputs, maps * 8 * (200 * 200 + 200 * MAX_SIDE as u64))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let inputs = KeypointPeaksInputs::of(&args.inputs);
        let [per_box, side] = sizes([inputs.maps.desc, inputs.boxes.desc]);
        let launch = Launch::new("keypoint_peaks_f16", [inputs.maps.dim(0), 1, 1]);
        vec![launch.tensors(args).int(per_box).int(side)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::peaks(args);
    }
}
