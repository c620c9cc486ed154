//! Square neighbourhoods of the feature cells of chosen anchors: the input of the sparse RPN head.
//!
//! A 3x3 convolution (padding 1) at the cells of sampled anchors only is a product of 3x3 patches
//! with its weights `[K, 3, 3, C]`, so the head's backward pass need not be dense; two of them need
//! 5x5 patches, and `clear_outside` between them.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Sink, Source, TensorDesc, op};

pub use cases::cases;
pub(crate) use cpu::{cell, neighbours};
pub(crate) use cuda::gradients_arg;
pub use grad::GatherPatchesGrad;

op! {
    /// Gathers patches at anchors, 3x3 or 5x5, as the kernels of the gradient take them. A copy:
    /// exact. Bound by memory.
    #[derive(Eq)]
    pub struct GatherPatches = "gather_patches" {
        /// A, anchors of a feature cell.
        pub anchors_per_cell: usize [|cells| *cells > 0, "at least 1"],
        /// Cells on each side of the anchor's.
        pub reach: usize [|reach| (1..=2).contains(reach), "1 or 2"],
    }
    lists {
        /// Map of a level.
        features: real "[N, h, w, C]",
    }
    in GatherPatchesInputs {
        /// Anchors of an image in the order level, y, x, anchor of the cell; -1 = none.
        idx: i32 "[N, B]",
    }
    out {
        /// 0 beyond the map and in rows without an anchor; S = 2 `reach` + 1. The role is
        /// that of the maps.
        patches: Activation "[N*B, S, S, C]",
    }
}

impl Kernel for GatherPatches {
    fn sizes(&self, dims: &mut Dims) {
        dims.bind("S", 2 * self.reach + 1);
    }

    fn adjust(&self, inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        outputs[0].role = inputs[0].role;
    }

    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        let levels = inputs.len() - 1;
        let level_sizes = inputs[..levels].iter().map(|f| [f.dim(1), f.dim(2)]).collect();
        let Self { anchors_per_cell, reach } = *self;
        let grad = GatherPatchesGrad { anchors_per_cell, reach, level_sizes };
        let writes: Vec<_> = (0..levels).map(Sink::GradInput).collect();
        BackwardRule::default().step(grad, &[Source::GradOutput(0), Source::Input(levels)], &writes)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::forward(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let GatherPatchesInputs { features, idx } = GatherPatchesInputs::of(&args.inputs);
        cpu::gather([self.anchors_per_cell, self.reach], &features, idx, args.outputs[0].f32());
    }
}
