//! Keypoint maps: the head's channels at twice the size, one row for each RoI and keypoint.
//!
//! Matches `torch.nn.functional.interpolate(x, scale_factor=2, mode="bilinear",
//! align_corners=False)`, and torch's order of channels before pixels.

mod cases;
mod cpu;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::contract::{Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Sink, Source, TensorDesc, op};

pub use cases::cases;
pub use grad::KeypointMapsGrad;

op! {
    /// Doubles the maps and makes a row of each.
    #[derive(Copy, Eq)]
    pub struct KeypointMaps = "keypoint_maps" {}
    in KeypointMapsInputs {
        /// A channel per keypoint.
        x: real "[M, H, W, K]",
        /// Rows in use.
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
        cpu::double(args);
    }
}
