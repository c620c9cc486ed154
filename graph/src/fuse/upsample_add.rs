//! Upsampled maps are added by the op that computes the finer map; likewise for gradients.

use kernels::Fusion;
use kernels::ops::upsample_add::UpsampleAdd;

use super::grad_mask_add::add;
use super::{is, rename, sweep};
use crate::Program;

/// Fuses each [`UpsampleAdd`] into the op that computes its finer map; then fuses sums of gradients
/// into ops that have an epilogue but are not GEMMs: gathers, which are memory-bound like a sum.
pub fn upsample_add(program: &mut Program) {
    sweep(program, |program, uses, node| {
        if !is::<UpsampleAdd>(program, node) {
            return None;
        }
        let [lateral, top] = [0, 1].map(|i| program.nodes[node].inputs[i]);
        let writer = uses.writer(lateral)?;
        let early = uses.writer(top) < Some(writer);
        if !early || !uses.is_only_for(lateral, node) {
            return None;
        }
        program.nodes[writer].op = program.nodes[writer].op.fused(Fusion::UpsampleAdd)?;
        program.nodes[writer].inputs.push(top);
        rename(program, uses, lateral, node);
        Some(node)
    });
    add(program, false);
}
