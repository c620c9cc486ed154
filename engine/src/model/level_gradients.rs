//! The gradient of a pyramid map is a sum over the RoIs of all heads and the sampled anchors. One
//! node computes the gradients of all maps, so each is written once, without separate additions.

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
