//! A kernel launch as data, which an op describes without access to a device.
//!
//! An op turns shapes and addresses into a list of [`Launch`]es. Every buffer argument declares how
//! many bytes the kernel may access and whether it reads or writes them, so the emulated driver can
//! check this, and races between streams are found without running anything.

use std::borrow::Borrow;

use bytemuck::Pod;

use crate::{DType, Gpu, Precision, TensorDesc};

/// Address in a device's memory.
pub type DevicePtr = u64;

/// Default threads per block.
pub const BLOCK: u32 = 256;

/// How a kernel uses a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads it.
    Read,
    /// Writes it, and may read what it wrote.
    Write,
    /// Reads the previous contents, and writes.
    Update,
}

impl Access {
    /// True if the kernel may change the buffer's contents.
    pub fn writes(self) -> bool {
        self != Access::Read
    }
}

/// Bytes that a launch accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Touch {
    /// First byte.
    pub ptr: DevicePtr,
    /// Length; 0 accesses nothing.
    pub bytes: usize,
    /// How the kernel uses the bytes.
    pub access: Access,
}

/// One argument of a kernel, with the size of the kernel's parameter.
#[derive(Debug, Clone, PartialEq)]
pub enum Arg {
    /// A pointer.
    Buffer(Touch),
    /// A null pointer: an optional tensor that is absent.
    Null,
    /// `int`.
    I32(i32),
    /// `unsigned`.
    U32(u32),
    /// `unsigned long long`.
    U64(u64),
    /// `float`.
    F32(f32),
    /// `double`.
    F64(f64),
    /// A struct by value, with the buffers that its pointers refer to.
    Struct {
        /// Its bytes, padded as in C++.
        bytes: Vec<u8>,
        /// The targets of its pointers.
        touches: Vec<Touch>,
    },
}

impl Arg {
    /// A struct without pointers. `T` must be `repr(C)` and match the kernel's parameter type.
    pub fn of<T: Pod>(value: &T) -> Self {
        Arg::Struct { bytes: bytemuck::bytes_of(value).to_vec(), touches: vec![] }
    }

    /// The argument's bytes, as the kernel's parameter.
    pub fn bytes(&self) -> Vec<u8> {
        match self {
            Arg::Buffer(touch) => touch.ptr.to_ne_bytes().to_vec(),
            Arg::Null => 0u64.to_ne_bytes().to_vec(),
            Arg::I32(v) => v.to_ne_bytes().to_vec(),
            Arg::U32(v) => v.to_ne_bytes().to_vec(),
            Arg::U64(v) => v.to_ne_bytes().to_vec(),
            Arg::F32(v) => v.to_ne_bytes().to_vec(),
            Arg::F64(v) => v.to_ne_bytes().to_vec(),
            Arg::Struct { bytes, .. } => bytes.clone(),
        }
    }

    /// The bytes that the argument lets the kernel access.
    pub fn touches(&self) -> &[Touch] {
        match self {
            Arg::Buffer(touch) => std::slice::from_ref(touch),
            Arg::Struct { touches, .. } => touches,
            _ => &[],
        }
    }
}

macro_rules! from_number {
    ($($t:ty => $variant:ident),*) => {
        $(impl From<$t> for Arg {
            fn from(v: $t) -> Self {
                Arg::$variant(v)
            }
        })*
    };
}
from_number!(i32 => I32, u32 => U32, u64 => U64, f32 => F32, f64 => F64);

impl From<bool> for Arg {
    /// `int`, 0 or 1.
    fn from(v: bool) -> Self {
        Arg::I32(v.into())
    }
}

/// A struct argument under construction, field by field, each aligned to its size as in C++.
#[derive(Debug, Default)]
pub struct StructArg {
    bytes: Vec<u8>,
    touches: Vec<Touch>,
    align: usize,
}

impl StructArg {
    /// An empty struct.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a field, aligned as in C++: to its size, or for an array to the size of its elements.
    pub fn field<T: Pod>(mut self, value: T) -> Self {
        let align = align_of::<T>();
        self.bytes.resize(self.bytes.len().next_multiple_of(align), 0);
        self.bytes.extend_from_slice(bytemuck::bytes_of(&value));
        self.align = self.align.max(align);
        self
    }

    /// Adds lengths or extents as `int`s. Panics if one does not fit.
    pub fn ints(self, values: impl IntoIterator<Item = usize>) -> Self {
        values.into_iter().fold(self, |structure, value| match i32::try_from(value) {
            Ok(value) => structure.field(value),
            Err(_) => panic!("{value} does not fit an int"),
        })
    }

    /// Adds an array of `capacity` pointers, null past the end of `args`.
    pub fn pointers(mut self, args: impl IntoIterator<Item = Arg>, capacity: usize) -> Self {
        let mut args = args.into_iter();
        for _ in 0..capacity {
            let ptr = match args.next() {
                Some(Arg::Buffer(touch)) => {
                    self.touches.push(touch);
                    touch.ptr
                }
                Some(Arg::Null) | None => 0,
                Some(other) => panic!("{other:?} is no pointer"),
            };
            self = self.field(ptr);
        }
        assert!(args.next().is_none(), "more pointers than {capacity} places");
        self
    }

    /// The argument, padded to its alignment.
    pub fn arg(mut self) -> Arg {
        self.bytes.resize(self.bytes.len().next_multiple_of(self.align.max(1)), 0);
        Arg::Struct { bytes: self.bytes, touches: self.touches }
    }
}

