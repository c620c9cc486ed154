//! Anchors of every level of a feature pyramid.
//!
//! Matches torchvision's `AnchorGenerator.grid_anchors` and maskrcnn-benchmark's; the anchors of a
//! cell come from [`crate::boxes::cell_anchors`], `cell_anchors_detectron` or `cell_anchors_exact`.
//!
//! Tensors: no inputs -> `anchors` (`[A_total, 4]`, f32, overwritten), order (level, y, x, cell).
//! Edges: no level, or levels without cells, give an empty tensor.

mod cases;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::boxes::{AnchorLevel, as_boxes_mut, grid_anchors};
use crate::contract::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Writes the anchors of `levels`.
#[derive(Debug, Clone, PartialEq)]
pub struct Anchors {
    /// Finest level first.
    pub levels: Vec<AnchorLevel>,
}

const NAME: &str = "anchors";

impl Op for Anchors {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        Dims::new(NAME, inputs, 0, updates)?;
        let total = self.levels.iter().map(AnchorLevel::len).sum();
        Ok(vec![TensorDesc::new(Role::Box, &[total, 4])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, outputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let mut rest = as_boxes_mut(args.outputs[0].f32());
        for level in &self.levels {
            let (own, later) = rest.split_at_mut(level.len());
            grid_anchors(level, own);
            rest = later;
        }
    }
}
