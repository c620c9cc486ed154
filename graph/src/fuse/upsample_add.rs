//! Enlarged maps are added where the finer map is made, and so are gradients of the coarser map.

use kernels::Fusion;
use kernels::ops::upsample_add::UpsampleAdd;

use super::grad_mask_add::add;
use super::{Uses, is, remove, rename};
use crate::Program;

/// Lets an op add the coarser map in place of an [`UpsampleAdd`] behind it; then puts sums
/// of gradients into those ops with a finish that make no product: gathers, which pass over memory
/// as a sum does.
pub fn upsample_add(program: &mut Program) {
    let uses = Uses::of(program);
    let mut done = vec![];
    for node in 0..program.nodes.len() {
        if !is::<UpsampleAdd>(program, node) {
            continue;
        }
        let [lateral, top] = [0, 1].map(|i| program.nodes[node].inputs[i]);
        let Some(writer) = uses.writer(lateral) else { continue };
        let early = uses.writer(top) < Some(writer);
        if !early || !uses.is_only_for(lateral, node) {
            continue;
        }
        if let Some(op) = program.nodes[writer].op.fused(Fusion::UpsampleAdd) {
            program.nodes[writer].op = op;
            program.nodes[writer].inputs.push(top);
            rename(program, &uses, lateral, node);
            done.push(node);
        }
    }
    remove(program, &done);
    add(program, false);
}
