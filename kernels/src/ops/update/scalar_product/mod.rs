//! Product of two scalars: the loss scale times the weight of a micro-step.
//!
//! Tensors: `a [1]`, `b [1]` (f32, in) -> `y [1]` (Role::Scalar, overwritten).

mod cases;
mod cuda;

use device::{Launch, LaunchArgs};

use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// `y = a * b`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScalarProduct;

const NAME: &str = "scalar_product";

impl Op for ScalarProduct {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, 2, updates)?;
        dims.f32("a", &inputs[0], "[1]")?;
        dims.f32("b", &inputs[1], "[1]")?;
        Ok(vec![TensorDesc::new(Role::Scalar, &[1])])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        args.outputs[0].f32()[0] = args.inputs[0].f32()[0] * args.inputs[1].f32()[0];
    }
}
