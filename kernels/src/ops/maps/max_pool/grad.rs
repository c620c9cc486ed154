//! Gradient of the maximum: each output gradient goes to where its maximum was found.
//!
//! Tensors: `g [N,P,Q,C]`, `argmax [N,P,Q,C] i32` -> `dx [N,H,W,C]`, overwritten. Several windows
//! may share a maximum; their gradients are added in row-major order of the windows. Bound by
//! memory.

use device::{Launch, LaunchArgs};

use crate::check::{self, Dims};
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

use super::{MaxPool, cpu};

/// Gradient of [`MaxPool`] for an input of `height` x `width`.
#[derive(Debug, Clone, PartialEq)]
pub struct MaxPoolGrad {
    /// The forward op.
    pub pool: MaxPool,
    /// H.
    pub height: usize,
    /// W.
    pub width: usize,
}

const NAME: &str = "max_pool_grad";

impl Op for MaxPoolGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, 2, updates)?;
        self.pool.check(NAME)?;
        let (g, argmax) = (&inputs[0], &inputs[1]);
        dims.f32("g", g, "[N, P, Q, C]")?;
        dims.i32("argmax", argmax, "[N, P, Q, C]")?;
        let extents = [self.height, self.width].map(|e| self.pool.extent(e));
        if extents != [Some(g.dim(1)), Some(g.dim(2))] {
            let expected = format!("[N, {:?}, {:?}, C]", extents[0], extents[1]);
            return Err(check::shape_error(NAME, "g", g, expected));
        }
        let dx = [g.dim(0), self.height, self.width, g.dim(3)];
        Ok(vec![TensorDesc::new(Role::Gradient, &dx)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, inputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        super::cuda::backward(&self.pool, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (g, argmax) = (args.inputs[0], args.inputs[1]);
        let size = [self.height, self.width, g.desc.dim(3)];
        let out = [1, 2].map(|i| g.desc.dim(i));
        let dx = args.outputs[0].f32();
        cpu::max_pool_grad(&self.pool, g.f32(), argmax.i32(), size, out, dx);
    }
}
