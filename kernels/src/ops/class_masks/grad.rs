//! Gradients of `class_masks`.
//!
//! Tensors: `g [M,H,W]`, `x [M,H,W,C]`, `w [K,1,1,C]`, `labels [M]` i32, `count [1]` i32 (all in)
//! -> `dx [M,H,W,C]` (0 in rows that have no mask), `dw [K,1,1,C]`, `db [K]` (0 for classes
//! without rows); all overwritten. Bound by memory: x is read once, dx written once.
//! Numerics: on the CPU the bits are those of the convolution's gradients for a `g` that is 0 in
//! the other channels, up to the sign of zeros; in CUDA sums of a row in fp32, those of a class in
//! fp64, in order. Deterministic.

use device::{Gpu, Launch, LaunchArgs};

use super::{ClassMasksGradInputs, check_inputs, cpu, cuda, flops};
use crate::check;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

/// Gradients of the input, the filters and the bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassMasksGrad {
    /// x is the output of a ReLU, and `dx` the gradient of its input: 0 where x is not positive.
    pub relu: bool,
}

const NAME: &str = "class_masks_grad";

impl Op for ClassMasksGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, ClassMasksGradInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        let ClassMasksGradInputs { g, x, w, labels, count } = ClassMasksGradInputs::of(inputs);
        check_inputs(NAME, x, w, [labels, count])?;
        check::floats(NAME, "g", g, &x.shape[..3])?;
        Ok(vec![
            TensorDesc::new(Role::Gradient, &x.shape),
            TensorDesc::new(Role::WeightGradient, &w.shape),
            TensorDesc::new(Role::WeightGradient, &[w.dim(0)]),
        ])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 2 * flops(&inputs[1]))
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::partial_bytes(&inputs[1])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_launches(self.relu, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::grad(self.relu, args);
    }
}
