//! The Gaussian error linear unit (Hendrycks & Gimpel 2016), exact: `y = x * P(Z <= x)` of a normal
//! Z.
//!
//! Matches `torch.nn.functional.gelu` with `approximate = "none"`.

mod cases;
mod cpu;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::contract::{Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Sink, Source, TensorDesc, op};

pub use cases::cases;

op! {
    /// `y = x * P(Z <= x)`. On the CPU the probability is that of a fit within 4e-7 of itself, the
    /// same on every instruction set; on a GPU `erff`. Bound by memory.
    #[derive(Copy, Eq)]
    pub struct Gelu = "gelu" {}
    in GeluInputs {
        /// Input.
        x: real "[..]",
    }
    out {
        /// Output.
        y: Activation "[..]",
    }
}

op! {
    /// `dx = g * (P(Z <= x) + x * density(x))`.
    #[derive(Copy, Eq)]
    pub struct GeluGrad = "gelu_grad" {}
    in GeluGradInputs {
        /// Gradient of the output.
        g: real "[..]",
        /// Input.
        x: real "[..]",
    }
    out {
        /// Gradient of the input.
        dx: Gradient "[..]",
    }
}

/// Elements that a thread works on; as in `vector.cuh`.
const VECTOR: usize = 8;

impl Kernel for Gelu {
    const FLOPS: Flops = Flops::Output(20);

    fn backward(&self, _inputs: &[TensorDesc]) -> BackwardRule {
        let from = [Source::GradOutput(0), Source::Input(0)];
        BackwardRule::default().step(GeluGrad, &from, &[Sink::GradInput(0)])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        launches("gelu_f16", args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::gelu(args.inputs[0].f32(), args.outputs[0].f32());
    }
}

impl Kernel for GeluGrad {
    const FLOPS: Flops = Flops::Output(25);

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        launches("gelu_grad_f16", args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let [g, x] = [0, 1].map(|i| args.inputs[i].f32());
        cpu::gelu_grad(g, x, args.outputs[0].f32());
    }
}

/// An elementwise kernel of one output.
fn launches(kernel: &'static str, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let y = args.outputs[0];
    let launch = Launch::over(kernel, y.len().div_ceil(VECTOR));
    vec![launch.tensors(args).len(y.len())]
}
