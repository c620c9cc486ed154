//! Sum of tensors of one shape: adds the gradients of a tensor that has several readers.

mod cases;
mod cpu;
mod cuda;

use device::{Launch, LaunchArgs};

use crate::contract::Kernel;
use crate::{BackwardRule, Cost, Source, TensorDesc, op};

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
        /// The sum, of the role of `x_0`.
        y: Activation "[..]",
    }
}

impl Kernel for Sum {
    fn adjust(&self, inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        outputs[0].role = inputs[0].role;
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let flops = outputs[0].len() * (inputs.len() - 1);
        Cost::streaming(inputs, outputs, flops as u64)
    }

    fn backward(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        (0..inputs.len())
            .fold(BackwardRule::default(), |rule, i| rule.alias(Source::GradOutput(0), i))
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        cuda::workspace_bytes(inputs)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
    }

    fn run_cpu(&self, args: &mut crate::cpu::CpuArgs<'_>) {
        let inputs: Vec<&[f32]> = args.inputs.iter().map(|x| x.f32()).collect();
        cpu::sum(&inputs, args.outputs[0].f32());
    }
}
