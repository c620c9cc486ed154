//! Descriptions of tensors: shape and role. The device and the role determine the element type; on
//! a GPU, so does the precision of the plan.

use std::fmt;

pub use choices::{CpuPrecision, Precision};

/// Element type of a tensor in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 16-bit float (CUDA only).
    F16,
    /// 32-bit signed integer.
    I32,
    /// Byte.
    U8,
}

impl DType {
    /// Bytes per element.
    pub fn size_bytes(self) -> usize {
        match self {
            DType::F32 | DType::I32 => 4,
            DType::F16 => 2,
            DType::U8 => 1,
        }
    }
}

/// The precisions whose kernels can be used in this precision, in order of preference: only GEMMs
/// have different kernels for tf32 and fp32.
pub fn served_by(precision: Precision) -> &'static [Precision] {
    match precision {
        Precision::Fp16 => &[],
        Precision::Tf32 => &[Precision::Tf32, Precision::Fp32],
        Precision::Fp32 => &[Precision::Fp32],
    }
}

/// The name of a kernel in a precision that its source is compiled for, given its name in fp16 or
/// its name without an element type: `relu_mask_f16` becomes `relu_mask_fp32`, `scale_weights`
/// becomes `scale_weights_fp32`.
pub fn kernel_name(precision: Precision, fp16: &str) -> String {
    match (precision, fp16.contains(FP16_NAME)) {
        (Precision::Fp16, _) => fp16.to_string(),
        (_, true) => fp16.replacen(FP16_NAME, precision.name(), 1),
        (_, false) => format!("{fp16}_{}", precision.name()),
    }
}

const FP16_NAME: &str = "f16";

/// The purpose of a tensor. Decides its element type on each device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Source pixels as bytes (u8 everywhere).
    Pixels,
    /// Feature maps, logits: on a GPU in the type of the [`Precision`].
    Activation,
    /// Gradients of activations: on a GPU in the type of the [`Precision`].
    Gradient,
    /// Weights as the kernels read them: on a GPU in the type of the [`Precision`].
    Weight,
    /// Weight gradients, summed over images (fp32 before the cast for the all-reduce).
    WeightGradient,
    /// Master weights, momentum, per-channel scales and biases: fp32 everywhere.
    Master,
    /// Boxes, anchors, box deltas as targets: fp32 everywhere.
    Box,
    /// Scores and probabilities: fp32 everywhere.
    Score,
    /// Losses and their normalizers: fp32 everywhere.
    Loss,
    /// Scalars that control the step (learning rate, loss scale): fp32 everywhere.
    Scalar,
    /// Indices, labels, counts, sizes: i32 everywhere.
    Index,
    /// Polygon coordinates and soft mask targets: fp32 everywhere.
    Mask,
    /// Bitmaps, one byte per pixel (u8 everywhere).
    Bitmap,
}

impl Role {
    /// Element type on the CPU device.
    pub fn cpu_dtype(self) -> DType {
        match self {
            Role::Pixels | Role::Bitmap => DType::U8,
            Role::Index => DType::I32,
            _ => DType::F32,
        }
    }

    /// Element type on a GPU. In fp16 precision, feature maps, their gradients and the weights that
    /// kernels read are fp16; all other tensors are as on the CPU.
    pub fn gpu_dtype(self, precision: Precision) -> DType {
        match precision {
            Precision::Fp16 if self.follows_precision() => DType::F16,
            _ => self.cpu_dtype(),
        }
    }

    /// True if the precision decides the element type on a GPU; otherwise it is the same as on the
    /// CPU.
    pub fn follows_precision(self) -> bool {
        matches!(self, Role::Activation | Role::Gradient | Role::Weight)
    }
}

/// Shape and role of a tensor.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct TensorDesc {
    /// Extents, outermost first; activations are NHWC. An empty shape is a scalar.
    pub shape: Vec<usize>,
    /// The tensor's purpose.
    pub role: Role,
}

impl TensorDesc {
    /// A tensor of `shape` for `role`.
    pub fn new(role: Role, shape: &[usize]) -> Self {
        Self { shape: shape.to_vec(), role }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// True if some extent is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the CPU device.
    pub fn cpu_bytes(&self) -> usize {
        self.len() * self.role.cpu_dtype().size_bytes()
    }

    /// Bytes on a GPU.
    pub fn gpu_bytes(&self, precision: Precision) -> usize {
        self.len() * self.role.gpu_dtype(precision).size_bytes()
    }

    /// Extent of dimension `dim`; negative counts from the end.
    pub fn dim(&self, dim: isize) -> usize {
        let idx = if dim < 0 { self.shape.len() as isize + dim } else { dim };
        self.shape[idx as usize]
    }
}

impl fmt::Debug for TensorDesc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}{:?}", self.role, self.shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn precision_changes_dtype_of_three_roles_only() {
        let dtypes = |role: Role| Precision::ALL.map(|precision| role.gpu_dtype(precision));
        for role in [Role::Activation, Role::Gradient, Role::Weight] {
            assert_eq!(dtypes(role), [DType::F16, DType::F32, DType::F32]);
        }
        assert_eq!(dtypes(Role::WeightGradient), [DType::F32; 3]);
        assert_eq!(dtypes(Role::Index), [DType::I32; 3]);
    }

    #[test]
    fn kernel_name_depends_on_precision() {
        let names = |fp16: &str| Precision::ALL.map(|precision| kernel_name(precision, fp16));
        assert_eq!(
            names("max_pool_f16x8"),
            ["max_pool_f16x8", "max_pool_tf32x8", "max_pool_fp32x8"]
        );
        assert_eq!(names("sgd"), ["sgd", "sgd_tf32", "sgd_fp32"]);
    }
}
