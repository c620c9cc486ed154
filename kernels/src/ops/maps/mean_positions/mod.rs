//! The mean of each channel over the positions of a map.
//!
//! Matches torch's `x.mean(dim=[2, 3])` on `[M, C, H, W]`, the input of a C4 head's predictors.

mod cases;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::contract::{Dims, Flops, Kernel};
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::{BackwardRule, OpError, Sink, Source, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Averages each channel of each map over the positions; a map must have at least one position.
    /// Sums are in f32, in the order of the positions. Memory-bound.
    #[derive(Copy, Eq)]
    pub struct MeanPositions = "mean_positions" {}
    in MeanPositionsInputs {
        /// Maps.
        x: real "[M, H, W, C]",
        /// Number of rows in use.
        count: i32 "[1]",
    }
    out {
        /// Means; 0 in rows at or past the count.
        y: Activation "[M, C]",
    }
}

impl Kernel for MeanPositions {
    const FLOPS: Flops = Flops::Input(1);

    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let positions = dims.get("H*W");
        check::parameter(dims.op(), "H * W", positions > 0, "at least 1", positions)
    }

    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        let [height, width] = [1, 2].map(|i| inputs[0].dim(i));
        BackwardRule::default().step(
            MeanPositionsGrad { height, width },
            &[Source::GradOutput(0), Source::Input(1)],
            &[Sink::GradInput(0)],
        )
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (x, y) = (args.inputs[0], args.outputs[0]);
        vec![
            Launch::over("mean_positions_f16", y.len())
                .tensors(args)
                .len(y.len())
                .int(x.dim(1) * x.dim(2))
                .int(x.dim(3)),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let [rows, height, width, channels] = [0, 1, 2, 3].map(|i| args.inputs[0].desc.dim(i));
        let count = rows_in_use(args.inputs[1].i32(), rows);
        let (x, y, positions) = (args.inputs[0].f32(), args.outputs[0].f32(), height * width);
        if y.is_empty() {
            return;
        }
        y.par_chunks_mut(channels).enumerate().for_each(|(row, y)| {
            y.fill(0.0);
            if row < count {
                let map = &x[row * positions * channels..][..positions * channels];
                for position in map.chunks_exact(channels) {
                    y.iter_mut().zip(position).for_each(|(y, x)| *y += x);
                }
                y.iter_mut().for_each(|y| *y /= positions as f32);
            }
        });
    }
}

op! {
    /// Broadcasts gradients of means over maps.
    #[derive(Copy, Eq)]
    pub struct MeanPositionsGrad = "mean_positions_grad" {
        /// Rows of the maps.
        pub height: usize,
        /// Columns of the maps.
        pub width: usize,
    }
    in MeanPositionsGradInputs {
        /// Gradient of the means.
        g: real "[M, C]",
        /// Number of rows in use.
        count: i32 "[1]",
    }
    out {
        /// Gradient of the maps; 0 past the count.
        dx: Gradient "[M, H, W, C]",
    }
}

impl Kernel for MeanPositionsGrad {
    const FLOPS: Flops = Flops::Input(1);

    fn sizes(&self, dims: &mut Dims) {
        dims.bind("H", self.height);
        dims.bind("W", self.width);
    }

    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let positions = dims.get("H*W");
        check::parameter(dims.op(), "height * width", positions > 0, "at least 1", positions)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let dx = args.outputs[0];
        vec![
            Launch::over("mean_positions_grad_f16", dx.len())
                .tensors(args)
                .len(dx.len())
                .int(dx.dim(1) * dx.dim(2))
                .int(dx.dim(3)),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let [rows, channels] = [0, 1].map(|i| args.inputs[0].desc.dim(i));
        let count = rows_in_use(args.inputs[1].i32(), rows);
        let (g, dx) = (args.inputs[0].f32(), args.outputs[0].f32());
        let positions = self.height * self.width;
        if dx.is_empty() {
            return;
        }
        dx.par_chunks_mut(positions * channels).enumerate().for_each(|(row, dx)| {
            if row >= count {
                return dx.fill(0.0);
            }
            let g = &g[row * channels..][..channels];
            for dx in dx.chunks_exact_mut(channels) {
                dx.iter_mut().zip(g).for_each(|(dx, g)| *dx = g / positions as f32);
            }
        });
    }
}
