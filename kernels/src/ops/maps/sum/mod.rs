//! Sum of tensors of the same shape: adds the gradients of a tensor with several consumers.

mod cases;

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::contract::Kernel;
use crate::isa::{Isa, wide};
use crate::{BackwardRule, Cost, DType, Source, TensorDesc, op};

pub use cases::cases;

op! {
    /// `y = x_0 + x_1 + ..`, in this order: deterministic.
    #[derive(Copy, Eq)]
    pub struct Sum = "sum" {}
    in SumInputs {}
    each {
        /// A term.
        x_i: float "[..]",
    }
    out {
        /// The sum, with the role of `x_0`.
        y: Activation "[..]",
    }
}

/// Maximum terms per launch; as in `sum.cu`.
const MAX_TERMS: usize = 32;

/// Elements per thread.
const VECTOR: usize = 8;

impl Kernel for Sum {
    const KEEPS_ROLE: bool = true;

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = outputs[0].len() * (inputs.len() - 1);
        Cost::streaming(inputs, outputs, flops as u64)
    }

    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        (0..inputs.len())
            .fold(BackwardRule::default(), |rule, i| rule.alias(Source::GradOutput(0), i))
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        if inputs.len() > MAX_TERMS { inputs[0].len() * size_of::<f32>() } else { 0 }
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let y = args.outputs[0];
        assert!(args.inputs.iter().all(|x| x.dtype() == y.dtype()), "sum of several element types");
        let kernel = if y.dtype() == DType::F16 { "sum_f16" } else { "sum_f32" };
        let last = (args.inputs.len() - 1) / MAX_TERMS;
        let carry = |used: bool, access| {
            let bytes = y.len() * size_of::<f32>();
            if used { args.workspace.piece(0, bytes, access) } else { Arg::Null }
        };
        let launch = |(i, terms): (usize, &[Buffer<'_>])| {
            Launch::over(kernel, y.len().div_ceil(VECTOR))
                .arg(StructArg::new().pointers(terms.iter().map(Buffer::read), MAX_TERMS).arg())
                .int(terms.len())
                .arg(carry(i > 0, Access::Read))
                .arg(carry(i < last, Access::Write))
                .arg(y.write())
                .len(y.len())
        };
        args.inputs.chunks(MAX_TERMS).enumerate().map(launch).collect()
    }

    fn run_cpu(&self, args: &mut crate::cpu::CpuArgs<'_>) {
        let inputs: Vec<&[f32]> = args.inputs.iter().map(|x| x.f32()).collect();
        sum(&inputs, args.outputs[0].f32());
    }
}

/// Elements per task: large enough to hide the cost of a task, small enough for L2.
const CHUNK: usize = 1 << 14;

/// Adds `inputs` elementwise into `output`, in order.
fn sum(inputs: &[&[f32]], output: &mut [f32]) {
    let isa = Isa::get();
    output.par_chunks_mut(CHUNK).enumerate().for_each(|(i, y)| {
        let range = i * CHUNK..i * CHUNK + y.len();
        match inputs {
            [only] => y.copy_from_slice(&only[range]),
            [first, second, rest @ ..] => {
                add(isa, y, &first[range.clone()], &second[range.clone()]);
                rest.iter().for_each(|x| add_to(isa, y, &x[range.clone()]));
            }
            [] => unreachable!("a sum of nothing"),
        }
    });
}

wide! {
    /// `y = a + b`.
    fn add(y: &mut [f32], a: &[f32], b: &[f32]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = a + b;
        }
    }
}

wide! {
    /// `y += x`.
    fn add_to(y: &mut [f32], x: &[f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y += x;
        }
    }
}
