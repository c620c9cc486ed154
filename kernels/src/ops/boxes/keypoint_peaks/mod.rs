//! The peak of each keypoint map of each detection: the keypoint's position and confidence.
//!
//! Matches `heatmaps_to_keypoints` of torchvision and detectron2: a map is upsampled to its box,
//! whose sides are rounded up to integers of at least 1, by bicubic interpolation (a = -0.75,
//! repeated borders), and the peak is the centre of the maximal pixel; of equal pixels the first in
//! row-major order. Edge cases: along a side of length 0 the relative position is 0.5; an all-NaN
//! map peaks at pixel 0.

mod cases;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::boxes::{Box4, as_boxes};
use crate::contract::{Dims, Kernel};
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::{Cost, OpError, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Finds the peaks.
    #[derive(Copy, Eq)]
    pub struct KeypointPeaks = "keypoint_peaks" {}
    in KeypointPeaksInputs {
        /// Logits: M * K maps of S x S.
        maps: real "[Rows, Pixels]",
        /// Boxes in network pixels.
        boxes: f32 "[M, 4]",
        /// Number of rows in use.
        count: i32 "[1]",
    }
    out {
        /// x and y relative to the box, the logit at the peak, and its softmax over the map; 0 in
        /// rows at or past the count.
        peaks: Box "[M, K, 4]",
    }
}

/// Maximum side of a map: a block of the kernel holds an entire map.
pub const MAX_SIDE: usize = 64;

/// Number of keypoints per box, and side of their maps.
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

    /// The cost depends on the box sizes; 200 x 200 pixels are assumed.
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
        let inputs = KeypointPeaksInputs::of(&args.inputs);
        let [per_box, side] = sizes([inputs.maps.desc, inputs.boxes.desc]);
        let (maps, boxes) = (inputs.maps.f32(), as_boxes(inputs.boxes.f32()));
        let count = rows_in_use(inputs.count.i32(), boxes.len());
        let (peaks, _) = args.outputs[0].f32().as_chunks_mut::<4>();
        peaks.par_iter_mut().enumerate().for_each(|(i, out)| {
            let b = &boxes[i / per_box];
            if i / per_box >= count {
                return *out = [0.0; 4];
            }
            let map = &maps[i * side * side..][..side * side];
            let ([column, row], logit) = peak(map, side, b);
            let sum: f64 = map.iter().map(|v| f64::from(*v - logit).exp()).sum();
            *out = [share(column, b[0], b[2]), share(row, b[1], b[3]), logit, (1.0 / sum) as f32];
        });
    }
}

/// The bicubic coefficient, as in torch and OpenCV.
const A: f32 = -0.75;

/// The input positions read by one pixel of an upsampled axis, and their weights.
struct Taps {
    at: [usize; 4],
    weights: [f32; 4],
}

impl Taps {
    /// The taps of pixel `at`; `scale` is `side` divided by the number of upsampled pixels.
    fn new(at: usize, side: usize, scale: f32) -> Self {
        let source = scale * (at as f32 + 0.5) - 0.5;
        let first = source.floor();
        let t = source - first;
        let near = |x: f32| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
        let far = |x: f32| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
        let last = side as i32 - 1;
        Self {
            at: [-1, 0, 1, 2].map(|i| (first as i32 + i).clamp(0, last) as usize),
            weights: [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)],
        }
    }

    fn sum(&self, value: impl Fn(usize) -> f32) -> f32 {
        let [a, b, c, d] = self.at.map(value);
        let [wa, wb, wc, wd] = self.weights;
        a * wa + b * wb + c * wc + d * wd
    }
}

/// Length of a box side, at least 1, and the length rounded up to an integer.
fn lengths(low: f32, high: f32) -> (f32, usize) {
    let length = (high - low).max(1.0);
    (length, length.ceil() as usize)
}

/// The centre of pixel `at` as a fraction of the box side from `low` to `high`.
fn share(at: usize, low: f32, high: f32) -> f32 {
    let (length, pixels) = lengths(low, high);
    let extent = high - low;
    if extent > 0.0 { (at as f32 + 0.5) * (length / pixels as f32) / extent } else { 0.5 }
}

/// Column, row and value of the maximum of a map upsampled to a box.
fn peak(map: &[f32], side: usize, b: &Box4) -> ([usize; 2], f32) {
    let (width, height) = (lengths(b[0], b[2]).1, lengths(b[1], b[3]).1);
    let (across, down) = (side as f32 / width as f32, side as f32 / height as f32);
    let mut wide = vec![0.0; side * width];
    for column in 0..width {
        let taps = Taps::new(column, side, across);
        for row in 0..side {
            wide[row * width + column] = taps.sum(|i| map[row * side + i]);
        }
    }
    let mut best = ([0, 0], f32::NEG_INFINITY);
    for row in 0..height {
        let Taps { at, weights: [wa, wb, wc, wd] } = Taps::new(row, side, down);
        let [a, b, c, d] = at.map(|i| &wide[i * width..(i + 1) * width]);
        for column in 0..width {
            let value = a[column] * wa + b[column] * wb + c[column] * wc + d[column] * wd;
            if value > best.1 {
                best = ([column, row], value);
            }
        }
    }
    best
}
