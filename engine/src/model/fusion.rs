//! The fusions of a program, as the config has them.

use configs::{Fused, Fusion};
use device::Target;
use graph::{Program, fuse};

/// Applies the fusions to a program of `target` without dead nodes. The CPU, the oracle, has none.
pub(super) fn apply(program: &mut Program, target: &Target, fusion: &Fusion) {
    if *target == Target::Cpu {
        return;
    }
    if fusion.has(Fused::GradMaskAdd) {
        fuse::grad_mask_add(program);
    }
}
