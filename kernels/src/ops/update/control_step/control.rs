//! The decisions of `control_step`, as passed from kernel to kernel and to the host.

use bytemuck::{Pod, Zeroable};

use crate::{Role, TensorDesc};

/// The decisions of one step. In memory this is a tensor of five f32, which CUDA reads as `Control`
/// of `kernels/src/cuda/control.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Pod, Zeroable)]
pub struct Control {
    /// Learning rate of this step.
    pub lr: f32,
    /// Scale of gradients: clip coefficient / (loss scale * number of micro-steps).
    pub grad_factor: f32,
    /// 1 to apply the update, 0 to skip it.
    pub applied: f32,
    /// Loss scale that the gradients were computed with.
    pub loss_scale: f32,
    /// Amount that a shared warm-up subtracts from the rate of every parameter (`lr` is already
    /// reduced by it), or 0.
    pub warmup_cut: f32,
}

impl Control {
    /// f32 elements of the tensor.
    pub const LEN: usize = size_of::<Self>() / size_of::<f32>();

    /// The tensor: `[5]`, `Role::Scalar`.
    pub fn desc() -> TensorDesc {
        TensorDesc::new(Role::Scalar, &[Self::LEN])
    }

    /// Reads the elements of the tensor. Panics if there are not [`Self::LEN`] of them.
    pub fn read(values: &[f32]) -> Self {
        let [control] = bytemuck::cast_slice(values) else {
            panic!("control_step: got {} values, but a control has {}", values.len(), Self::LEN)
        };
        *control
    }

    /// The elements of the tensor.
    pub fn values(&self) -> &[f32] {
        bytemuck::cast_slice(std::slice::from_ref(self))
    }

    /// Learning rate of parameters whose full rate is `factor` times the base rate.
    pub fn rate(&self, factor: f32) -> f32 {
        self.lr * factor + self.warmup_cut * (factor - 1.0)
    }

    /// True if the update is applied.
    pub fn is_applied(&self) -> bool {
        self.applied != 0.0
    }
}
