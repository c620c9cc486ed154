//! Gradients of `class_masks`.
//!
//! Numerics: on the CPU the bits are those of the convolution's gradients for a `g` that is 0 in
//! the other channels, up to the sign of zeros; in CUDA sums of a row in fp32, those of a class in
//! fp64, in order. Deterministic.

use std::sync::Arc;

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Kernel};
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::ops::bias_grad;
use crate::{Cost, Fusion, OpError, OpRef, TensorDesc, Traits};

use super::{ClassMasksGrad, ClassMasksGradInputs, check_classes, cpu, cuda, flops};

impl Kernel for ClassMasksGrad {
    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_classes(dims.op(), dims)
    }

    fn adjust(&self, _inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        outputs.truncate(3 + usize::from(self.bias_grad));
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

    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        let x = &inputs[1];
        let rows = x.shape[..3].iter().product();
        if self.bias_grad { bias_grad::workspace_len(rows, x.dim(3)) } else { 0 }
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
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
