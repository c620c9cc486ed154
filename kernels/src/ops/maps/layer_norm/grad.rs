//! The gradients of `layer_norm`.

use device::{Gpu, Launch, LaunchArgs};

use super::{check_channels, cpu, cuda, positions};
use crate::check;
use crate::cpu::CpuArgs;
use crate::ops::bias_grad;
use crate::{Cost, Op, OpError, Role, TensorDesc};

/// Gradients of the input, the scale and the shift.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerNormGrad;

op_inputs! {
    /// The inputs of [`LayerNormGrad`].
    pub struct LayerNormGradInputs {
        /// `[.., C]`.
        g,
        /// `[.., C]`.
        x,
        /// `[C]`.
        gamma,
        /// `[M, 2]`.
        stats,
    }
}

const NAME: &str = "layer_norm_grad";

impl Op for LayerNormGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, LayerNormGradInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        let LayerNormGradInputs { g, x, gamma, stats } = LayerNormGradInputs::of(inputs);
        check_channels(NAME, x, &[("gamma", gamma)])?;
        check::floats(NAME, "g", g, &x.shape)?;
        check::floats(NAME, "stats", stats, &[positions(x), 2])?;
        let vector = TensorDesc::new(Role::WeightGradient, &[x.dim(-1)]);
        Ok(vec![TensorDesc::new(Role::Gradient, &x.shape), vector.clone(), vector])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let mut cost = Cost::streaming(inputs, outputs, 14 * outputs[0].len() as u64);
        cost.bytes += (inputs[0].cpu_bytes() + inputs[1].cpu_bytes()) as u64;
        cost
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        2 * bias_grad::workspace_len(positions(&inputs[0]), inputs[0].dim(-1))
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(&inputs[0])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::backward(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let LayerNormGradInputs { g, x, gamma, stats } = LayerNormGradInputs::of(&args.inputs);
        let [g, x, gamma, stats] = [g, x, gamma, stats].map(|t| t.f32());
        let [dx, dgamma, dbeta] = &mut args.outputs[..] else {
            unreachable!("{NAME} has three outputs")
        };
        cpu::grad_input((g, x), gamma, stats, dx.f32());
        cpu::grad_params((g, x), stats, [dgamma.f32(), dbeta.f32()], args.workspace);
    }
}
