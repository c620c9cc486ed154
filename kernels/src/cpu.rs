//! The arguments of an op's CPU reference, and tensors that own their memory.

use bytemuck::{cast_slice, cast_slice_mut};

use crate::{DType, TensorDesc};

/// A tensor that an op reads.
#[derive(Debug, Clone, Copy)]
pub struct TensorRef<'a> {
    /// Shape and role.
    pub desc: &'a TensorDesc,
    bytes: &'a [u8],
}

/// A tensor that an op writes.
#[derive(Debug)]
pub struct TensorMut<'a> {
    /// Shape and role.
    pub desc: &'a TensorDesc,
    bytes: &'a mut [u8],
}

/// All tensors and memory that a run of an op uses.
#[derive(Debug)]
pub struct CpuArgs<'a> {
    /// Read only.
    pub inputs: Vec<TensorRef<'a>>,
    /// Outputs, which the op overwrites completely.
    pub outputs: Vec<TensorMut<'a>>,
    /// State, read and updated in place.
    pub updates: Vec<TensorMut<'a>>,
    /// Scratch of [`crate::Op::cpu_workspace_len`] elements, contents undefined.
    pub workspace: &'a mut [f32],
}

/// Converts a list of exactly `N` tensors to an array, which callers can destructure. Panics if
/// there are more or fewer.
pub(crate) fn exactly<T, const N: usize>(list: &mut [T]) -> &mut [T; N] {
    let len = list.len();
    list.try_into().unwrap_or_else(|_| panic!("{len} tensors, not {N}"))
}

impl<'a> TensorRef<'a> {
    /// A view of `bytes`, which must be aligned to 4 bytes and fit `desc`.
    pub fn new(desc: &'a TensorDesc, bytes: &'a [u8]) -> Self {
        assert_eq!(bytes.len(), desc.cpu_bytes(), "{desc:?}");
        Self { desc, bytes }
    }

    /// Extents.
    pub fn shape(&self) -> &'a [usize] {
        &self.desc.shape
    }

    /// Elements as f32.
    pub fn f32(&self) -> &'a [f32] {
        assert_eq!(self.desc.role.cpu_dtype(), DType::F32, "{:?}", self.desc);
        cast_slice(self.bytes)
    }

    /// Elements as i32.
    pub fn i32(&self) -> &'a [i32] {
        assert_eq!(self.desc.role.cpu_dtype(), DType::I32, "{:?}", self.desc);
        cast_slice(self.bytes)
    }

    /// Elements as bytes.
    pub fn u8(&self) -> &'a [u8] {
        assert_eq!(self.desc.role.cpu_dtype(), DType::U8, "{:?}", self.desc);
        self.bytes
    }
}

impl<'a> TensorMut<'a> {
    /// A view of `bytes`, which must be aligned to 4 bytes and fit `desc`.
    pub fn new(desc: &'a TensorDesc, bytes: &'a mut [u8]) -> Self {
        assert_eq!(bytes.len(), desc.cpu_bytes(), "{desc:?}");
        Self { desc, bytes }
    }

    /// Extents.
    pub fn shape(&self) -> &'a [usize] {
        &self.desc.shape
    }

    /// Elements as f32.
    pub fn f32(&mut self) -> &mut [f32] {
        assert_eq!(self.desc.role.cpu_dtype(), DType::F32, "{:?}", self.desc);
        cast_slice_mut(self.bytes)
    }

    /// Elements as i32.
    pub fn i32(&mut self) -> &mut [i32] {
        assert_eq!(self.desc.role.cpu_dtype(), DType::I32, "{:?}", self.desc);
        cast_slice_mut(self.bytes)
    }

    /// Elements as bytes.
    pub fn u8(&mut self) -> &mut [u8] {
        assert_eq!(self.desc.role.cpu_dtype(), DType::U8, "{:?}", self.desc);
        self.bytes
    }
}

