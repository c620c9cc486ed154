//! NVIDIA GPUs, through the installed driver.
//!
//! The driver library is loaded when a device is opened: one build serves machines with and without
//! a GPU, and a missing driver or GPU is reported in one line. Kernels are loaded as machine code;
//! if there is none for the GPU, the driver compiles their PTX and caches the result.

mod args;
mod context;
mod memory;
mod module;
mod nccl;
mod nvml;
mod ordinal;
mod staging;
mod stream;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use args::PackedArgs;
use context::Context;
pub use context::{Installed, InstalledGpu};
use memory::{Allocation, PinnedMemory};
use module::Kernels;
use nccl::Communicator;
pub use nccl::{NcclOptions, nccl_id, nccl_variables, nccl_version};
pub use ordinal::ordinal_of;
use staging::StagingMemory;

use crate::manifest::Compiled;
use crate::{
    AllReduce, Counts, Device, DeviceCopy, DeviceError, DeviceMemory, DevicePtr, Event, Gpu,
    GraphHandle, Launch, ModuleLoad, Pinned, PinnedBuffer, Priority, Ranks, Stream,
};

/// Sleep between polls: short compared with a step, long compared with a read of pinned memory.
const IDLE: Duration = Duration::from_micros(50);

/// One GPU.
///
/// Threads may share it. A capture belongs to the thread that began it, and only one can be active
/// at a time. Open each GPU only once: several `CudaDevice`s of one GPU would share its context,
/// and a wait in one of them would invalidate a capture in another.
#[derive(Debug)]
pub struct CudaDevice {
    // The first field, so that graphs are dropped before the group and the kernels that they use.
    state: Mutex<State>,
    /// The group of ranks, once joined.
    group: OnceLock<Communicator>,
    kernels: Kernels,
    context: Arc<Context>,
    gpu: Gpu,
}

#[derive(Debug, Default)]
struct State {
    /// In this list and the next three, an entry is `None` once it is released.
    graphs: Vec<Option<Arc<stream::Graph>>>,
    events: Vec<Option<Arc<stream::Event>>>,
    streams: Vec<Option<Arc<stream::Stream>>>,
    pinned: Vec<Option<Arc<PinnedMemory>>>,
    allocations: BTreeMap<DevicePtr, Allocation>,
    /// The stream of the last replay.
    replayed: Option<Arc<stream::Stream>>,
    /// The stream on which the active capture began.
    capture: Option<Stream>,
    counts: Counts,
}

