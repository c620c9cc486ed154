//! Gradient of a ReLU that is fused into the preceding op.

mod cases;

use device::{BLOCK, Launch, LaunchArgs};
use rayon::prelude::*;

use crate::contract::{Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::isa::{Isa, wide};
use crate::op;

pub use cases::cases;
pub(crate) use cases::one_sided;

op! {
    /// `g = dy` where `y > 0`, else 0; at `y = 0` it is 0, as in PyTorch. Memory-bound.
    pub struct ReluMask = "relu_mask" {}
    in ReluMaskInputs {
        /// Gradient of the output.
        dy: real "[..]",
        /// The output.
        y: real "[..]",
    }
    out {
        /// Gradient of the input.
        g: Gradient "[..]",
    }
}

/// Elements per task.
const CHUNK: usize = 1 << 14;

/// Elements per run.
const RUN: usize = 1 << 10;

/// Elements per thread: one 16-byte load of halves.
const VECTOR: usize = 8;

impl Kernel for ReluMask {
    const FLOPS: Flops = Flops::Output(1);

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let len = args.outputs[0].len();
        let blocks = len.div_ceil(VECTOR * BLOCK as usize);
        vec![Launch::new("relu_mask_f16", [blocks, 1, 1]).tensors(args).len(len)]
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
    /// Computes a chunk of the gradient. Runs of [`RUN`] elements without a positive output are set
    /// to 0 without reading `dy`.
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
    use crate::{Role, TensorDesc};

    #[test]
    fn relu_mask_blocks_zero_and_negative_outputs() {
        let tensor =
            |v: [f32; 4]| HostTensor::f32(TensorDesc::new(Role::Gradient, &[4]), v.to_vec());
        let inputs = [tensor([1.0, 2.0, 3.0, 4.0]), tensor([-1.0, 0.0, -0.0, 1e-30])];
        let g = run(&ReluMask, &inputs).expect("shapes that fit");
        assert_eq!(g[0].as_f32(), [0.0, 0.0, 0.0, 4.0]);
    }
}
