//! The mean of each channel over the positions of a map.
//!
//! Matches `x.mean(dim=[2, 3])` of torch, `[M, C, H, W]`: what a C4 head classifies.
//! Tensors: `x [M, H, W, C]` with H * W > 0, `count [1]` i32 (rows in use; in) -> `y [M, C]`
//! (overwritten; 0 in rows at or past the count). Gradient (`mean_positions_grad`): `g [M, C]`,
//! `count` -> `dx [M, H, W, C]`, a share of g at each position. Sums in f32, in the order of the
//! positions. Bound by memory.

mod cases;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::check::{self, Dims};
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Cost, Op, OpError, Role, Sink, Source, TensorDesc};

pub use cases::cases;
pub use grad::MeanPositionsGrad;

/// Averages each channel of each map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeanPositions;

const NAME: &str = "mean_positions";

impl Op for MeanPositions {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, 2, updates)?;
        dims.f32("x", &inputs[0], "[M, H, W, C]")?;
        dims.i32("count", &inputs[1], "[1]")?;
        let positions = dims.get("H") * dims.get("W");
        check::parameter(NAME, "H * W", positions > 0, "at least 1", positions)?;
        Ok(vec![TensorDesc::new(Role::Activation, &[dims.get("M"), dims.get("C")])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, inputs[0].len() as u64)
    }

    fn backward(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        let [height, width] = [1, 2].map(|i| inputs[0].dim(i));
        BackwardRule::default().step(
            MeanPositionsGrad { height, width },
            &[Source::GradOutput(0), Source::Input(1)],
            &[Sink::GradInput(0)],
        )
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
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