/// One kernel launch.
#[derive(Debug, Clone, PartialEq)]
pub struct Launch {
    /// Name of the `extern "C"` kernel.
    pub kernel: &'static str,
    /// Blocks: x, y, z.
    pub grid: [u32; 3],
    /// Threads per block: x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block.
    pub shared_bytes: u32,
    /// Arguments in the order of the kernel's parameters.
    pub args: Vec<Arg>,
}

impl Launch {
    /// A launch of `grid` blocks of [`BLOCK`] threads.
    pub fn new(kernel: &'static str, grid: [usize; 3]) -> Self {
        let grid = grid.map(|extent| match u32::try_from(extent) {
            Ok(extent) => extent,
            Err(_) => panic!("{kernel}: a grid of {extent} blocks"),
        });
        Self { kernel, grid, block: [BLOCK, 1, 1], shared_bytes: 0, args: vec![] }
    }

    /// A launch with one thread per item for `count` items, in blocks of [`BLOCK`].
    pub fn over(kernel: &'static str, count: usize) -> Self {
        Self::new(kernel, [count.div_ceil(BLOCK as usize), 1, 1])
    }

    /// Sets the number of threads per block.
    pub fn block(mut self, threads: u32) -> Self {
        self.block = [threads, 1, 1];
        self
    }

    /// Sets the dynamic shared memory per block.
    pub fn shared(mut self, bytes: usize) -> Self {
        self.shared_bytes = bytes as u32;
        self
    }

    /// Adds an argument.
    pub fn arg(mut self, arg: impl Into<Arg>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Adds arguments.
    pub fn args(mut self, args: impl IntoIterator<Item = Arg>) -> Self {
        self.args.extend(args);
        self
    }

    /// Adds buffers that the kernel reads.
    pub fn reads<'a, const N: usize>(self, buffers: [impl Borrow<Buffer<'a>>; N]) -> Self {
        self.args(buffers.iter().map(|buffer| buffer.borrow().read()))
    }

    /// Adds all tensors: inputs, which the kernel reads, then outputs, which it writes.
    pub fn tensors(self, args: &LaunchArgs<'_>) -> Self {
        self.args(args.inputs.iter().map(Buffer::read)).args(args.outputs.iter().map(Buffer::write))
    }

    /// Adds a length or extent as `int`. Panics if it does not fit.
    pub fn int(self, value: usize) -> Self {
        match i32::try_from(value) {
            Ok(value) => self.arg(value),
            Err(_) => panic!("{}: {value} does not fit an int", self.kernel),
        }
    }

    /// Adds a length as `unsigned long long`.
    pub fn len(self, value: usize) -> Self {
        self.arg(value as u64)
    }

    /// All bytes that the launch accesses.
    pub fn touches(&self) -> impl Iterator<Item = Touch> + '_ {
        self.args.iter().flat_map(|arg| arg.touches().iter().copied())
    }

    /// True if the grid is empty, so that the launch does nothing.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }
}

/// A tensor in device memory.
#[derive(Debug, Clone, Copy)]
pub struct Buffer<'a> {
    /// Shape and role.
    pub desc: &'a TensorDesc,
    /// First element.
    pub ptr: DevicePtr,
    /// The precision that decides its element type.
    pub precision: Precision,
}

impl Buffer<'_> {
    /// Element type in device memory.
    pub fn dtype(&self) -> DType {
        self.desc.role.gpu_dtype(self.precision)
    }

    /// Bytes in device memory.
    pub fn bytes(&self) -> usize {
        self.desc.gpu_bytes(self.precision)
    }

    /// Extent of a dimension, see [`TensorDesc::dim`].
    pub fn dim(&self, dim: isize) -> usize {
        self.desc.dim(dim)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.desc.len()
    }

    /// True if some extent is zero.
    pub fn is_empty(&self) -> bool {
        self.desc.is_empty()
    }

    /// The tensor as a pointer that the kernel reads.
    pub fn read(&self) -> Arg {
        self.touch(Access::Read)
    }

    /// The tensor as a pointer that the kernel writes.
    pub fn write(&self) -> Arg {
        self.touch(Access::Write)
    }

    /// The tensor as a pointer that the kernel reads and writes.
    pub fn update(&self) -> Arg {
        self.touch(Access::Update)
    }

    fn touch(&self, access: Access) -> Arg {
        Arg::Buffer(Touch { ptr: self.ptr, bytes: self.bytes(), access })
    }
}

/// The tensors and memory that an op's launches may use.
#[derive(Debug, Clone)]
pub struct LaunchArgs<'a> {
    /// The target GPU.
    pub gpu: &'a Gpu,
    /// Read-only.
    pub inputs: Vec<Buffer<'a>>,
    /// Outputs, which the launches overwrite completely.
    pub outputs: Vec<Buffer<'a>>,
    /// State, read and updated in place.
    pub updates: Vec<Buffer<'a>>,
    /// The scratch memory that the op requested, 256-byte aligned, contents undefined.
    pub workspace: Workspace,
}

/// Scratch memory of a launch.
#[derive(Debug, Clone, Copy, Default)]
pub struct Workspace {
    /// First byte, 256-byte aligned.
    pub ptr: DevicePtr,
    /// Length.
    pub bytes: usize,
}

impl Workspace {
    /// A slice of the scratch memory as a pointer. Panics if it is out of range.
    pub fn piece(&self, offset: usize, bytes: usize, access: Access) -> Arg {
        assert!(offset + bytes <= self.bytes, "{offset} + {bytes} of {} scratch bytes", self.bytes);
        Arg::Buffer(Touch { ptr: self.ptr + offset as u64, bytes, access })
    }
}
