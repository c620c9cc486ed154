//! Gradient of `mean_positions`: each position gets its share.

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use super::cuda;
use crate::check::{self, Dims};
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

/// Spreads gradients of means over maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeanPositionsGrad {
    /// Rows of the maps.
    pub height: usize,
    /// Columns of the maps.
    pub width: usize,
}

const NAME: &str = "mean_positions_grad";

impl Op for MeanPositionsGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, 2, updates)?;
        dims.f32("g", &inputs[0], "[M, C]")?;
        dims.i32("count", &inputs[1], "[1]")?;
        let positions = self.height * self.width;
        check::parameter(NAME, "height * width", positions > 0, "at least 1", positions)?;
        let shape = [dims.get("M"), self.height, self.width, dims.get("C")];
        Ok(vec![TensorDesc::new(Role::Gradient, &shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, inputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_launches(args)
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
