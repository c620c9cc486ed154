//! The gradients of the pyramid's maps, from the RoIs of all heads and from sampled anchors,
//! computed by one node: each map is written once, without a separate sum.

use std::sync::Arc;

use graph::Program;
use graph::fuse::join_gradients;
use kernels::OpRef;
use kernels::ops::level_gradients::LevelGradients;

/// Joins the nodes.
pub(super) fn join_level_gradients(program: &mut Program) {
    join_gradients(program, LevelGradients::takes, |ops| {
        let (op, order) = LevelGradients::of(ops)?;
        Some((Arc::new(op) as OpRef, order))
    });
}
