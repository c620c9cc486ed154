//! Devices: memory, streams, events, launches, capture and replay, behind one trait.
//!
//! | what | where |
//! |---|---|
//! | a tensor's shape and role | [`TensorDesc`], [`Role`] |
//! | a kernel launch as data, with the bytes that it may access | [`Launch`], [`Touch`] |
//! | anything that a stream runs: launch, copy, all-reduce | [`Task`] |
//! | the target of a plan | [`Target`], [`Gpu`] |
//! | the compiled CUDA sources | [`manifest`], [`architecture`] |
//! | the device itself | [`Device`], [`cuda::CudaDevice`] |
//! | launches at the start and end of a captured step | [`step_ends`], [`stamp`](mod@stamp) |
//!
//! CUDA implements [`Device`]; tests run it on an emulated CUDA driver, which executes the same
//! kernels on the CPU. All work is asynchronous and ordered by streams and events; captured work
//! runs when it is replayed. Only [`Device::download`] and [`Device::synchronize`] make the host
//! wait for the device, and both are counted.
//!
//! A launch is data: kernel, grid, arguments, and the bytes that each argument may access. Planning
//! needs no device, only its description:
//!
//! ```
//! use device::{Access, Arg, Gpu, Launch, Target, Touch};
//! use device::{Role, TensorDesc};
//!
//! let desc = TensorDesc::new(Role::Activation, &[25, 40]);
//! let target = Target::Gpu(Gpu::a100());
//! assert_eq!((Target::Cpu.bytes(&desc), target.bytes(&desc)), (4000, 2000)); // f32, fp16
//!
//! let y = Touch { ptr: 0x1000, bytes: target.bytes(&desc), access: Access::Write };
//! let threads = desc.len().div_ceil(8); // 8 halves each
//! let fill = Launch::over("fill_f16", threads).arg(Arg::Buffer(y)).arg(1.0f32).len(desc.len());
//! assert_eq!((fill.grid, fill.block), ([1, 1, 1], [256, 1, 1]));
//! assert_eq!(fill.touches().collect::<Vec<_>>(), [y]);
//! ```
//!
//! `graph/examples/04_capture.rs` and `graph/examples/05_race_refused.rs` run launches.

// Tests may panic; elsewhere errors are values.
#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod architecture;
pub mod archive;
pub mod cuda;
pub mod launch;
pub mod manifest;
mod pinned;
pub mod stamp;
pub mod step_ends;
pub mod target;
pub mod task;
pub mod tensor;

use std::collections::BTreeSet;
use std::fmt::Debug;

pub use launch::{
    Access, Arg, BLOCK, Buffer, DevicePtr, Launch, LaunchArgs, StructArg, Touch, Workspace,
};
pub use pinned::{PinnedBuffer, PinnedBytes};
pub use target::{Gpu, Target};
pub use task::{AllReduce, DeviceCopy, Task, Upload};
pub use tensor::{DType, Precision, Role, TensorDesc};

/// A queue of work that runs in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stream(pub u32);

/// A point in a stream that other streams can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Event(pub u32);

/// A captured list of work, ready to be replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GraphHandle(pub u32);

/// Host memory that the device can access: pinned, so that copies are asynchronous, and mapped, so
/// that kernels can write it through [`Pinned::device_ptr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pinned {
    /// Handle in the device that allocated it.
    pub id: u32,
    /// Length.
    pub bytes: usize,
    /// Address for kernels.
    pub device_ptr: DevicePtr,
}

/// The group of devices that a device belongs to, with one process per device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ranks {
    /// This device's number.
    pub rank: usize,
    /// Number of devices in the group.
    pub count: usize,
}

impl Ranks {
    /// A single device.
    pub const SINGLE: Self = Self { rank: 0, count: 1 };
}

/// The priority of a kernel among the kernels that wait for a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Runs only when other kernels leave multiprocessors idle.
    Low,
    /// Between `Low` and `High`.
    Normal,
    /// Waits only for blocks that are already running.
    High,
}

/// Counts of the requests to a device since it was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Kernels launched individually, not as a part of a graph.
    pub kernel_launches: u64,
    /// Graph launches.
    pub graph_launches: u64,
    /// Host copies into pinned memory.
    pub pinned_writes: u64,
    /// Copies from host memory to the device.
    pub uploads: u64,
    /// Copies from the device to the host; the host waits for each.
    pub downloads: u64,
    /// Times that the host waited for the device, including downloads.
    pub host_waits: u64,
    /// Allocations of device memory.
    pub allocations: u64,
}

/// The result of loading one module of kernels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleLoad {
    /// Its CUDA source, relative to the checkout's root.
    pub path: String,
    /// The device's result.
    pub result: Result<(), DeviceError>,
    /// Its kernels whose resources differ from the manifest's, which plans assume.
    pub remarks: Vec<Remark>,
}

