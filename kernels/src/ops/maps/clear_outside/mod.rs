//! Patches of a map with padding: 0 at the cells beyond it, as the padding of a convolution has.
//!
//! Between two 3x3 convolutions of patches of `gather_patches`: the first also makes values at
//! cells beyond the map, where a convolution of the whole map (padding 1) reads 0.
//! Tensors: `x [N*B, S, S, C]` f32 (S odd), `idx [N, B]` i32 (anchors as in `gather_patches`) (in)
//! -> `y [N*B, S, S, C]` (overwritten): x at the cells on the map of the row's anchor, else 0, as
//! in rows without an anchor. Its gradient is the op itself. A copy: exact. Bound by memory.

mod cases;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::check;
use crate::cpu::CpuArgs;
use crate::ops::gather_patches::{cell, neighbours};
use crate::{BackwardRule, Cost, Op, OpError, Role, Sink, Source, TensorDesc};

pub use cases::cases;

/// Clears the cells of patches beyond their maps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClearOutside {
    /// A, anchors of a feature cell.
    pub anchors_per_cell: usize,
    /// Height and width of each level's map.
    pub level_sizes: Vec<[usize; 2]>,
}

const NAME: &str = "clear_outside";

impl Op for ClearOutside {
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
        let (x, idx) = (&inputs[0], &inputs[1]);
        check::floats_ranked(NAME, "x", x, "[N*B, S, S, C]")?;
        check::integers_ranked(NAME, "idx", idx, "[N, B]")?;
        let side = x.dim(1);
        check::parameter(NAME, "S", side % 2 == 1, "odd", side)?;
        check::shape(NAME, "x", x, &[idx.len(), side, side, x.dim(3)])?;
        let role = if x.role == Role::Gradient { Role::Gradient } else { Role::Activation };
        Ok(vec![TensorDesc::new(role, &x.shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 0)
    }

    fn backward(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        let from = [Source::GradOutput(0), Source::Input(1)];
        BackwardRule::default().step(self.clone(), &from, &[Sink::GradInput(0)])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
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
