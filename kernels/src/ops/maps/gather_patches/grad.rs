//! Gradient of `gather_patches` by the feature maps.
//!
//! Tensors: `grad_output [N*B, S, S, C]` f32, `idx [N, B]` i32 (in) -> `grad_feature_l
//! [N, h_l, w_l, C]` for each level (overwritten). Patches that overlap are added in the order of
//! their rows, so the result is deterministic.

use device::{Launch, LaunchArgs};

use super::{check_reach, cpu};
use crate::check;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

/// Adds the gradients of patches to the maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatherPatchesGrad {
    /// A, anchors of a feature cell.
    pub anchors_per_cell: usize,
    /// Cells on each side of the anchor's.
    pub reach: usize,
    /// Height and width of each level's map.
    pub level_sizes: Vec<[usize; 2]>,
}

const NAME: &str = "gather_patches_grad";

impl Op for GatherPatchesGrad {
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
        let cells = self.anchors_per_cell;
        check::parameter(NAME, "anchors_per_cell", cells > 0, "at least 1", cells)?;
        check_reach(NAME, self.reach)?;
        check::integers_ranked(NAME, "idx", &inputs[1], "[N, B]")?;
        check::floats_ranked(NAME, "grad_output", &inputs[0], "[N*B, S, S, C]")?;
        let (channels, side) = (inputs[0].shape[3], 2 * self.reach + 1);
        check::shape(NAME, "grad_output", &inputs[0], &[inputs[1].len(), side, side, channels])?;
        let images = inputs[1].shape[0];
        let grad = |&[height, width]: &[usize; 2]| {
            TensorDesc::new(Role::Gradient, &[images, height, width, channels])
        };
        Ok(self.level_sizes.iter().map(grad).collect())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, inputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        super::cuda::backward([self.anchors_per_cell, self.reach], &self.level_sizes, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (grad_output, idx) = (args.inputs[0], args.inputs[1]);
        let op = [self.anchors_per_cell, self.reach];
        cpu::scatter(op, &self.level_sizes, &grad_output, &idx, &mut args.outputs);
    }
}
