//! Gradient of a bias: the sum of a gradient over all but its last dimension.

mod cases;
mod cpu;
mod cuda;

use device::{Launch, LaunchArgs};

use crate::contract::{Flops, Kernel};
use crate::counted::filled;
use crate::cpu::CpuArgs;
use crate::{TensorDesc, op};

pub use cases::cases;
pub(crate) use cpu::{sum_of_rows, sum_rows, workspace_len};

op! {
    /// `db[k] = sum of g[.., k]`. Bound by memory. Sums of 64 rows in f32, those in f64, in order:
    /// deterministic.
    pub struct BiasGrad = "bias_grad" {
        /// The last input is `count [1] i32`.
        pub counted: bool,
    }
    in BiasGradInputs {
        /// A gradient.
        g: float "[M, .., K]",
    }
    optional {
        /// Of the M rows, those that contribute.
        count: i32 "[1]" if |op| op.counted,
    }
    out {
        /// Its sum over all but the last dimension.
        db: WeightGradient "[K]",
    }
}

impl Kernel for BiasGrad {
    const FLOPS: Flops = Flops::Input(1);

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        let width = inputs[0].dim(-1);
        cpu::workspace_len(inputs[0].len() / width.max(1), width)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        cuda::workspace_bytes(&inputs[0])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let BiasGradInputs { g, count } = BiasGradInputs::of(&args.inputs, [self.counted]);
        let rows = filled(count, g.shape()[0]);
        let len = g.shape()[1..].iter().product::<usize>() * rows;
        cpu::sum_rows(&g.f32()[..len], args.outputs[0].f32(), args.workspace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use crate::case::hand::run;
    use crate::case::{constant, floats};

    /// 0.1 is no f32: a running f32 sum over a million of them is off by about one in a thousand.
    #[test]
    fn a_million_rows_keep_their_digits() {
        let g = floats(Role::Gradient, &[1_000_000, 1], vec![0.1; 1_000_000]);
        let db = run(&BiasGrad { counted: false }, &[g])[0].as_f32()[0];
        assert!((db - 100_000.0).abs() < 0.2, "{db}");
    }

    #[test]
    fn rows_past_the_count_do_not_contribute() {
        let g = floats(Role::Gradient, &[3, 1, 2], [1.0, 2.0, 3.0, 4.0, f32::NAN, f32::NAN]);
        let count = constant(&[1], 2);
        let db = run(&BiasGrad { counted: true }, &[g, count]);
        assert_eq!(db[0].as_f32(), [4.0, 6.0]);
    }
}
