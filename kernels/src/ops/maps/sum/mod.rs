//! Sum of tensors of one shape: adds the gradients of a tensor that has several readers.
//!
//! Tensors: `x_0 .. x_{n-1}` (n >= 1, f32, any shape, in) -> `y` (same shape and role as `x_0`,
//! overwritten). Terms are added in the order of the inputs, so the result is deterministic.

mod cases;
mod cpu;
mod cuda;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::{BackwardRule, Cost, DType, Op, OpError, Source, TensorDesc};

pub use cases::cases;

/// `y = x_0 + x_1 + ..`, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sum;

const NAME: &str = "sum";

impl Op for Sum {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "updates", updates, 0)?;
        let Some(first) = inputs.first() else {
            return Err(OpError::Arity {
                op: NAME,
                what: "inputs",
                expected: "at least 1".into(),
                got: 0,
            });
        };
        for desc in inputs {
            check::shape(NAME, "x_i", desc, &first.shape)?;
            check::dtype(NAME, "x_i", desc, DType::F32)?;
        }
        Ok(vec![first.clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = outputs[0].len() * (inputs.len() - 1);
        Cost::streaming(inputs, outputs, flops as u64)
    }

    fn backward(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        (0..inputs.len())
            .fold(BackwardRule::default(), |rule, i| rule.alias(Source::GradOutput(0), i))
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

    fn run_cpu(&self, args: &mut crate::cpu::CpuArgs<'_>) {
        let inputs: Vec<&[f32]> = args.inputs.iter().map(|x| x.f32()).collect();
        cpu::sum(&inputs, args.outputs[0].f32());
    }
}
