//! Applies the fusions that the config selects.

use crate::config::Fused;
use graph::{Program, fuse};

use super::ModelSpec;
use super::level_gradients::join_level_gradients;

/// Applies the fusions to a program without dead nodes. On the CPU, which is the reference, there
/// are no fusions.
pub(super) fn apply(program: &mut Program, spec: &ModelSpec<'_>) {
    if spec.target.is_cpu() {
        return;
    }
    let fusion = &spec.config.fusion;
    if !fusion.off.is_empty() {
        tracing::debug!(off = ?fusion.off, "left out fusions");
    }
    if fusion.has(Fused::LevelGradients) {
        join_level_gradients(program);
    }
    if fusion.has(Fused::GradMaskAdd) {
        fuse::grad_mask_add(program);
    }
    if fusion.has(Fused::ReluSigns) {
        fuse::relu_signs(program);
    }
    if fusion.has(Fused::UpsampleAdd) {
        fuse::upsample_add(program);
    }
    if spec.is_in_fp16() && fusion.has(Fused::Projections) {
        fuse::projections(program);
    }
    if fusion.has(Fused::BiasGradients) {
        fuse::bias_gradients(program);
    }
    if fusion.has(Fused::ScaledWeights) {
        fuse::scaled_weights(program);
    }
}