/// A kernel whose resources (registers, and bytes of local memory, per thread) differ from the
/// manifest's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Its name.
    pub kernel: String,
    /// Its resources on this GPU.
    pub takes: [u32; 2],
    /// Its resources in the manifest.
    pub planned: [u32; 2],
}

impl std::fmt::Display for Remark {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kernel, takes, planned } = self;
        write!(
            f,
            "kernel `{kernel}` uses {} registers and {} bytes of local memory; plans assume {} and \
             {}",
            takes[0], takes[1], planned[0], planned[1]
        )
    }
}

/// Memory of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Free bytes.
    pub free: usize,
    /// Total bytes.
    pub total: usize,
}

/// Errors from a device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeviceError {
    /// The GPU, its driver or NCCL is missing or too old.
    #[error("{0}")]
    Absent(String),
    /// Not enough memory.
    #[error("out of device memory: {wanted} bytes are required, {free} are free")]
    OutOfMemory {
        /// Bytes requested.
        wanted: usize,
        /// Bytes free.
        free: usize,
    },
    /// There is no kernel of this name, or the launch's arguments do not match its parameters.
    #[error("kernel `{kernel}`: {reason}")]
    Kernel {
        /// Name.
        kernel: String,
        /// The error.
        reason: String,
    },
    /// An operation that a capture cannot contain.
    #[error(
        "{0} cannot be captured: at replay it would block the host, or allocate or free memory"
    )]
    NotCapturable(&'static str),
    /// A driver error.
    #[error("{call}: {reason}")]
    Driver {
        /// The call that failed.
        call: String,
        /// The driver's message.
        reason: String,
    },
}

/// A device that runs launches.
///
/// Handles belong to the device that created them; methods panic on a handle that is from a
/// different device or was released. [`Device::free`] releases memory, [`Device::free_stream`] and
/// similar methods release streams, events and graphs; dropping the device releases the rest.
pub trait Device: Debug + Send + Sync {
    /// Name and driver, for reports.
    fn name(&self) -> String;

    /// The target of plans for this device.
    fn gpu(&self) -> &Gpu;

    /// Free and total memory.
    ///
    /// # Errors
    /// Driver errors.
    fn memory(&self) -> Result<DeviceMemory, DeviceError>;

    /// Allocates device memory, aligned to 256 bytes, contents undefined.
    ///
    /// # Errors
    /// [`DeviceError::OutOfMemory`]; [`DeviceError::NotCapturable`] during a capture.
    fn alloc(&self, bytes: usize) -> Result<DevicePtr, DeviceError>;

    /// Frees memory from [`Device::alloc`]. Waits for work that may use it.
    ///
    /// # Errors
    /// Driver errors, or [`DeviceError::NotCapturable`].
    fn free(&self, ptr: DevicePtr) -> Result<(), DeviceError>;

    /// Allocates pinned and mapped host memory, all zero.
    ///
    /// # Errors
    /// Driver errors.
    fn alloc_pinned(&self, bytes: usize) -> Result<Pinned, DeviceError>;

    /// Frees pinned memory. Waits for work that may use it.
    ///
    /// # Errors
    /// Driver errors, or [`DeviceError::NotCapturable`].
    fn free_pinned(&self, pinned: Pinned) -> Result<(), DeviceError>;

    /// Copies `bytes` into pinned memory, immediately, on the host. The caller must ensure that no
    /// copy in flight still reads there.
    fn write_pinned(&self, pinned: Pinned, offset: usize, bytes: &[u8]);

    /// Copies pinned memory out, immediately, on the host. The device may write it concurrently:
    /// 4-byte words are read atomically.
    fn read_pinned(&self, pinned: Pinned, offset: usize, bytes: &mut [u8]);

    /// Allocates pinned host memory that its owner fills in place, all zero.
    ///
    /// # Errors
    /// Driver errors, or [`DeviceError::NotCapturable`].
    fn pinned_buffer(&self, bytes: usize) -> Result<PinnedBuffer, DeviceError>;

    /// A new stream of normal priority.
    ///
    /// # Errors
    /// Driver errors.
    fn stream(&self) -> Result<Stream, DeviceError> {
        self.stream_with(Priority::Normal)
    }

    /// A new stream of this priority, which also applies to kernels that are captured on the
    /// stream.
    ///
    /// # Errors
    /// Driver errors.
    fn stream_with(&self, priority: Priority) -> Result<Stream, DeviceError>;

    /// Releases a stream, without waiting: work already submitted to it still runs.
    fn free_stream(&self, stream: Stream);

    /// A new event.
    ///
    /// # Errors
    /// Driver errors.
    fn event(&self) -> Result<Event, DeviceError>;

