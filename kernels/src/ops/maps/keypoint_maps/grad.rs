//! Gradient of `keypoint_maps`: the transpose of its interpolation.

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::op;

use super::cpu;

op! {
    /// Gathers, for each pixel of the smaller maps, from the up to 4x4 pixels that read it, in
    /// their order. Bound by memory.
    #[derive(Copy, Eq)]
    pub struct KeypointMapsGrad = "keypoint_maps_grad" {
        /// `[M, H, W, K]`, of the gradient.
        pub shape: [usize; 4],
    }
    in KeypointMapsGradInputs {
        /// Gradient of the maps.
        g: real "[M*K, 4*H*W]",
        /// Rows in use.
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
        cpu::gather(args);
    }
}
