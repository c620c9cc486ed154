//! Gradient of a ReLU that was fused into the op before it.
//!
//! Tensors: `dy`, `y` (f32, one shape) -> `g` (overwritten): `dy` where `y > 0`, else 0. At `y = 0`
//! the gradient is 0, as in PyTorch. Memory-bound: 12 bytes per element.

mod cases;
mod cuda;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::check;
use crate::cpu::CpuArgs;
use crate::isa::{Isa, wide};
use crate::{Cost, DType, Op, OpError, Role, TensorDesc};

pub use cases::cases;
pub(crate) use cases::one_sided;

/// `g = dy where y > 0`.
#[derive(Debug, Clone, PartialEq)]
pub struct ReluMask;

const NAME: &str = "relu_mask";

/// Elements a task works on.
const CHUNK: usize = 1 << 14;

/// Elements of a run.
const RUN: usize = 1 << 10;

impl Op for ReluMask {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, 2)?;
        check::arity(NAME, "updates", updates, 0)?;
        check::dtype(NAME, "dy", &inputs[0], DType::F32)?;
        check::dtype(NAME, "y", &inputs[1], DType::F32)?;
        check::shape(NAME, "y", &inputs[1], &inputs[0].shape)?;
        Ok(vec![TensorDesc::new(Role::Gradient, &inputs[0].shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, outputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (dy, y) = (args.inputs[0].f32(), args.inputs[1].f32());
        let isa = Isa::get();
        let g = args.outputs[0].f32().par_chunks_mut(CHUNK);
        g.zip(dy.par_chunks(CHUNK)).zip(y.par_chunks(CHUNK)).for_each(|((g, dy), y)| {
            mask(isa, g, dy, y);
        });
    }
}

wide! {
    /// A chunk of the gradient. Runs without a positive output, as the rows past a count are, are
    /// cleared without a look at `dy`.
    fn mask(g: &mut [f32], dy: &[f32], y: &[f32]) {
        for ((g, dy), y) in g.chunks_mut(RUN).zip(dy.chunks(RUN)).zip(y.chunks(RUN)) {
            if y.iter().fold(false, |any, y| any | (*y > 0.0)) {
                for ((g, &dy), y) in g.iter_mut().zip(dy).zip(y) {
                    *g = if *y > 0.0 { dy } else { 0.0 };
                }
            } else {
                g.fill(0.0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::HostTensor;
    use crate::on_cpu::run;

    #[test]
    fn zero_and_negative_outputs_pass_nothing() {
        let tensor =
            |v: [f32; 4]| HostTensor::f32(TensorDesc::new(Role::Gradient, &[4]), v.to_vec());
        let inputs = [tensor([1.0, 2.0, 3.0, 4.0]), tensor([-1.0, 0.0, -0.0, 1e-30])];
        let g = run(&ReluMask, &inputs).expect("shapes that fit");
        assert_eq!(g[0].as_f32(), [0.0, 0.0, 0.0, 4.0]);
    }
}
