//! Gradients of `class_masks`.
//!
//! Tensors: `g [M,H,W]`, `x [M,H,W,C]`, `w [K,1,1,C]`, `labels [M]` i32, `count [1]` i32 (all in)
//! -> `dx [M,H,W,C]` (0 in rows that have no mask), `dw [K,1,1,C]`, `db [K]` (0 for classes
//! without rows), with `bias_grad` also the sum of `dx` `[C]`; all overwritten. Bound by memory: x
//! is read once, dx written once.
//! Numerics: on the CPU the bits are those of the convolution's gradients for a `g` that is 0 in
//! the other channels, up to the sign of zeros; in CUDA sums of a row in fp32, those of a class in
//! fp64, in order. Deterministic.

use std::sync::Arc;

use device::{Gpu, Launch, LaunchArgs};

use super::{ClassMasksGradInputs, check_inputs, cpu, cuda, flops};
use crate::contract::Dims;
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::ops::bias_grad;
use crate::{Cost, Fusion, Op, OpError, OpRef, Role, TensorDesc, Traits};

/// Gradients of the input, the filters and the bias.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassMasksGrad {
    /// x is the output of a ReLU, and `dx` the gradient of its input: 0 where x is not positive.
    pub relu: bool,
    /// The last output is the gradient of the bias that x was made with.
    pub bias_grad: bool,
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
        let mut dims = Dims::new(NAME, inputs, ClassMasksGradInputs::LEN, updates)?;
        let ClassMasksGradInputs { g, x, w, labels, count } = ClassMasksGradInputs::of(inputs);
        check_inputs(&mut dims, NAME, x, w, [labels, count])?;
        dims.f32("g", g, "[M, H, W]")?;
        let mut outputs = vec![
            TensorDesc::new(Role::Gradient, &x.shape),
            TensorDesc::new(Role::WeightGradient, &w.shape),
            TensorDesc::new(Role::WeightGradient, &[w.dim(0)]),
        ];
        if self.bias_grad {
            outputs.push(TensorDesc::new(Role::WeightGradient, &[x.dim(3)]));
        }
        Ok(outputs)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 2 * flops(&inputs[1]))
    }

    fn traits(&self) -> Traits {
        Traits { count_input: Some(ClassMasksGradInputs::LEN - 1), ..Traits::default() }
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let can = fusion == Fusion::BiasGrad && !self.bias_grad;
        can.then(|| Arc::new(Self { bias_grad: true, ..*self }) as OpRef)
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        let x = &inputs[1];
        let rows = x.shape[..3].iter().product();
        if self.bias_grad { bias_grad::workspace_len(rows, x.dim(3)) } else { 0 }
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::partial_bytes(&inputs[1], self.bias_grad)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_launches(self.relu, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::grad(self.relu, args);
        if self.bias_grad {
            let x = args.inputs[1].desc;
            let count = rows_in_use(args.inputs[4].i32(), x.dim(0));
            let [dx, .., sums] = &mut args.outputs[..] else { unreachable!("four outputs") };
            let len = count * x.dim(1) * x.dim(2) * x.dim(3);
            bias_grad::sum_rows(&dx.f32()[..len], sums.f32(), args.workspace);
        }
    }
}
