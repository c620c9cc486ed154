//! The Gaussian error linear unit (Hendrycks & Gimpel 2016), exact: `y = x * P(Z <= x)` for a
//! standard normal Z.
//!
//! Matches `torch.nn.functional.gelu` with `approximate = "none"`.

mod cases;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::contract::{Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::isa::{Isa, wide};
use crate::{BackwardRule, Sink, Source, TensorDesc, op};

pub use cases::cases;

op! {
    /// `y = x * P(Z <= x)`. The CPU approximates the probability with a relative error below 4e-7,
    /// the same on every instruction set; a GPU uses `erff`. Memory-bound.
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

/// Elements per thread; as in `vector.cuh`.
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
        let x = args.inputs[0].f32();
        let y = args.outputs[0].f32();
        let isa = Isa::get();
        y.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).for_each(|(y, x)| chunk(isa, x, y));
    }
}

impl Kernel for GeluGrad {
    const FLOPS: Flops = Flops::Output(25);

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        launches("gelu_grad_f16", args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let [g, x] = [0, 1].map(|i| args.inputs[i].f32());
        gelu_grad(g, x, args.outputs[0].f32());
    }
}

/// Launches an elementwise kernel with one output.
fn launches(kernel: &'static str, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let y = args.outputs[0];
    let launch = Launch::over(kernel, y.len().div_ceil(VECTOR));
    vec![launch.tensors(args).len(y.len())]
}

/// Elements per task.
const CHUNK: usize = 1 << 13;

/// `P(Z <= -a) = exp(-a^2 / 2) * t * (sum of FIT[i] * t^i)` for a >= 0, with `t = 1 / (1 + RATE
/// a)`: least squares on 0 to 14, weighted for minimum relative error.
const RATE: f32 = 0.26;
const FIT: [f32; 9] = [
    0.103_759_065,
    0.103_016_675,
    0.103_030_77,
    0.051_025_73,
    0.160_952_27,
    -0.150_955_02,
    0.251_496_23,
    -0.152_830_99,
    0.030_505_28,
];
/// 1 / sqrt(2 pi).
const DENSITY: f32 = 0.398_942_3;
/// For a `u` above this, `exp(-u)` is below the smallest normal f32.
const MOST: f32 = 87.0;
/// Taylor coefficients of `exp(r)`.
const SERIES: [f32; 6] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5];
/// ln 2 in two parts; integer multiples of the first are exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
/// Adding and then subtracting this constant rounds to an integer; the low bits of the sum hold the
/// integer.
const WHOLE: f32 = 12_582_912.0;

/// `exp(-u)` for u >= 0.
#[inline(always)]
fn exp_of_negative(u: f32) -> f32 {
    let v = -u.min(MOST);
    let shifted = v * std::f32::consts::LOG2_E + WHOLE;
    let n = shifted - WHOLE;
    let r = n.mul_add(-LN_2[1], n.mul_add(-LN_2[0], v));
    let powers = SERIES.iter().fold(0.0f32, |sum, factor| sum.mul_add(r, *factor));
    let exp = powers.mul_add(r * r, r) + 1.0;
    exp * f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()))
}

/// `P(Z <= x)`, and `exp(-x^2 / 2)`.
#[inline(always)]
fn probability(x: f32) -> (f32, f32) {
    let a = x.abs();
    let exp = exp_of_negative(0.5 * a * a);
    let t = 1.0 / RATE.mul_add(a, 1.0);
    let tail = exp * t * FIT.iter().rev().fold(0.0f32, |sum, factor| sum.mul_add(t, *factor));
    (if x < 0.0 { tail } else { 1.0 - tail }, exp)
}

/// `dx = g * (P(Z <= x) + x * density(x))`.
fn gelu_grad(g: &[f32], x: &[f32], dx: &mut [f32]) {
    let isa = Isa::get();
    let chunks = dx.par_chunks_mut(CHUNK).zip(x.par_chunks(CHUNK)).zip(g.par_chunks(CHUNK));
    chunks.for_each(|((dx, x), g)| grad_chunk(isa, g, x, dx));
}

wide! {
    /// [`gelu`].
    fn chunk(x: &[f32], y: &mut [f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y = x * probability(*x).0;
        }
    }
}

wide! {
    /// [`gelu_grad`].
    fn grad_chunk(g: &[f32], x: &[f32], dx: &mut [f32]) {
        for ((dx, x), g) in dx.iter_mut().zip(x).zip(g) {
            let (probability, exp) = probability(*x);
            *dx = g * (x * DENSITY).mul_add(exp, probability);
        }
    }
}
