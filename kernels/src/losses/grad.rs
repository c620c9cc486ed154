//! The gradient of a loss as an op: code common to all losses.

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::contract::{Kernel, dims_of};
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Cost, Op, OpError, Role, Sink, Source, TensorDesc};

/// A scalar loss whose gradient with respect to its first input reads all its inputs again.
pub trait Loss: Kernel + Clone {
    /// Name of the gradient op.
    const GRAD_NAME: &'static str;
    /// Number of the loss's inputs.
    const NUM_INPUTS: usize = Self::CONTRACT.inputs.len();

    /// Floating-point operations of the gradient.
    fn grad_flops(inputs: &[TensorDesc]) -> u64;

    /// Scratch bytes of the gradient's launches.
    fn grad_workspace_bytes(_inputs: &[TensorDesc]) -> usize {
        0
    }

    /// The gradient's launches.
    fn grad_launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch>;

    /// Writes `grad_output` times the gradient to the first output.
    fn run_grad(&self, grad_output: f32, args: &mut CpuArgs<'_>);
}

/// `grad_output * d loss / d x`, where `x` is the loss's first input.
///
/// Tensors: the loss's inputs, then `grad_output [1]` (all in) -> `grad_x` (shape of `x`,
/// overwritten; 0 in rows that the loss ignores).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LossGrad<L>(pub L);

/// The backward rule of a loss: one op.
pub(crate) fn backward_rule<L: Loss>(loss: &L) -> BackwardRule {
    let mut reads: Vec<_> = (0..L::NUM_INPUTS).map(Source::Input).collect();
    reads.push(Source::GradOutput(0));
    BackwardRule::default().step(LossGrad(loss.clone()), &reads, &[Sink::GradInput(0)])
}

impl<L: Loss> Op for LossGrad<L> {
    fn name(&self) -> &'static str {
        L::GRAD_NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(L::GRAD_NAME, "inputs", inputs, L::NUM_INPUTS + 1)?;
        check::arity(L::GRAD_NAME, "updates", updates, 0)?;
        dims_of(&self.0, L::GRAD_NAME, &inputs[..L::NUM_INPUTS])?;
        check::floats(L::GRAD_NAME, "grad_output", &inputs[L::NUM_INPUTS], &[1])?;
        Ok(vec![TensorDesc::new(Role::Gradient, &inputs[0].shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, L::grad_flops(inputs))
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        L::grad_workspace_bytes(inputs)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        self.0.grad_launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let grad_output = args.inputs[L::NUM_INPUTS].f32()[0];
        self.0.run_grad(grad_output, args);
    }
}
