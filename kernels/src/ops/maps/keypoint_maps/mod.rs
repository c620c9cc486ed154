//! Keypoint maps: the head's channels at twice the size, one row for each RoI and keypoint.
//!
//! Matches `torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear",
//! align_corners=False)`, and torch's order of channels before pixels.
//! Tensors: `x [M, H, W, K]`, `count [1]` i32 (rows in use; in) -> `maps [M*K, 4*H*W]`, pixels
//! row by row (overwritten; 0 in rows of RoIs at or past the count). Gradient
//! (`keypoint_maps_grad`): `g [M*K, 4*H*W]`, `count` -> `dx [M, H, W, K]`, each a sum over up to
//! 4x4 pixels in their order. Bound by memory.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Cost, Op, OpError, Role, Sink, Source, TensorDesc};

pub use cases::cases;
pub use grad::KeypointMapsGrad;

/// Doubles the maps and makes a row of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeypointMaps;

const NAME: &str = "keypoint_maps";

impl Op for KeypointMaps {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, 2, updates)?;
        dims.f32("x", &inputs[0], "[M, H, W, K]")?;
        dims.i32("count", &inputs[1], "[1]")?;
        let rows = dims.get("M") * dims.get("K");
        Ok(vec![TensorDesc::new(Role::Activation, &[rows, 4 * dims.get("H") * dims.get("W")])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 7 * outputs[0].len() as u64)
    }

    fn backward(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        let shape = [0, 1, 2, 3].map(|i| inputs[0].dim(i));
        BackwardRule::default().step(
            KeypointMapsGrad { shape },
            &[Source::GradOutput(0), Source::Input(1)],
            &[Sink::GradInput(0)],
        )
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::double(args);
    }
}
