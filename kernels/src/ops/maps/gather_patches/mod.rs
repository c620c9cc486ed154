//! Square neighbourhoods of the feature cells of chosen anchors: the input of the sparse RPN head.
//!
//! A 3x3 convolution (padding 1) at the cells of sampled anchors only is a product of 3x3 patches
//! with its weights `[K, 3, 3, C]`, so the head's backward pass need not be dense; two of them need
//! 5x5 patches, and `clear_outside` between them.
//! Tensors: `feature_l [N, h_l, w_l, C]` f32 for each level, `idx [N, B]` i32 (anchors of an image
//! in the order level, y, x, anchor of the cell; -1 = none) (all in) -> `patches [N*B, S, S, C]`
//! (overwritten; 0 beyond the map and in rows without an anchor), with S = 2 `reach` + 1.
//! A copy: exact. Bound by memory.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check;
use crate::contract::Dims;
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Op, OpError, Sink, Source, TensorDesc};

pub use cases::cases;
pub(crate) use cpu::{cell, neighbours};
pub(crate) use cuda::gradients_arg;
pub use grad::GatherPatchesGrad;

/// Gathers patches at anchors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatherPatches {
    /// A, anchors of a feature cell.
    pub anchors_per_cell: usize,
    /// Cells on each side of the anchor's.
    pub reach: usize,
}

const NAME: &str = "gather_patches";

/// Fails unless the patches are 3x3 or 5x5, as the kernels of the gradient take them.
fn check_reach(op: &'static str, reach: usize) -> Result<(), OpError> {
    check::parameter(op, "reach", (1..=2).contains(&reach), "1 or 2", reach)
}

impl Op for GatherPatches {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::at_least(NAME, "inputs", inputs, 2, "a feature map a level, and idx")?;
        let mut dims = Dims::new(NAME, inputs, inputs.len(), updates)?;
        let cells = self.anchors_per_cell;
        check::parameter(NAME, "anchors_per_cell", cells > 0, "at least 1", cells)?;
        let (features, idx) = (&inputs[..inputs.len() - 1], &inputs[inputs.len() - 1]);
        for feature in features {
            dims.f32("feature_l", feature, "[N, h_l, w_l, C]")?;
        }
        dims.i32("idx", idx, "[N, B]")?;
        check_reach(NAME, self.reach)?;
        let side = 2 * self.reach + 1;
        Ok(vec![TensorDesc::new(inputs[0].role, &[idx.len(), side, side, dims.get("C")])])
    }

    fn backward(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        let levels = inputs.len() - 1;
        let sizes = inputs[..levels].iter().map(|f| [f.shape[1], f.shape[2]]).collect();
        let Self { anchors_per_cell, reach } = *self;
        let grad = GatherPatchesGrad { anchors_per_cell, reach, level_sizes: sizes };
        let writes: Vec<_> = (0..levels).map(Sink::GradInput).collect();
        BackwardRule::default().step(grad, &[Source::GradOutput(0), Source::Input(levels)], &writes)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::forward(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let levels = args.inputs.len() - 1;
        let features: Vec<_> = args.inputs[..levels].to_vec();
        let idx = &args.inputs[levels];
        cpu::gather([self.anchors_per_cell, self.reach], &features, idx, args.outputs[0].f32());
    }
}
