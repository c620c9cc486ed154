//! Joins the gradients of the pyramid's maps, from the RoIs of all heads and from the sampled
//! anchors, into one node, which writes each map once and needs no separate sum.

use std::sync::Arc;

use graph::Program;
use graph::fuse::join_gradients;
use kernels::OpRef;
use kernels::ops::level_gradients::LevelGradients;

/// Replaces the gradient nodes of a map by one node.
pub(super) fn join_level_gradients(program: &mut Program) {
    join_gradients(program, LevelGradients::takes, |ops| {
        let (op, order) = LevelGradients::of(ops)?;
        Some((Arc::new(op) as OpRef, order))
    });
}
