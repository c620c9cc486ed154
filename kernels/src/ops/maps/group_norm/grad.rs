//! Gradients of group normalisation, in three steps that share one reduction.
//!
//! Bound by memory; sums of 128 positions in f32, the rest in f64, in order.

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::{CpuArgs, exactly};
use crate::{OpError, TensorDesc, op};

use super::{check_map, cpu, cuda};

op! {
    /// Sums of `g` and of `g * normalised(x)` for each image and channel.
    pub struct GroupNormGradSums = "group_norm_grad_sums" {
        /// Number of groups.
        pub groups: usize,
    }
    in GroupNormGradSumsInputs {
        /// Gradient of the normalised map.
        g: real "[N, H, W, C]",
        /// Map.
        x: real "[N, H, W, C]",
        /// Mean and rstd, of the forward op.
        stats: f32 "[N, groups, 2]",
    }
    out {
        /// Over the positions of an image: of `g`, and of `g * normalised(x)`.
        sums: Master "[N, 2, C]",
    }
}

op! {
    /// Gradient of x.
    pub struct GroupNormGradInput = "group_norm_grad_input" {
        /// Number of groups.
        pub groups: usize,
    }
    in GroupNormGradInputInputs {
        /// Gradient of the normalised map.
        g: real "[N, H, W, C]",
        /// Map.
        x: real "[N, H, W, C]",
        /// Scale.
        gamma: f32 "[C]",
        /// Mean and rstd, of the forward op.
        stats: f32 "[N, groups, 2]",
        /// Sums of the step before.
        sums: f32 "[N, 2, C]",
    }
    out {
        /// Gradient of x.
        dx: Gradient "[N, H, W, C]",
    }
}

op! {
    /// Gradients of gamma and beta.
    pub struct GroupNormGradParams = "group_norm_grad_params" {}
    in GroupNormGradParamsInputs {
        /// Sums of the first step.
        sums: f32 "[N, 2, C]",
    }
    out {
        /// Gradient of the scale.
        dgamma: WeightGradient "[C]",
        /// Gradient of the shift.
        dbeta: WeightGradient "[C]",
    }
}

impl Kernel for GroupNormGradSums {
    const FLOPS: Flops = Flops::Input(4);

    fn sizes(&self, dims: &mut Dims) {
        dims.bind("groups", self.groups);
    }

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_map(dims.op(), &inputs[1], self.groups)
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        cpu::Map::new(&inputs[1], self.groups).partial_len()
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        cuda::partial_bytes(&inputs[1], self.groups)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_sums(self.groups, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let map = cpu::Map::new(args.inputs[1].desc, self.groups);
        let [g, x, stats] = [0, 1, 2].map(|i| args.inputs[i].f32());
        cpu::grad_sums(map, (g, x), stats, args.outputs[0].f32(), args.workspace);
    }
}

impl Kernel for GroupNormGradInput {
    const FLOPS: Flops = Flops::Output(5);

    fn sizes(&self, dims: &mut Dims) {
        dims.bind("groups", self.groups);
    }

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_map(dims.op(), &inputs[1], self.groups)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        cuda::corrections_bytes(&inputs[1], self.groups)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_input(self.groups, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let map = cpu::Map::new(args.inputs[1].desc, self.groups);
        let [g, x, gamma, stats, sums] = [0, 1, 2, 3, 4].map(|i| args.inputs[i].f32());
        cpu::grad_input(map, (g, x), gamma, stats, sums, args.outputs[0].f32());
    }
}

impl Kernel for GroupNormGradParams {
    const FLOPS: Flops = Flops::Input(1);

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_params(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let sums = args.inputs[0].f32();
        let [dgamma, dbeta] = exactly(&mut args.outputs);
        let channels = dgamma.desc.len();
        let over_images = |start: usize| {
            sums.iter().skip(start).step_by(2 * channels).map(|&v| f64::from(v)).sum::<f64>()
        };
        for (c, dgamma) in dgamma.f32().iter_mut().enumerate() {
            *dgamma = over_images(channels + c) as f32;
        }
        for (c, dbeta) in dbeta.f32().iter_mut().enumerate() {
            *dbeta = over_images(c) as f32;
        }
    }
}
