//! The gradients of `layer_norm`.

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Kernel};
use crate::cpu::{CpuArgs, exactly};
use crate::ops::bias_grad;
use crate::{Cost, OpError, TensorDesc, check, op};

use super::{check_channels, cpu, cuda, positions};

op! {
    /// Gradients of the input, the scale and the shift.
    #[derive(Copy, Eq)]
    pub struct LayerNormGrad = "layer_norm_grad" {}
    in LayerNormGradInputs {
        /// Gradient of the output.
        g: real "[.., C]",
        /// Input.
        x: real "[.., C]",
        /// Scale.
        gamma: f32 "[C]",
        /// Mean and rstd, of the forward op.
        stats: f32 "[M, 2]",
    }
    out {
        /// Gradient of the input.
        dx: Gradient "[.., C]",
        /// Gradient of the scale.
        dgamma: WeightGradient "[C]",
        /// Gradient of the shift.
        dbeta: WeightGradient "[C]",
    }
}

impl Kernel for LayerNormGrad {
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let of = LayerNormGradInputs::of(inputs);
        check_channels(dims.op(), of.x, dims)?;
        check::shape(dims.op(), "stats", of.stats, &[positions(of.x), 2])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let mut cost = Cost::streaming(inputs, outputs, 14 * outputs[0].len() as u64);
        cost.bytes += (inputs[0].cpu_bytes() + inputs[1].cpu_bytes()) as u64;
        cost
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        2 * bias_grad::workspace_len(positions(&inputs[0]), inputs[0].dim(-1))
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        cuda::workspace_bytes(&inputs[0])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::backward(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let LayerNormGradInputs { g, x, gamma, stats } = LayerNormGradInputs::of(&args.inputs);
        let [g, x, gamma, stats] = [g, x, gamma, stats].map(|t| t.f32());
        let [dx, dgamma, dbeta] = exactly(&mut args.outputs);
        cpu::grad_input((g, x), gamma, stats, dx.f32());
        cpu::grad_params((g, x), stats, [dgamma.f32(), dbeta.f32()], args.workspace);
    }
}
