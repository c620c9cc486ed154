//! Gradient of `gather_patches` by the feature maps.

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::{Role, TensorDesc, op};

use super::cpu;

op! {
    /// Adds the gradients of patches to the maps: an output `[N, h, w, C]` for each level. Patches
    /// that overlap are added in the order of their rows, so the result is deterministic.
    #[derive(Eq)]
    pub struct GatherPatchesGrad = "gather_patches_grad" {
        /// A, anchors of a feature cell.
        pub anchors_per_cell: usize [|cells| *cells > 0, "at least 1"],
        /// Cells on each side of the anchor's.
        pub reach: usize [|reach| (1..=2).contains(reach), "1 or 2"],
        /// Height and width of each level's map.
        pub level_sizes: Vec<[usize; 2]>,
    }
    in GatherPatchesGradInputs {
        /// Gradient of the patches.
        grad_output: real "[N*B, S, S, C]",
        /// As in the op.
        idx: i32 "[N, B]",
    }
    out {}
}

impl Kernel for GatherPatchesGrad {
    const FLOPS: Flops = Flops::Input(1);

    fn sizes(&self, dims: &mut Dims) {
        dims.bind("S", 2 * self.reach + 1);
    }

    fn adjust(&self, inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        let (images, channels) = (inputs[1].dim(0), inputs[0].dim(3));
        outputs.extend(self.level_sizes.iter().map(|&[height, width]| {
            TensorDesc::new(Role::Gradient, &[images, height, width, channels])
        }));
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
