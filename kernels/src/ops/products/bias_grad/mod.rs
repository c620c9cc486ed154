//! Gradient of a bias: the sum of a gradient over all but its last dimension.
//!
//! Tensors: `g [M, .., K]`, with `counted` also `count [1] i32` -> `db [K]`, overwritten. With
//! `counted` only the first `count` of the M rows contribute. Bound by memory. Sums of 64 rows in
//! f32, those in f64, in order: deterministic.

mod cases;
mod cpu;
mod cuda;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::counted::filled;
use crate::cpu::CpuArgs;
use crate::{Cost, DType, Op, OpError, Role, TensorDesc};

pub use cases::cases;
pub(crate) use cpu::{sum_of_rows, sum_rows, workspace_len};

/// `db[k] = sum of g[.., k]`.
#[derive(Debug, Clone, PartialEq)]
pub struct BiasGrad {
    /// The last input is `count [1] i32`.
    pub counted: bool,
}

const NAME: &str = "bias_grad";

impl Op for BiasGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, 1 + usize::from(self.counted))?;
        check::arity(NAME, "updates", updates, 0)?;
        let g = &inputs[0];
        check::dtype(NAME, "g", g, DType::F32)?;
        if g.shape.len() < 2 {
            return Err(check::shape_error(NAME, "g", g, "[M, .., K]".into()));
        }
        if self.counted {
            check::count(NAME, &inputs[1])?;
        }
        Ok(vec![TensorDesc::new(Role::WeightGradient, &[g.dim(-1)])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, inputs[0].len() as u64)
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        let width = inputs[0].dim(-1);
        cpu::workspace_len(inputs[0].len() / width.max(1), width)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(&inputs[0])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let g = &args.inputs[0];
        let count = if self.counted { args.inputs.last() } else { None };
        let rows = filled(count, g.shape()[0]);
        let len = g.shape()[1..].iter().product::<usize>() * rows;
        cpu::sum_rows(&g.f32()[..len], args.outputs[0].f32(), args.workspace);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::HostTensor;
    use crate::on_cpu::run;

    /// 0.1 is no f32: a running f32 sum over a million of them is off by about one in a thousand.
    #[test]
    fn a_million_rows_keep_their_digits() {
        let desc = TensorDesc::new(Role::Gradient, &[1_000_000, 1]);
        let g = HostTensor::f32(desc, vec![0.1; 1_000_000]);
        let db = run(&BiasGrad { counted: false }, &[g]).expect("shapes that fit")[0].as_f32()[0];
        assert!((db - 100_000.0).abs() < 0.2, "{db}");
    }

    #[test]
    fn rows_past_the_count_do_not_contribute() {
        let g = HostTensor::f32(
            TensorDesc::new(Role::Gradient, &[3, 1, 2]),
            vec![1.0, 2.0, 3.0, 4.0, f32::NAN, f32::NAN],
        );
        let count = HostTensor::i32(TensorDesc::new(Role::Index, &[1]), vec![2]);
        let db = run(&BiasGrad { counted: true }, &[g, count]).expect("shapes that fit");
        assert_eq!(db[0].as_f32(), [4.0, 6.0]);
    }
}
