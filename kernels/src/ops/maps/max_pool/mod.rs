//! Maximum over square windows, and where it was found.
//!
//! Matches `torch.nn.functional.max_pool2d(x, kernel, stride, pad, return_indices=True)`: padding
//! never wins, equal values go to the first in row-major order, a NaN wins over numbers. Kernel 1
//! with stride 2 makes P6 of P5.

mod cases;
mod cpu;
mod grad;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use device::{Arg, BLOCK, Buffer, Launch, LaunchArgs, StructArg};

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::matmul::out_extent;
use crate::{BackwardRule, Cost, Fusion, OpError, OpRef, Sink, Source, TensorDesc, check, op};

pub use cases::cases;
pub use grad::MaxPoolGrad;

op! {
    /// Maximum over windows of `kernel` x `kernel`; `P = (H + 2 pad - kernel) / stride + 1`.
    ///
    /// Bound by memory. The gradient is gathered by input row, and needs `argmax`.
    pub struct MaxPool = "max_pool" {
        /// Side of a window.
        pub kernel: usize,
        /// Step between windows, both axes.
        pub stride: usize,
        /// Rows and columns around the map that never win; at most half of `kernel`.
        pub pad: usize,
        /// There is an output `argmax`, which the gradient needs.
        pub argmax: bool,
    }
    in MaxPoolInputs {
        /// Map.
        x: float "[N, H, W, C]",
    }
    out {
        /// Maxima, of the role of `x`.
        y: Activation "[N, P, Q, C]",
        /// Where the maximum stands, h * W + w; only if the flag is set.
        argmax: Index "[N, P, Q, C]",
    }
}

impl MaxPool {
    fn check_window(&self, op: &'static str) -> Result<(), OpError> {
        check::parameter(op, "kernel", self.kernel > 0, "at least 1", self.kernel)?;
        check::parameter(op, "stride", self.stride > 0, "at least 1", self.stride)?;
        // With more, a window could lie entirely in the padding and would have no maximum.
        check::parameter(op, "pad", 2 * self.pad <= self.kernel, "at most kernel / 2", self.pad)
    }

    /// Height or width of the output.
    fn extent(&self, input: usize) -> Option<usize> {
        out_extent(input, self.kernel, self.stride, self.pad)
    }
}

impl Kernel for MaxPool {
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        self.check_window(dims.op())?;
        let extents = ["H", "W"].map(|name| self.extent(dims.get(name)));
        let [Some(p), Some(q)] = extents else {
            let expected = format!("[N, H, W, C] that holds a window of {}", self.kernel);
            return Err(check::shape_error(dims.op(), "x", &inputs[0], expected));
        };
        dims.bind("P", p);
        dims.bind("Q", q);
        Ok(())
    }

    fn adjust(&self, inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        outputs[0].role = inputs[0].role;
        outputs.truncate(1 + usize::from(self.argmax));
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let compares = outputs[0].len() * self.kernel * self.kernel;
        Cost::streaming(inputs, outputs, compares as u64)
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let can = fusion == Fusion::DropLast && self.argmax;
        can.then(|| Arc::new(Self { argmax: false, ..self.clone() }) as _)
    }

    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        if !self.argmax {
            return BackwardRule::default();
        }
        let [height, width] = [1, 2].map(|i| inputs[0].dim(i));
        BackwardRule::default().step(
            MaxPoolGrad { pool: self.clone(), height, width },
            &[Source::GradOutput(0), Source::Output(1)],
            &[Sink::GradInput(0)],
        )
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (x, y) = (args.inputs[0], args.outputs[0]);
        let argmax = args.outputs.get(1).map_or(Arg::Null, |argmax| argmax.write());
        let (kernel, vector) =
            if x.dim(3).is_multiple_of(8) { ("max_pool_f16x8", 8) } else { ("max_pool_f16", 1) };
        vec![
            Launch::new(kernel, grid(&y, vector))
                .arg(x.read())
                .arg(y.write())
                .arg(argmax)
                .arg(pool_arg(self, &x, &y)),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let x = args.inputs[0];
        let (y, argmax) = match &mut args.outputs[..] {
            [y] => (y, None),
            [y, argmax] => (y, Some(argmax.i32())),
            _ => unreachable!("one output or two"),
        };
        let size = [1, 2, 3].map(|i| x.desc.dim(i));
        let out = [1, 2].map(|i| y.desc.dim(i));
        cpu::max_pool(self, x.f32(), size, out, y.f32(), argmax);
    }
}

/// The kernel's `Pool`, for maps like `x` and outputs like `y`.
fn pool_arg(pool: &MaxPool, x: &Buffer<'_>, y: &Buffer<'_>) -> Arg {
    let extents = [x.dim(1), x.dim(2), y.dim(1), y.dim(2), x.dim(3)];
    StructArg::new().ints(extents).ints([pool.kernel, pool.stride, pool.pad]).arg()
}

/// A block row for each row of `map`.
fn grid(map: &Buffer<'_>, vector: usize) -> [usize; 3] {
    let vectors = map.dim(2) * map.dim(3) / vector;
    [map.dim(0) * map.dim(1), vectors.div_ceil(BLOCK as usize), 1]
}
