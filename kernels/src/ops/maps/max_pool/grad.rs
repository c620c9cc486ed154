//! Gradient of the maximum: each output gradient goes to where its maximum was found.

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::{OpError, TensorDesc, check, op};

use super::{MaxPool, cpu, grid, pool_arg};

op! {
    /// Gradient of [`MaxPool`] for an input of `height` x `width`. Windows that share a maximum add
    /// their gradients in row-major order. Bound by memory.
    pub struct MaxPoolGrad = "max_pool_grad" {
        /// The forward op.
        pub pool: MaxPool,
        /// H.
        pub height: usize,
        /// W.
        pub width: usize,
    }
    in MaxPoolGradInputs {
        /// Gradient of the maxima.
        g: float "[N, P, Q, C]",
        /// Where the maxima stand.
        argmax: i32 "[N, P, Q, C]",
    }
    out {
        /// Gradient of the map.
        dx: Gradient "[N, height, width, C]",
    }
}

impl Kernel for MaxPoolGrad {
    const FLOPS: Flops = Flops::Input(1);

    fn sizes(&self, dims: &mut Dims) {
        dims.bind("height", self.height);
        dims.bind("width", self.width);
    }

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        self.pool.check_window(dims.op())?;
        let extents = [self.height, self.width].map(|e| self.pool.extent(e));
        if extents == [Some(dims.get("P")), Some(dims.get("Q"))] {
            return Ok(());
        }
        let expected = format!("[N, {:?}, {:?}, C]", extents[0], extents[1]);
        Err(check::shape_error(dims.op(), "g", &inputs[0], expected))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (g, dx) = (args.inputs[0], args.outputs[0]);
        let (kernel, vector) = if g.dim(3).is_multiple_of(8) {
            ("max_pool_grad_f16x8", 8)
        } else {
            ("max_pool_grad_f16", 1)
        };
        let pool = pool_arg(&self.pool, &dx, &g);
        vec![Launch::new(kernel, grid(&dx, vector)).tensors(args).arg(pool)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (g, argmax) = (args.inputs[0], args.inputs[1]);
        let size = [self.height, self.width, g.desc.dim(3)];
        let out = [1, 2].map(|i| g.desc.dim(i));
        let dx = args.outputs[0].f32();
        cpu::max_pool_grad(&self.pool, g.f32(), argmax.i32(), size, out, dx);
    }
}
