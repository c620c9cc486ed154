//! Descriptions of tensors: shape and role. The device maps the role to an element type.

use std::fmt;

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

/// The purpose of a tensor. Decides its element type on each device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Source pixels as bytes (u8 everywhere).
    Pixels,
    /// Feature maps, logits: fp16 on CUDA.
    Activation,
    /// Gradients of activations: fp16 on CUDA.
    Gradient,
    /// Weights as the kernels read them: fp16 on CUDA.
    Weight,
    /// Weight gradients, reduced over images (fp32 before the cast for the all-reduce).
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

    /// Element type on CUDA: fp16 for feature maps, their gradients and the weights that kernels
    /// read; otherwise as on the CPU.
    pub fn cuda_dtype(self) -> DType {
        match self {
            Role::Activation | Role::Gradient | Role::Weight => DType::F16,
            other => other.cpu_dtype(),
        }
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

    /// Bytes on CUDA.
    pub fn cuda_bytes(&self) -> usize {
        self.len() * self.role.cuda_dtype().size_bytes()
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
