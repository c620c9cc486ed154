//! All-reduce (sum) of a tensor.
//!
//! Tensors: `x` (floats, any shape, in) -> `y` (same shape and role, overwritten): on every rank
//! the sum of all ranks' `x`, bit-identical across ranks. All ranks run the same all-reduces in the
//! same order: a Program with several all-reduces runs them on one stream.
//!
//! On a device the op runs as a task, not a kernel:
//! [`Device::all_reduce`](device::Device::all_reduce). The CPU reference is a copy, the result for
//! one rank; CPU ranks communicate outside of the Program.
//!
//! Edge cases: infinities and NaN propagate to every rank. Numerics: on CUDA in the element type of
//! the role, fp16 or fp32; the device chooses the summation order, which is the same at every step.

mod cases;

use device::{LaunchArgs, Task};

use crate::cpu::CpuArgs;
use crate::{DType, Op, OpError, TensorDesc, Traits, check};

pub use cases::cases;

/// `y = sum over ranks of x`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AllReduce;

const NAME: &str = "all_reduce";

impl Op for AllReduce {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, 1)?;
        check::arity(NAME, "updates", updates, 0)?;
        check::dtype(NAME, "x", &inputs[0], DType::F32)?;
        Ok(inputs.to_vec())
    }

    fn traits(&self) -> Traits {
        Traits { communicates: true, ..Traits::default() }
    }

    fn tasks(&self, args: &LaunchArgs<'_>) -> Vec<Task> {
        let [x, y] = [args.inputs[0], args.outputs[0]];
        vec![Task::AllReduce(device::AllReduce {
            to: y.ptr,
            from: x.ptr,
            len: x.len(),
            dtype: x.dtype(),
        })]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        args.outputs[0].f32().copy_from_slice(args.inputs[0].f32());
    }
}