    /// A new event with timing, for [`Device::elapsed_ms`]. Captures cannot use it.
    ///
    /// # Errors
    /// Driver errors.
    fn timing_event(&self) -> Result<Event, DeviceError>;

    /// Releases an event, without waiting. Work that already waits for it is not affected.
    fn free_event(&self, event: Event);

    /// Milliseconds from one recorded event of [`Device::timing_event`] to another. Waits for the
    /// second.
    ///
    /// # Errors
    /// Driver errors, or [`DeviceError::NotCapturable`].
    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32, DeviceError>;

    /// Loads the modules of the `wanted` kernels that are not loaded yet; if `None`, the modules of
    /// all kernels. If one fails, the others are still tried. Call it before a capture, which
    /// cannot contain a load.
    fn load_kernels(&self, wanted: Option<&BTreeSet<&str>>) -> Vec<ModuleLoad>;

    /// Records `event` after all work on `stream` so far.
    ///
    /// # Errors
    /// Driver errors.
    fn record(&self, event: Event, stream: Stream) -> Result<(), DeviceError>;

    /// Makes later work on `stream` wait for `event`.
    ///
    /// # Errors
    /// Driver errors.
    fn wait(&self, stream: Stream, event: Event) -> Result<(), DeviceError>;

    /// Launches a kernel on a stream.
    ///
    /// # Errors
    /// [`DeviceError::Kernel`] if there is no such kernel, or its parameter sizes differ.
    fn launch(&self, stream: Stream, launch: &Launch) -> Result<(), DeviceError>;

    /// Copies pinned memory to the device, asynchronously.
    ///
    /// # Errors
    /// Driver errors.
    fn upload(
        &self,
        stream: Stream,
        to: DevicePtr,
        from: Pinned,
        offset: usize,
        bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Copies within device memory, asynchronously.
    ///
    /// # Errors
    /// Driver errors.
    fn copy(&self, stream: Stream, copy: &DeviceCopy) -> Result<(), DeviceError>;

    /// The group that [`Device::all_reduce`] sums over.
    fn ranks(&self) -> Ranks;

    /// All-reduces over the ranks of the group, asynchronously. With a single rank, it is a copy.
    ///
    /// # Errors
    /// Driver errors, or another rank that does not participate.
    fn all_reduce(&self, stream: Stream, sum: &AllReduce) -> Result<(), DeviceError>;

    /// Copies the start of a buffer to the device, asynchronously. The buffer cannot be written
    /// until the copy is done.
    ///
    /// # Errors
    /// Driver errors, or [`DeviceError::NotCapturable`].
    fn upload_from(
        &self,
        stream: Stream,
        to: DevicePtr,
        from: &PinnedBuffer,
        bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Waits for the stream, then copies device memory out.
    ///
    /// # Errors
    /// Driver errors, or [`DeviceError::NotCapturable`].
    fn download(
        &self,
        stream: Stream,
        from: DevicePtr,
        bytes: &mut [u8],
    ) -> Result<(), DeviceError>;

    /// Waits for all work, and reports its errors.
    ///
    /// # Errors
    /// The first error of a kernel or copy, or [`DeviceError::NotCapturable`].
    fn synchronize(&self) -> Result<(), DeviceError>;

    /// Starts a capture: from here on, work on `stream`, and on streams that wait for events
    /// recorded in it, is captured instead of run.
    ///
    /// # Errors
    /// Driver errors.
    fn begin_capture(&self, stream: Stream) -> Result<(), DeviceError>;

    /// Ends the capture that began on `stream`, which must have waited for the work of all other
    /// captured streams.
    ///
    /// # Errors
    /// The reason, if the capture is invalid.
    fn end_capture(&self, stream: Stream) -> Result<GraphHandle, DeviceError>;

    /// Releases a graph, without waiting: a replay in flight still completes.
    fn free_graph(&self, graph: GraphHandle);

    /// Runs a captured graph on a stream.
    ///
    /// # Errors
    /// Driver errors.
    fn replay(&self, graph: GraphHandle, stream: Stream) -> Result<(), DeviceError>;

    /// Sleeps briefly, for callers that poll; does not synchronize.
    ///
    /// # Errors
    /// An error of earlier work, if it is already known.
    fn idle(&self) -> Result<(), DeviceError>;

    /// Gives up a device that hangs: from here on, all calls that would use it fail without
    /// waiting, and releases of memory are skipped.
    fn give_up(&self);

    /// Utilization, memory, power and clocks of the GPU by name, from NVIDIA's management library;
    /// empty without the library.
    fn usage(&self) -> Vec<(&'static str, f64)> {
        vec![]
    }

    /// The counts so far.
    fn counts(&self) -> Counts;
}