/// Elements of a tensor that owns its memory.
#[derive(Debug, Clone, PartialEq)]
pub enum HostData {
    /// f32 elements.
    F32(Vec<f32>),
    /// i32 elements.
    I32(Vec<i32>),
    /// Bytes.
    U8(Vec<u8>),
}

/// A tensor that owns its memory: for tests, golden files and single ops outside a program.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTensor {
    /// Shape and role.
    pub desc: TensorDesc,
    /// Elements, row-major.
    pub data: HostData,
}

impl HostTensor {
    /// A tensor with these f32 elements.
    pub fn f32(desc: TensorDesc, values: Vec<f32>) -> Self {
        assert_eq!(desc.len(), values.len(), "{desc:?}");
        Self { desc, data: HostData::F32(values) }
    }

    /// A tensor with these i32 elements.
    pub fn i32(desc: TensorDesc, values: Vec<i32>) -> Self {
        assert_eq!(desc.len(), values.len(), "{desc:?}");
        Self { desc, data: HostData::I32(values) }
    }

    /// A tensor with these bytes.
    pub fn u8(desc: TensorDesc, values: Vec<u8>) -> Self {
        assert_eq!(desc.len(), values.len(), "{desc:?}");
        Self { desc, data: HostData::U8(values) }
    }

    /// A tensor of poison values, which mark unwritten elements: NaN, the smallest integer, or
    /// 0xA5.
    pub fn poisoned(desc: TensorDesc) -> Self {
        let len = desc.len();
        let data = match desc.role.cpu_dtype() {
            DType::I32 => HostData::I32(vec![i32::MIN; len]),
            DType::U8 => HostData::U8(vec![0xA5; len]),
            DType::F32 | DType::F16 => HostData::F32(vec![f32::NAN; len]),
        };
        Self { desc, data }
    }

    /// Elements as f32; panics if they have a different type.
    pub fn as_f32(&self) -> &[f32] {
        match &self.data {
            HostData::F32(v) => v,
            other => panic!("{:?} holds {other:?}", self.desc),
        }
    }

    /// Elements as mutable f32; panics if they have a different type.
    pub fn as_f32_mut(&mut self) -> &mut [f32] {
        match &mut self.data {
            HostData::F32(v) => v,
            other => panic!("{:?} holds {other:?}", self.desc),
        }
    }

    /// Elements as i32; panics if they have a different type.
    pub fn as_i32(&self) -> &[i32] {
        match &self.data {
            HostData::I32(v) => v,
            other => panic!("{:?} holds {other:?}", self.desc),
        }
    }

    /// Elements as mutable i32; panics if they have a different type.
    pub fn as_i32_mut(&mut self) -> &mut [i32] {
        match &mut self.data {
            HostData::I32(v) => v,
            other => panic!("{:?} holds {other:?}", self.desc),
        }
    }

    /// Elements as bytes; panics if they have a different type.
    pub fn as_u8(&self) -> &[u8] {
        match &self.data {
            HostData::U8(v) => v,
            other => panic!("{:?} holds {other:?}", self.desc),
        }
    }

    /// Memory of the tensor.
    pub fn bytes(&self) -> &[u8] {
        self.data.bytes()
    }

    /// Memory of the tensor, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.data.bytes_mut()
    }

    /// A view of the tensor for an op that updates it.
    pub fn view_mut(&mut self) -> TensorMut<'_> {
        TensorMut::new(&self.desc, self.data.bytes_mut())
    }

    /// A view of the tensor for an op that reads it.
    pub fn view(&self) -> TensorRef<'_> {
        TensorRef::new(&self.desc, self.data.bytes())
    }
}

impl HostData {
    /// Memory of the elements.
    pub fn bytes(&self) -> &[u8] {
        match self {
            HostData::F32(v) => cast_slice(v),
            HostData::I32(v) => cast_slice(v),
            HostData::U8(v) => v,
        }
    }

    /// Memory of the elements, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            HostData::F32(v) => cast_slice_mut(v),
            HostData::I32(v) => cast_slice_mut(v),
            HostData::U8(v) => v,
        }
    }
}
