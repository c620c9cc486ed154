//! Gradient of `mean_positions`: each position gets its share.

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::contract::{Dims, Flops, Kernel};
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::{OpError, TensorDesc, check, op};

op! {
    /// Spreads gradients of means over maps.
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
        /// Rows in use.
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
