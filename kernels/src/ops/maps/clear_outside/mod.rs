//! Zero padding for patches of a map: sets patch cells outside the map to 0, as in a padded
//! convolution.
//!
//! Used between two 3x3 convolutions of patches from `gather_patches`: the first convolution also
//! writes values at cells outside the map, where the second must read 0 to equal a convolution of
//! the whole map (padding 1).

mod cases;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::ops::gather_patches::{cell, neighbours};
use crate::ops::roi_align::pyramid::Pyramid;
use crate::{BackwardRule, OpError, Role, Sink, Source, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Sets the cells of patches that are outside their map to 0. Its gradient is the op itself. A
    /// copy: exact. Memory-bound.
    #[derive(Eq)]
    pub struct ClearOutside = "clear_outside" {
        /// A, anchors per feature cell.
        pub anchors_per_cell: usize [|cells| *cells > 0, "at least 1"],
        /// Height and width of each level's map.
        pub level_sizes: Vec<[usize; 2]>,
    }
    in ClearOutsideInputs {
        /// Patches; S is odd.
        x: real "[N*B, S, S, C]",
        /// Anchors, as in `gather_patches`.
        idx: i32 "[N, B]",
    }
    out {
        /// x at the cells inside the map of the row's anchor; 0 at other cells, and in rows without
        /// an anchor.
        y: Activation "[N*B, S, S, C]",
    }
}

impl Kernel for ClearOutside {
    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let side = dims.get("S");
        check::parameter(dims.op(), "S", side % 2 == 1, "odd", side)
    }

    fn adjust(&self, inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        if inputs[0].role == Role::Gradient {
            outputs[0].role = Role::Gradient;
        }
    }

    fn backward(&self, _inputs: &[TensorDesc]) -> BackwardRule {
        let from = [Source::GradOutput(0), Source::Input(1)];
        BackwardRule::default().step(self.clone(), &from, &[Sink::GradInput(0)])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (x, idx) = (args.inputs[0], args.inputs[1]);
        let pyramid = Pyramid {
            maps: vec![],
            sizes: &self.level_sizes,
            scales: &[],
            images: idx.dim(0),
            channels: x.dim(3),
        };
        let wide = pyramid.vector() == 8;
        let kernel = if wide { "clear_outside_f16x8" } else { "clear_outside_f16" };
        vec![
            Launch::new(kernel, [idx.len(), 1, 1])
                .tensors(args)
                .arg(pyramid.arg())
                .int(self.anchors_per_cell)
                .int(x.dim(1)),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (side, channels) = (args.inputs[0].shape()[1], args.inputs[0].shape()[3]);
        let (x, idx) = (args.inputs[0].f32(), args.inputs[1].i32());
        let len = side * side * channels;
        if x.is_empty() {
            return;
        }
        let patches = args.outputs[0].f32().par_chunks_mut(len).zip(x.par_chunks(len));
        patches.zip(idx).for_each(|((y, x), &anchor)| {
            y.fill(0.0);
            let Some(c) = cell(anchor, self.anchors_per_cell, &self.level_sizes) else { return };
            for (place, _, _) in neighbours(c, side / 2, self.level_sizes[c.level]) {
                let values = place * channels..(place + 1) * channels;
                y[values.clone()].copy_from_slice(&x[values]);
            }
        });
    }
}