impl CudaDevice {
    /// Opens the GPU with this number, in the order of `CUDA_VISIBLE_DEVICES`. A launch uses the
    /// first set of `kernels` that contains its kernel's name. If the driver has to compile
    /// kernels, `notice` is called once before, as compiling may take half a minute.
    ///
    /// # Errors
    /// [`DeviceError::Absent`] with a one-line message if there is no such GPU, or no driver that
    /// can run the kernels; never a panic.
    pub fn open(
        ordinal: usize,
        kernels: &[&'static Compiled],
        notice: fn(&str),
    ) -> Result<Self, DeviceError> {
        let context = Context::open(ordinal)?;
        let kernels = Kernels::new(&context, kernels, notice);
        let gpu = context.gpu.clone();
        Ok(Self { state: Mutex::default(), group: OnceLock::new(), kernels, context, gpu })
    }

    /// The same device, whose plans use wgmma kernels only if `wgmma` is true.
    pub fn with_wgmma(mut self, wgmma: bool) -> Self {
        self.gpu.wgmma = wgmma;
        self
    }

    /// Joins the group of ranks with this identifier (from [`nccl_id`]); call it only once. From
    /// then on, [`Device::all_reduce`] sums over these ranks. Returns when all ranks have joined.
    ///
    /// Panics if a graph was captured before, as that graph contains copies in place of
    /// all-reduces.
    ///
    /// # Errors
    /// [`DeviceError::Absent`] with a one-line message if NCCL is missing or too old; NCCL's own
    /// errors; a rank that does not join in time.
    pub fn join(
        &self,
        ranks: Ranks,
        id: &[u8; 128],
        options: &NcclOptions,
    ) -> Result<(), DeviceError> {
        {
            let state = self.lock();
            state.not_capturing("joining a group")?;
            assert!(state.graphs.is_empty(), "joined after a capture, whose sums are copies");
        }
        assert!(ranks.rank < ranks.count, "{ranks:?}");
        let joined = Communicator::join(&self.context, ranks, id, options)?;
        assert!(self.group.set(joined).is_ok(), "a device is in one group");
        Ok(())
    }

    /// Leaves the group of ranks; any thread may call it. All-reduces that wait for lost ranks end
    /// with undefined results, and later all-reduces and replays fail.
    ///
    /// # Errors
    /// NCCL's own errors, or a call into NCCL that does not return within a second.
    pub fn abort(&self) -> Result<(), DeviceError> {
        let graphs = || self.lock().graphs.iter_mut().filter_map(Option::take).collect::<Vec<_>>();
        self.group.get().map_or(Ok(()), |group| group.abort(graphs))
    }

    fn new_event(&self, timing: bool) -> Result<Event, DeviceError> {
        let event = Arc::new(stream::Event::new(&self.context, timing)?);
        let mut state = self.lock();
        state.events.push(Some(event));
        Ok(Event(state.events.len() as u32 - 1))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A poisoned lock is usable: the tables are consistent between any two statements that
        // change them.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn stream(&self, stream: Stream) -> Arc<stream::Stream> {
        let found = self.streams.get(stream.0 as usize).and_then(Option::as_ref);
        found.unwrap_or_else(|| panic!("{stream:?} is not of this device")).clone()
    }

    fn event(&self, event: Event) -> Arc<stream::Event> {
        let found = self.events.get(event.0 as usize).and_then(Option::as_ref);
        found.unwrap_or_else(|| panic!("{event:?} is not of this device")).clone()
    }

    fn pinned(&self, pinned: Pinned) -> Arc<PinnedMemory> {
        let found = self.pinned.get(pinned.id as usize).and_then(Option::as_ref);
        let found = found.filter(|memory| memory.device_ptr == pinned.device_ptr);
        found.unwrap_or_else(|| panic!("{pinned:?} is not of this device")).clone()
    }

    /// Panics if the bytes are not inside one allocation.
    fn check_inside(&self, ptr: DevicePtr, bytes: usize) {
        let holder = self.allocations.range(..=ptr).next_back().map(|(_, allocation)| allocation);
        let inside = holder.is_some_and(|a| ptr + bytes as u64 <= a.ptr + a.bytes as u64);
        assert!(inside, "a copy of {bytes} bytes outside of device memory");
    }

    fn not_capturing(&self, what: &'static str) -> Result<(), DeviceError> {
        if self.capture.is_some() { Err(DeviceError::NotCapturable(what)) } else { Ok(()) }
    }
}

/// Releases the object of a handle. Panics if the handle is from a different device, or was
/// released before.
fn release<T>(slots: &mut [Option<T>], handle: u32) {
    let released = slots.get_mut(handle as usize).and_then(Option::take);
    assert!(released.is_some(), "handle {handle} is not of this device");
}

impl Device for CudaDevice {
    fn name(&self) -> String {
        self.context.name.clone()
    }

    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn memory(&self) -> Result<DeviceMemory, DeviceError> {
        self.context.memory()
    }

    fn alloc(&self, bytes: usize) -> Result<DevicePtr, DeviceError> {
        let mut state = self.lock();
        state.not_capturing("an allocation")?;
        let allocation = Allocation::new(&self.context, bytes)?;
        let ptr = allocation.ptr;
        state.counts.allocations += 1;
        state.allocations.insert(ptr, allocation);
        Ok(ptr)
    }

