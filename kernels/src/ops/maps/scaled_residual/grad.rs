//! The gradients of `scaled_residual`.

use device::{Gpu, Launch, LaunchArgs};

use super::{Drop, check_tensors, cpu, cuda, factors};
use crate::check;
use crate::cpu::CpuArgs;
use crate::ops::bias_grad;
use crate::{Cost, Op, OpError, Role, TensorDesc};

/// Gradients of the branch and of the scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaledResidualGrad {
    /// As of the op.
    pub drop: Option<Drop>,
}

op_inputs! {
    /// The inputs of [`ScaledResidualGrad`].
    pub struct ScaledResidualGradInputs {
        /// `[N, .., C]`.
        g,
        /// `[N, .., C]`.
        branch,
        /// `[C]`.
        scale,
    }
    optional {
        /// `[N, 4]` i32.
        image_keys,
    }
}

const NAME: &str = "scaled_residual_grad";

impl Op for ScaledResidualGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let has = self.drop.is_some();
        let expected = ScaledResidualGradInputs::LEN + usize::from(has);
        check::arity(NAME, "inputs", inputs, expected)?;
        check::arity(NAME, "updates", updates, 0)?;
        let ScaledResidualGradInputs { g, branch, scale, image_keys } =
            ScaledResidualGradInputs::of(inputs, [has]);
        check_tensors(NAME, self.drop, (g, branch, scale), image_keys)?;
        let of = |role, shape: &[usize]| TensorDesc::new(role, shape);
        Ok(vec![of(Role::Gradient, &g.shape), of(Role::WeightGradient, &scale.shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 4 * outputs[0].len() as u64)
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        let channels = inputs[0].dim(-1).max(1);
        bias_grad::workspace_len(inputs[0].len() / channels, channels)
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
        cuda::backward(self.drop, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let ScaledResidualGradInputs { g, branch, scale, image_keys } =
            ScaledResidualGradInputs::of(&args.inputs, [self.drop.is_some()]);
        let factors = factors(self.drop, image_keys.map(|keys| keys.i32()), g.desc.dim(0));
        let (g, branch, scale) = (g.f32(), branch.f32(), scale.f32());
        let [dbranch, dscale] = &mut args.outputs[..] else {
            unreachable!("{NAME} has two outputs")
        };
        cpu::grad_branch(g, scale, &factors, dbranch.f32());
        cpu::grad_scale(g, branch, &factors, dscale.f32(), args.workspace);
    }
}
