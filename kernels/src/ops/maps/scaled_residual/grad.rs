//! The gradients of `scaled_residual`.

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::{CpuArgs, exactly};
use crate::ops::bias_grad;
use crate::{OpError, TensorDesc, op};

use super::{Drop, check_rate, cpu, cuda, factors};

op! {
    /// Gradients of the branch and of the scale.
    #[derive(Copy)]
    pub struct ScaledResidualGrad = "scaled_residual_grad" {
        /// As of the op.
        pub drop: Option<Drop>,
    }
    in ScaledResidualGradInputs {
        /// Gradient of the end, and of the start.
        g: real "[N, .., C]",
        /// The branch.
        branch: real "[N, .., C]",
        /// A factor per channel.
        scale: f32 "[C]",
    }
    optional {
        /// Keys of the images, by which they are drawn.
        image_keys: i32 "[N, 4]" if |op| op.drop.is_some(),
    }
    out {
        /// Gradient of the branch.
        dbranch: Gradient "[N, .., C]",
        /// Gradient of the factors.
        dscale: WeightGradient "[C]",
    }
}

impl Kernel for ScaledResidualGrad {
    const FLOPS: Flops = Flops::Output(4);

    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_rate(dims.op(), self.drop)
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        let channels = inputs[0].dim(-1).max(1);
        bias_grad::workspace_len(inputs[0].len() / channels, channels)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        cuda::workspace_bytes(&inputs[0])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::backward(self.drop, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let ScaledResidualGradInputs { g, branch, scale, image_keys } =
            ScaledResidualGradInputs::of(&args.inputs, [self.drop.is_some()]);
        let factors = factors(self.drop, image_keys.map(|keys| keys.i32()), g.desc.dim(0));
        let (g, branch, scale) = (g.f32(), branch.f32(), scale.f32());
        let [dbranch, dscale] = exactly(&mut args.outputs);
        cpu::grad_branch(g, scale, &factors, dbranch.f32());
        cpu::grad_scale(g, branch, &factors, dscale.f32(), args.workspace);
    }
}