    fn free(&self, ptr: DevicePtr) -> Result<(), DeviceError> {
        let allocation = {
            let mut state = self.lock();
            state.not_capturing("a release of memory")?;
            state.allocations.remove(&ptr)
        };
        assert!(allocation.is_some(), "{ptr:#x} is not of this device");
        let waited = self.context.synchronize();
        drop(allocation);
        waited
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<Pinned, DeviceError> {
        let mut state = self.lock();
        state.not_capturing("an allocation")?;
        let memory = PinnedMemory::new(&self.context, bytes)?;
        let id = state.pinned.len() as u32;
        let pinned = Pinned { id, bytes, device_ptr: memory.device_ptr };
        state.pinned.push(Some(Arc::new(memory)));
        Ok(pinned)
    }

    fn free_pinned(&self, pinned: Pinned) -> Result<(), DeviceError> {
        let memory = {
            let mut state = self.lock();
            state.not_capturing("a release of memory")?;
            let memory = state.pinned(pinned);
            state.pinned[pinned.id as usize] = None;
            memory
        };
        let waited = self.context.synchronize();
        drop(memory);
        waited
    }

    fn write_pinned(&self, pinned: Pinned, offset: usize, bytes: &[u8]) {
        let memory = {
            let mut state = self.lock();
            state.counts.pinned_writes += 1;
            state.pinned(pinned)
        };
        memory.write(offset, bytes);
    }

    fn read_pinned(&self, pinned: Pinned, offset: usize, bytes: &mut [u8]) {
        let memory = self.lock().pinned(pinned);
        memory.read(offset, bytes);
    }

    fn pinned_buffer(&self, bytes: usize) -> Result<PinnedBuffer, DeviceError> {
        self.lock().not_capturing("an allocation")?;
        Ok(PinnedBuffer::new(StagingMemory::new(&self.context, bytes)?))
    }

    fn stream_with(&self, priority: Priority) -> Result<Stream, DeviceError> {
        let stream = Arc::new(stream::Stream::new(&self.context, priority)?);
        let mut state = self.lock();
        state.streams.push(Some(stream));
        Ok(Stream(state.streams.len() as u32 - 1))
    }

    fn free_stream(&self, stream: Stream) {
        release(&mut self.lock().streams, stream.0);
    }

    fn event(&self) -> Result<Event, DeviceError> {
        self.new_event(false)
    }

    fn timing_event(&self) -> Result<Event, DeviceError> {
        self.new_event(true)
    }

    fn free_event(&self, event: Event) {
        release(&mut self.lock().events, event.0);
    }

    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32, DeviceError> {
        let (start, end) = {
            let mut state = self.lock();
            state.not_capturing("a wait of the host")?;
            state.counts.host_waits += 1;
            (state.event(start), state.event(end))
        };
        end.ms_since(&start)
    }

    fn load_kernels(&self, wanted: Option<&BTreeSet<&str>>) -> Vec<ModuleLoad> {
        self.kernels.load_all(wanted)
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DeviceError> {
        let (event, stream) = {
            let state = self.lock();
            (state.event(event), state.stream(stream))
        };
        stream.record(&event)
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), DeviceError> {
        let (event, stream) = {
            let state = self.lock();
            (state.event(event), state.stream(stream))
        };
        stream.wait(&event)
    }

    fn launch(&self, stream: Stream, launch: &Launch) -> Result<(), DeviceError> {
        let (stream, capturing) = {
            let state = self.lock();
            (state.stream(stream), state.capture.is_some())
        };
        let function = self.kernels.get(launch.kernel)?;
        let mut args = PackedArgs::new(launch, function.kernel)?;
        if launch.is_empty() {
            return Ok(());
        }
        stream.launch(&function, launch, &mut args.pointers())?;
        if !(capturing && stream.is_captured()?) {
            self.lock().counts.kernel_launches += 1;
        }
        Ok(())
    }

    fn upload(
        &self,
        stream: Stream,
        to: DevicePtr,
        from: Pinned,
        offset: usize,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let (stream, from) = {
            let mut state = self.lock();
            state.check_inside(to, bytes);
            state.counts.uploads += 1;
            (state.stream(stream), state.pinned(from))
        };
        if bytes == 0 {
            return Ok(());
        }
        stream.upload(to, &from, offset, bytes)
    }

    fn copy(&self, stream: Stream, copy: &DeviceCopy) -> Result<(), DeviceError> {
        let stream = {
            let state = self.lock();
            state.check_inside(copy.to, copy.bytes);
            state.check_inside(copy.from, copy.bytes);
            state.stream(stream)
        };
        if copy.bytes == 0 {
            return Ok(());
        }
        stream.copy(copy)
    }

    fn ranks(&self) -> Ranks {
        self.group.get().map_or(Ranks::SINGLE, |group| group.ranks)
    }

    fn all_reduce(&self, stream: Stream, sum: &AllReduce) -> Result<(), DeviceError> {
        let Some(group) = self.group.get() else {
            let copy = DeviceCopy { to: sum.to, from: sum.from, bytes: sum.bytes() };
            return self.copy(stream, &copy);
        };
        let stream = {
            let state = self.lock();
            state.check_inside(sum.to, sum.bytes());
            state.check_inside(sum.from, sum.bytes());
            state.stream(stream)
        };
        group.all_reduce(&stream, sum)
    }

    fn upload_from(
        &self,
        stream: Stream,
        to: DevicePtr,
        from: &PinnedBuffer,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        let stream = {
            let mut state = self.lock();
            state.not_capturing("an upload from a pinned buffer")?;
            state.check_inside(to, bytes);
            state.counts.uploads += 1;
            state.stream(stream)
        };
        let from: &StagingMemory = from.memory();
        if bytes == 0 {
            return Ok(());
        }
        // After this wait, the event marks the end of all copies, on all streams.
        stream.wait(&from.copied)?;
        stream.upload(to, &from.memory, 0, bytes)?;
        stream.record(&from.copied)
    }

    fn download(
        &self,
        stream: Stream,
        from: DevicePtr,
        bytes: &mut [u8],
    ) -> Result<(), DeviceError> {
        let stream = {
            let mut state = self.lock();
            state.not_capturing("a copy to the host")?;
            state.check_inside(from, bytes.len());
            state.counts.downloads += 1;
            state.counts.host_waits += 1;
            state.stream(stream)
        };
        stream.download(from, bytes)
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        {
            let mut state = self.lock();
            state.not_capturing("a wait of the host")?;
            state.counts.host_waits += 1;
        }
        self.context.synchronize()
    }

    fn begin_capture(&self, stream: Stream) -> Result<(), DeviceError> {
        let mut state = self.lock();
        state.not_capturing("a nested capture")?;
        state.stream(stream).begin_capture()?;
        state.capture = Some(stream);
        Ok(())
    }

    fn end_capture(&self, stream: Stream) -> Result<GraphHandle, DeviceError> {
        let mut state = self.lock();
        assert_eq!(state.capture, Some(stream), "no capture began on {stream:?}");
        state.capture = None;
        let graph = state.stream(stream).end_capture()?;
        state.graphs.push(Some(Arc::new(graph)));
        Ok(GraphHandle(state.graphs.len() as u32 - 1))
    }

    fn free_graph(&self, graph: GraphHandle) {
        // `abort` may already have released it, when it left the group.
        drop(self.lock().graphs[graph.0 as usize].take());
    }

    fn replay(&self, graph: GraphHandle, stream: Stream) -> Result<(), DeviceError> {
        let (graph, stream) = {
            let mut state = self.lock();
            state.not_capturing("a replay")?;
            state.counts.graph_launches += 1;
            // Fails if the group was left, which released all graphs.
            self.group.get().map_or(Ok(()), Communicator::check)?;
            let found = state.graphs.get(graph.0 as usize).and_then(Option::as_ref);
            let found = found.unwrap_or_else(|| panic!("{graph:?} is not of this device"));
            let (found, stream) = (found.clone(), state.stream(stream));
            state.replayed = Some(stream.clone());
            (found, stream)
        };
        stream.replay(&graph)
    }

    fn idle(&self) -> Result<(), DeviceError> {
        std::thread::sleep(IDLE);
        // Once work has failed, every call to the driver returns the error; a query of a stream
        // does so without waiting.
        let stream = self.lock().replayed.clone();
        stream.map_or(Ok(()), |stream| stream.check())?;
        let checked = self.group.get().map_or(Ok(()), Communicator::check);
        if checked.is_err() {
            // All-reduces that wait for other ranks would prevent the device from being dropped.
            let _ = self.abort();
        }
        checked
    }

    fn give_up(&self) {
        self.context.give_up();
    }

    fn usage(&self) -> Vec<(&'static str, f64)> {
        self.context.uuid().map_or(vec![], nvml::usage)
    }

    fn counts(&self) -> Counts {
        self.lock().counts
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        // Memory must not be released while work uses it. An error is ignored: a failed device runs
        // no work.
        let _ = self.context.synchronize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The error that users see without a GPU; never a panic.
    #[test]
    fn missing_driver_prints_one_line_error() {
        match CudaDevice::open(0, &[], |_| ()) {
            Ok(device) => println!("SKIPPED: there is a GPU here ({})", device.name()),
            Err(DeviceError::Absent(sentence)) => {
                println!("{sentence}");
                assert!(sentence.ends_with("or use --device cpu"), "{sentence}");
                assert!(!sentence.contains('\n'), "{sentence}");
            }
            Err(other) => panic!("{other}"),
        }
        // No machine has that many GPUs.
        assert!(matches!(CudaDevice::open(1 << 20, &[], |_| ()), Err(DeviceError::Absent(_))));
    }
}
