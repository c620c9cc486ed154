//! Norms of gradients, and whether all of them are finite: what clipping and the loss scale need.
//!
//! Tensors: `grad_i` (f32, any shape, n >= 1 of them, in) -> `norms [n+1]` (Role::Scalar,
//! overwritten: the L2 norm of each, then that of all), `finite [1]` i32 (1 if no element is
//! infinite or NaN, else 0).
//! Norms are those of the values as given, so still times the loss scale. Numerics: squares summed
//! in f64 in chunks of a fixed size, in order; a norm beyond f32 becomes its largest value, and one
//! over elements that are not finite is whatever the sum says. Bound by memory.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::cpu::CpuArgs;
use crate::{Cost, DType, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// L2 norms of gradients and their finite check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GradNorms {}

const NAME: &str = "grad_norms";

impl Op for GradNorms {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::at_least(NAME, "inputs", inputs, 1, "at least 1")?;
        check::arity(NAME, "updates", updates, 0)?;
        for grad in inputs {
            check::dtype(NAME, "grad_i", grad, DType::F32)?;
        }
        let norms = TensorDesc::new(Role::Scalar, &[inputs.len() + 1]);
        Ok(vec![norms, TensorDesc::new(Role::Index, &[1])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = 2 * inputs.iter().map(|g| g.len() as u64).sum::<u64>();
        Cost::streaming(inputs, outputs, flops)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(inputs)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let grads: Vec<&[f32]> = args.inputs.iter().map(|g| g.f32()).collect();
        let finite = cpu::norms(&grads, args.outputs[0].f32());
        args.outputs[1].i32()[0] = i32::from(finite);
    }
}
