//! Keypoint maps: the head's channels upsampled by 2, one row per RoI and keypoint.
//!
//! Matches `torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear",
//! align_corners=False)`, and torch's memory order, channels before pixels.

mod cases;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::contract::{Dims, Flops, Kernel};
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Sink, Source, TensorDesc, op};

pub use cases::cases;

op! {
    /// Upsamples the maps and writes each as a row.
    #[derive(Copy, Eq)]
    pub struct KeypointMaps = "keypoint_maps" {}
    in KeypointMapsInputs {
        /// A channel per keypoint.
        x: real "[M, H, W, K]",
        /// Number of rows in use.
        count: i32 "[1]",
    }
    out {
        /// Pixels row by row; 0 in rows of RoIs at or past the count.
        maps: Activation "[M*K, 4*H*W]",
    }
}

impl Kernel for KeypointMaps {
    const FLOPS: Flops = Flops::Output(7);

    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        let shape = [0, 1, 2, 3].map(|i| inputs[0].dim(i));
        BackwardRule::default().step(
            KeypointMapsGrad { shape },
            &[Source::GradOutput(0), Source::Input(1)],
            &[Sink::GradInput(0)],
        )
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (x, maps) = (args.inputs[0], args.outputs[0]);
        let launch = Launch::over("keypoint_maps_f16", maps.len()).tensors(args).len(maps.len());
        vec![(1..4).fold(launch, |launch, axis| launch.int(x.dim(axis)))]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let x = args.inputs[0];
        let [rois, height, width, per_roi] = [0, 1, 2, 3].map(|i| x.desc.dim(i));
        let count = rows_in_use(args.inputs[1].i32(), rois);
        let (x, maps) = (x.f32(), args.outputs[0].f32());
        if maps.is_empty() {
            return;
        }
        maps.par_chunks_mut(4 * height * width).enumerate().for_each(|(row, map)| {
            let (roi, k) = (row / per_roi, row % per_roi);
            if roi >= count {
                return map.fill(0.0);
            }
            let value =
                |y: usize, column: usize| x[((roi * height + y) * width + column) * per_roi + k];
            for (y, line) in map.chunks_exact_mut(2 * width).enumerate() {
                let ([top, bottom], down) = taps(y, height);
                for (column, out) in line.iter_mut().enumerate() {
                    let ([left, right], across) = taps(column, width);
                    let upper = (1.0 - across) * value(top, left) + across * value(top, right);
                    let lower =
                        (1.0 - across) * value(bottom, left) + across * value(bottom, right);
                    *out = (1.0 - down) * upper + down * lower;
                }
            }
        });
    }
}

op! {
    /// For each pixel of the smaller maps, sums the gradients of the up to 4x4 pixels that read it,
    /// in order. Memory-bound.
    #[derive(Copy, Eq)]
    pub struct KeypointMapsGrad = "keypoint_maps_grad" {
        /// Shape of the gradient, `[M, H, W, K]`.
        pub shape: [usize; 4],
    }
    in KeypointMapsGradInputs {
        /// Gradient of the maps.
        g: real "[M*K, 4*H*W]",
        /// Number of rows in use.
        count: i32 "[1]",
    }
    out {
        /// Gradient of the input; 0 past the count.
        dx: Gradient "[M, H, W, K]",
    }
}

impl Kernel for KeypointMapsGrad {
    const FLOPS: Flops = Flops::Output(24);

    fn sizes(&self, dims: &mut Dims) {
        ["M", "H", "W", "K"].iter().zip(self.shape).for_each(|(name, len)| dims.bind(name, len));
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let dx = args.outputs[0];
        let launch = Launch::over("keypoint_maps_grad_f16", dx.len()).tensors(args).len(dx.len());
        vec![(1..4).fold(launch, |launch, axis| launch.int(dx.dim(axis)))]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let [rois, height, width, per_roi] = [0, 1, 2, 3].map(|i| args.outputs[0].shape()[i]);
        let count = rows_in_use(args.inputs[1].i32(), rois);
        let (g, dx) = (args.inputs[0].f32(), args.outputs[0].f32());
        if dx.is_empty() {
            return;
        }
        dx.par_chunks_mut(height * width * per_roi).enumerate().for_each(|(roi, dx)| {
            if roi >= count {
                return dx.fill(0.0);
            }
            for (i, dx) in dx.iter_mut().enumerate() {
                let (k, column, y) = (i % per_roi, i / per_roi % width, i / per_roi / width);
                let map = &g[(roi * per_roi + k) * 4 * height * width..][..4 * height * width];
                let mut sum = 0.0;
                for (line, down) in readers(y, height) {
                    for (pixel, across) in readers(column, width) {
                        sum += down * across * map[line * 2 * width + pixel];
                    }
                }
                *dx = sum;
            }
        });
    }
}

/// The two input positions read by pixel `at` of an upsampled axis, and the weight of the second
/// position.
fn taps(at: usize, extent: usize) -> ([usize; 2], f32) {
    let source = (0.5 * (at as f32 + 0.5) - 0.5).max(0.0);
    let first = source as usize;
    ([first, (first + 1).min(extent - 1)], source - first as f32)
}

/// The pixels of an upsampled axis that read input position `at`, in order, with their weights.
fn readers(at: usize, extent: usize) -> impl Iterator<Item = (usize, f32)> {
    let pixels = (2 * at).saturating_sub(1)..(2 * at + 3).min(2 * extent);
    pixels.map(move |pixel| {
        let ([first, second], weight) = taps(pixel, extent);
        let of = |position, weight: f32| if position == at { weight } else { 0.0 };
        (pixel, of(first, 1.0 - weight) + of(second, weight))
    })
}
