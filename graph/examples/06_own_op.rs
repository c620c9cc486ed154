//! A custom op: contract, cost, backward rule, CPU reference and launch, and its checks.
//!
//! `cargo run --release -p graph --example 06_own_op`

use std::error::Error;
use std::io::Write;

use device::{Launch, LaunchArgs};
use kernels::case::{OpCase, check_gradients, check_on_device, check_runs, normal};
use kernels::contract::{Flops, Kernel};
use kernels::cpu::CpuArgs;
use kernels::ops::relu_mask::ReluMask;
use kernels::{BackwardRule, Op, Precision, Role, Sink, Source, TensorDesc};

// The contract: inputs and outputs. Errors name the op, the tensor, and the expected and actual
// shapes.
kernels::op! {
    /// `y = max(x, 0)`, elementwise.
    struct Relu = "relu" {}
    in ReluInputs {
        /// Input.
        x: real "[..]",
    }
    out {
        /// Output.
        y: Activation "[..]",
    }
}

impl Kernel for Relu {
    // For reports and rooflines: one operation per element of the first output.
    const FLOPS: Flops = Flops::Output(1);

    // The rule is data, not code: grad x = grad y where y > 0, computed by an existing op.
    fn backward(&self, _: &[TensorDesc]) -> BackwardRule {
        let read = [Source::GradOutput(0), Source::Output(0)];
        BackwardRule::default().step(ReluMask, &read, &[Sink::GradInput(0)])
    }

    // A launch declares the bytes that it reads and writes. `relu_mask_f16(dy, y, g)` computes `g =
    // dy where y > 0`; with x as both dy and y it computes this op.
    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (x, y) = (args.inputs[0], args.outputs[0]);
        let launch = Launch::over("relu_mask_f16", x.len().div_ceil(8));
        vec![launch.arg(x.read()).arg(x.read()).arg(y.write()).len(x.len())]
    }

    // The CPU reference in f32, simple and deterministic; device results are compared with it.
    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        for (y, x) in args.outputs[0].f32().iter_mut().zip(args.inputs[0].f32()) {
            *y = x.max(0.0);
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    lesson(&mut std::io::stdout())
}

pub(crate) fn lesson(out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let device = test_gpu::open("A100 SEED=1");
    for case in cases() {
        // Every output element is written; two runs give bit-identical results.
        check_runs(&case)?;
        // The backward rule is the derivative: finite differences along random directions.
        let gradient = check_gradients(&case)?;
        // The launches compute the same results as the CPU, forward and backward.
        let report = check_on_device(&case, &device, Precision::Fp16, u64::MAX)?;
        let ops = report.ops;
        writeln!(out, "{case}: gradient off by {gradient:.0e}; {ops} ops agree on the device")?;
    }

    // The contract rejects a tensor of the wrong type; the error names it.
    let labels = TensorDesc::new(Role::Index, &[4]);
    let refused = Relu.infer(&[labels], &[]).expect_err("integers");
    writeln!(out, "{refused}")?;
    Ok(())
}

/// Sizes: empty, one element, one thread block, one thread block plus one element. All inputs stay
/// clear of the kink at 0, where a finite difference is not the derivative.
fn cases() -> Vec<OpCase> {
    let case = |len: usize| {
        let mut x = normal(Role::Activation, &[len], 1, 1.0);
        x.as_f32_mut().iter_mut().for_each(|x| *x += 0.1f32.copysign(*x));
        OpCase::new(format!("[{len}]"), Relu, vec![x]).grad(&[0])
    };
    [0, 1, 2048, 2049].map(case).into()
}
