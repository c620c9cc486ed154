//! Multiplies two scalars: the loss scale times the weight of a micro-step.

mod cases;

use device::{Launch, LaunchArgs};

use crate::contract::Kernel;
use crate::cpu::CpuArgs;
use crate::op;

pub use cases::cases;

op! {
    /// `y = a * b`.
    #[derive(Copy, Eq)]
    pub struct ScalarProduct = "scalar_product" {}
    in ScalarProductInputs {
        /// First operand.
        a: f32 "[1]",
        /// Second operand.
        b: f32 "[1]",
    }
    out {
        /// `a * b`.
        y: Scalar "[1]",
    }
}

impl Kernel for ScalarProduct {
    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let [a, b] = [args.inputs[0], args.inputs[1]];
        let launch = Launch::over("scalar_product", 1).reads([a, b]);
        vec![launch.arg(args.outputs[0].write())]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        args.outputs[0].f32()[0] = args.inputs[0].f32()[0] * args.inputs[1].f32()[0];
    }
}
