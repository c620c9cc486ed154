//! Anchors of every level of a feature pyramid.
//!
//! Matches torchvision's `AnchorGenerator.grid_anchors` and maskrcnn-benchmark's; the anchors of a
//! cell come from [`crate::boxes::cell_anchors`], `cell_anchors_detectron` or `cell_anchors_exact`.
//!
//! Edges: no level, or levels without cells, give an empty tensor.

mod cases;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::boxes::{AnchorLevel, as_boxes_mut, grid_anchors};
use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::op;

pub use cases::cases;

op! {
    /// Writes the anchors of `levels`.
    pub struct Anchors = "anchors" {
        /// Finest level first.
        pub levels: Vec<AnchorLevel>,
    }
    out {
        /// In the order (level, y, x, cell).
        anchors: Box "[A, 4]",
    }
}

impl Kernel for Anchors {
    const FLOPS: Flops = Flops::Output(1);

    fn sizes(&self, dims: &mut Dims) {
        dims.bind("A", self.levels.iter().map(AnchorLevel::len).sum());
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
