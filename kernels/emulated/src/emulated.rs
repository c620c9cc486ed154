//! The device: calls go into queues, and the queues run when the host waits.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use device::{
    AllReduce, Counts, Device, DeviceCopy, DeviceError, DeviceMemory, DevicePtr, Event, Gpu,
    GraphHandle, Launch, ModuleLoad, Pinned, PinnedBuffer, Priority, Ranks, Stream, Task, Upload,
};

use crate::capture::{Capture, Graph};
use crate::command::Command;
use crate::counted::CountedLaunch;
use crate::library::{Way, kernel_names, source};
use crate::memory::Memory;
use crate::planted::Planted;
use crate::queue::{Item, Next, Queues, Ticket};
use crate::ranks::Member;
use crate::staging::StagingMemory;

/// The order of work that neither streams nor events order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Submission order; threads of a block by index.
    Given,
    /// Random by this seed, including threads and blocks. Not 0.
    Random(u64),
}

/// A device that runs CUDA kernels on the CPU.
#[derive(Debug)]
pub struct EmulatedDevice {
    order: Order,
    os_threads: u32,
    tensor_core_sums: bool,
    counting: bool,
    planted: Planted,
    gpu: Gpu,
    /// `None` for a single device.
    member: Option<Member>,
    inner: Mutex<Inner>,
    /// Bytes of pinned buffers.
    staging_bytes: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct Inner {
    memory: Memory,
    pinned: Vec<(DevicePtr, usize)>,
    queues: Queues,
    /// What each event marks, if it was recorded.
    events: BTreeMap<u32, Option<Ticket>>,
    events_made: u32,
    /// When each timing event was reached.
    stamps: BTreeMap<u32, Option<Instant>>,
    /// `None` once released.
    graphs: Vec<Option<Arc<Graph>>>,
    capture: Option<Capture>,
    counts: Counts,
    counted: Vec<CountedLaunch>,
    random: u64,
    fault: Option<DeviceError>,
}

/// What was made on a device and not released yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alive {
    /// Captured graphs.
    pub graphs: usize,
    /// Streams.
    pub streams: usize,
    /// Events.
    pub events: usize,
}

impl EmulatedDevice {
    /// A device on one host thread.
    pub fn new(order: Order) -> Self {
        let random = match order {
            Order::Given => 0,
            // Neighbouring seeds must not start alike.
            Order::Random(seed) => seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
        };
        let inner = Mutex::new(Inner { random, ..Inner::default() });
        Self {
            order,
            os_threads: 1,
            tensor_core_sums: false,
            counting: false,
            planted: Planted::default(),
            gpu: Gpu::a100(),
            member: None,
            inner,
            staging_bytes: Arc::default(),
        }
    }

    /// A group of devices whose all-reduces meet. Each belongs to its own thread: a rank that
    /// reaches a sum waits for the others.
    pub fn group(order: Order, count: usize) -> Vec<Self> {
        Member::group(count).map(|m| Self { member: Some(m), ..Self::new(order) }).collect()
    }

    /// Plans as for this GPU; by default an A100.
    pub fn with_gpu(mut self, gpu: Gpu) -> Self {
        self.gpu = gpu;
        self
    }

    /// A device of so much memory.
    pub fn with_memory(self, bytes: usize) -> Self {
        self.lock().memory.total = bytes;
        self
    }

    /// Sums products as tensor cores do: a group of products and the running sum are aligned to the
    /// largest and truncated, not rounded. By default each sum is rounded to nearest.
    pub fn with_tensor_core_sums(mut self) -> Self {
        self.tensor_core_sums = true;
        self
    }

    /// Counts what each launch asks of memory and tensor cores, for [`Self::take_counted`].
    pub fn counting(mut self) -> Self {
        self.counting = true;
        self
    }

    /// The launches since the last call, in the order in which they ran.
    pub fn take_counted(&self) -> Vec<CountedLaunch> {
        std::mem::take(&mut self.lock().counted)
    }

    /// A device that fails as planted.
    pub fn with_planted(mut self, planted: Planted) -> Self {
        self.planted = planted;
        self
    }

    /// Distributes the blocks of a launch over this many host threads.
    pub fn with_os_threads(mut self, threads: u32) -> Self {
        self.os_threads = threads.max(1);
        self
    }

    /// What is alive now.
    pub fn alive(&self) -> Alive {
        let inner = self.lock();
        Alive {
            graphs: inner.graphs.iter().flatten().count(),
            streams: inner.queues.alive(),
            events: inner.events.len(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        match self.inner.lock() {
            Ok(inner) => inner,
            // After a panic in a test that shares the device, its state is still consistent.
            Err(poisoned) => poisoned.into_inner(),
        }
    }

    fn random(&self) -> bool {
        self.order != Order::Given
    }

    /// Runs one piece of work; false if none is left.
    fn advance(&self, inner: &mut Inner) -> bool {
        let random = self.random();
        let state = &mut inner.random;
        let mut pick = |n: usize| if random { below(next_random(state), n) } else { 0 };
        let command = match inner.queues.next(&mut pick) {
            Next::Command(command) => command,
            Next::Nothing => return false,
            Next::Stuck => panic!("streams wait for one another: no work can go on"),
        };
        let result = match &command {
            Command::Task(Task::Launch(launch)) => {
                let seed = if random { next_random(&mut inner.random) } else { 0 };
                self.planted.at(launch).and_then(|()| self.run(inner, launch, seed))
            }
            Command::Task(Task::Upload(Upload { to, from, offset, bytes })) => {
                inner.memory.copy(*to, from.device_ptr + *offset as DevicePtr, *bytes);
                Ok(())
            }
            Command::Task(Task::Copy(DeviceCopy { to, from, bytes })) => {
                inner.memory.copy(*to, *from, *bytes);
                Ok(())
            }
            Command::Task(Task::AllReduce(sum)) => self.sum(inner, sum),
            Command::UploadFrom { to, copy } => {
                inner.memory.write(*to, copy.bytes());
                Ok(())
            }
            Command::Stamp(event) => {
                inner.stamps.insert(*event, Some(Instant::now()));
                Ok(())
            }
        };
        if let Err(e) = result {
            inner.fault.get_or_insert(e);
        }
        true
    }

    /// Runs a launch, and keeps what was counted.
    fn run(&self, inner: &mut Inner, launch: &Launch, seed: u64) -> Result<(), DeviceError> {
        let (cut, count) = (self.tensor_core_sums, self.counting);
        let way = Way { seed, os_threads: self.os_threads, cut, count };
        let sites = inner.memory.run(launch, way)?;
        if count {
            inner.counted.push(CountedLaunch { launch: launch.clone(), sites });
        }
        Ok(())
    }

    /// Takes part in a sum over ranks.
    fn sum(&self, inner: &mut Inner, sum: &AllReduce) -> Result<(), DeviceError> {
        let mut mine = vec![0; sum.bytes()];
        inner.memory.read(sum.from, &mut mine);
        let total = match &self.member {
            Some(member) => member.sum(sum, mine)?,
            None => mine,
        };
        inner.memory.write(sum.to, &total);
        Ok(())
    }

    /// Runs everything and reports errors. An error is sticky, as in a CUDA context.
    fn drain(&self, inner: &mut Inner) -> Result<(), DeviceError> {
        while self.advance(inner) {}
        inner.fault.clone().map_or(Ok(()), Err)
    }

    fn submit_task(&self, stream: Stream, task: Task) {
        self.submit(stream, Command::Task(task));
    }

    fn submit(&self, stream: Stream, command: Command) {
        let mut inner = self.lock();
        let s = inner.checked(stream);
        match &mut inner.capture {
            Some(capture) if capture.holds(s) => capture.push(s, command),
            _ => inner.queues.push(s, Item::Run(command)),
        }
    }
}

impl Inner {
    fn checked(&self, stream: Stream) -> usize {
        let s = stream.0 as usize;
        assert!(self.queues.is_alive(s), "{stream:?} is not of this device");
        s
    }

    fn event(&mut self, event: Event) -> &mut Option<Ticket> {
        let found = self.events.get_mut(&event.0);
        found.unwrap_or_else(|| panic!("{event:?} is not of this device"))
    }

    fn graph(&self, graph: GraphHandle) -> Arc<Graph> {
        let found = self.graphs.get(graph.0 as usize).and_then(Option::as_ref);
        found.unwrap_or_else(|| panic!("{graph:?} is not of this device")).clone()
    }

    fn not_capturing(&self, what: &'static str) -> Result<(), DeviceError> {
        if self.capture.is_some() { Err(DeviceError::NotCapturable(what)) } else { Ok(()) }
    }
}

/// A number below `n` from the high bits of a random one.
fn below(random: u64, n: usize) -> usize {
    (((random >> 32) * n as u64) >> 32) as usize
}

/// Xorshift.
fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl Device for EmulatedDevice {
    fn name(&self) -> String {
        "emulated".into()
    }

    fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    fn memory(&self) -> Result<DeviceMemory, DeviceError> {
        let (used, total) = {
            let memory = &self.lock().memory;
            (memory.used() + self.staging_bytes.load(Ordering::Relaxed), memory.total)
        };
        Ok(DeviceMemory { free: total.saturating_sub(used), total })
    }

    fn alloc(&self, bytes: usize) -> Result<DevicePtr, DeviceError> {
        let mut inner = self.lock();
        inner.not_capturing("an allocation")?;
        inner.counts.allocations += 1;
        inner.memory.alloc(bytes)
    }

    fn free(&self, ptr: DevicePtr) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        inner.not_capturing("a release of memory")?;
        while self.advance(&mut inner) {}
        inner.memory.free(ptr)
    }

    fn alloc_pinned(&self, bytes: usize) -> Result<Pinned, DeviceError> {
        let mut inner = self.lock();
        inner.not_capturing("an allocation")?;
        let device_ptr = inner.memory.alloc(bytes)?;
        inner.memory.write(device_ptr, &vec![0; bytes]);
        inner.pinned.push((device_ptr, bytes));
        Ok(Pinned { id: inner.pinned.len() as u32 - 1, bytes, device_ptr })
    }

    fn free_pinned(&self, pinned: Pinned) -> Result<(), DeviceError> {
        self.free(pinned.device_ptr)
    }

    fn write_pinned(&self, pinned: Pinned, offset: usize, bytes: &[u8]) {
        let mut inner = self.lock();
        inner.counts.pinned_writes += 1;
        inner.memory.write(pinned.device_ptr + offset as u64, bytes);
    }

    fn read_pinned(&self, pinned: Pinned, offset: usize, bytes: &mut [u8]) {
        self.lock().memory.read(pinned.device_ptr + offset as u64, bytes);
    }

    fn pinned_buffer(&self, bytes: usize) -> Result<PinnedBuffer, DeviceError> {
        self.lock().not_capturing("an allocation")?;
        Ok(PinnedBuffer::new(StagingMemory::new(bytes, &self.staging_bytes)))
    }

    /// Priorities change no order that a program may rely on: work that nothing orders runs in any.
    fn stream_with(&self, _priority: Priority) -> Result<Stream, DeviceError> {
        Ok(Stream(self.lock().queues.add_stream() as u32))
    }

    fn free_stream(&self, stream: Stream) {
        let mut inner = self.lock();
        let s = inner.checked(stream);
        inner.queues.free(s);
    }

    fn event(&self) -> Result<Event, DeviceError> {
        let mut inner = self.lock();
        let event = inner.events_made;
        inner.events_made += 1;
        inner.events.insert(event, None);
        Ok(Event(event))
    }

    fn free_event(&self, event: Event) {
        let mut inner = self.lock();
        inner.event(event);
        inner.events.remove(&event.0);
    }

    fn timing_event(&self) -> Result<Event, DeviceError> {
        let event = self.event()?;
        self.lock().stamps.insert(event.0, None);
        Ok(event)
    }

    fn elapsed_ms(&self, start: Event, end: Event) -> Result<f32, DeviceError> {
        let mut inner = self.lock();
        inner.not_capturing("a wait of the host")?;
        inner.counts.host_waits += 1;
        self.drain(&mut inner)?;
        let at = |event: Event| match inner.stamps.get(&event.0) {
            Some(Some(at)) => *at,
            _ => panic!("{event:?} takes no time, or was not recorded"),
        };
        Ok(1e3 * at(end).duration_since(at(start)).as_secs_f32())
    }

    fn load_kernels(&self, wanted: Option<&BTreeSet<&str>>) -> Vec<ModuleLoad> {
        let is_wanted = |name: &&String| wanted.is_none_or(|names| names.contains(name.as_str()));
        let names = kernel_names();
        let sources: BTreeSet<String> =
            names.iter().filter(is_wanted).map(|name| source(name)).collect();
        let load =
            |path: String| ModuleLoad { result: self.planted.load(&path), path, remarks: vec![] };
        let of_training = sources.into_iter().filter(|path| path.starts_with("kernels/src/"));
        of_training.map(load).collect()
    }

    fn record(&self, event: Event, stream: Stream) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        let s = inner.checked(stream);
        inner.event(event);
        if inner.stamps.contains_key(&event.0) {
            inner.not_capturing("a timing event")?;
            inner.queues.push(s, Item::Run(Command::Stamp(event.0)));
        }
        match &mut inner.capture {
            Some(capture) if capture.holds(s) => capture.record(event.0, s),
            _ => {
                if let Some(capture) = &mut inner.capture {
                    capture.forget(event.0);
                }
                *inner.event(event) = inner.queues.last(s);
            }
        }
        Ok(())
    }

    fn wait(&self, stream: Stream, event: Event) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        let s = inner.checked(stream);
        let marked = *inner.event(event);
        match &mut inner.capture {
            Some(capture) if capture.holds_event(event.0) => capture.wait(s, event.0),
            Some(capture) if capture.holds(s) => {
                return Err(DeviceError::NotCapturable("a wait for work outside the capture"));
            }
            _ => {
                if let Some(ticket) = marked {
                    inner.queues.push(s, Item::Wait(ticket));
                }
            }
        }
        Ok(())
    }

    fn launch(&self, stream: Stream, launch: &Launch) -> Result<(), DeviceError> {
        {
            let mut inner = self.lock();
            self.planted.load_module_of(launch.kernel)?;
            inner.memory.check(launch)?;
            let s = inner.checked(stream);
            let captured = inner.capture.as_ref().is_some_and(|c| c.holds(s));
            inner.counts.kernel_launches += u64::from(!captured);
        }
        self.submit_task(stream, Task::Launch(launch.clone()));
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
        {
            let mut inner = self.lock();
            assert!(offset + bytes <= from.bytes, "an upload past the end of pinned memory");
            assert!(inner.memory.holding(to, bytes).is_some(), "an upload outside device memory");
            inner.counts.uploads += 1;
        }
        self.submit_task(stream, Task::Upload(Upload { to, from, offset, bytes }));
        Ok(())
    }

    fn copy(&self, stream: Stream, copy: &DeviceCopy) -> Result<(), DeviceError> {
        let holds = |ptr| self.lock().memory.holding(ptr, copy.bytes).is_some();
        assert!(holds(copy.to) && holds(copy.from), "a copy outside of device memory");
        self.submit_task(stream, Task::Copy(*copy));
        Ok(())
    }

    fn ranks(&self) -> Ranks {
        self.member.as_ref().map_or(Ranks::ALONE, |member| member.ranks)
    }

    fn all_reduce(&self, stream: Stream, sum: &AllReduce) -> Result<(), DeviceError> {
        let holds = |ptr| self.lock().memory.holding(ptr, sum.bytes()).is_some();
        assert!(holds(sum.to) && holds(sum.from), "a sum outside of device memory");
        self.submit_task(stream, Task::AllReduce(*sum));
        Ok(())
    }

    fn upload_from(
        &self,
        stream: Stream,
        to: DevicePtr,
        from: &PinnedBuffer,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        {
            let mut inner = self.lock();
            inner.not_capturing("a copy of a buffer that its owner fills")?;
            assert!(inner.memory.holding(to, bytes).is_some(), "an upload outside device memory");
            inner.counts.uploads += 1;
        }
        let copy = from.memory::<StagingMemory>().copy(bytes);
        self.submit(stream, Command::UploadFrom { to, copy });
        Ok(())
    }

    fn download(
        &self,
        stream: Stream,
        from: DevicePtr,
        bytes: &mut [u8],
    ) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        inner.not_capturing("a read by the host")?;
        inner.checked(stream);
        inner.counts.downloads += 1;
        inner.counts.host_waits += 1;
        self.drain(&mut inner)?;
        if !bytes.is_empty() {
            inner.memory.read(from, bytes);
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        inner.not_capturing("a wait of the host")?;
        inner.counts.host_waits += 1;
        self.drain(&mut inner)
    }

    fn begin_capture(&self, stream: Stream) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        inner.not_capturing("a second capture")?;
        let s = inner.checked(stream);
        inner.capture = Some(Capture::new(s));
        Ok(())
    }

    fn end_capture(&self, stream: Stream) -> Result<GraphHandle, DeviceError> {
        let mut inner = self.lock();
        let s = inner.checked(stream);
        let Some(capture) = inner.capture.take().filter(|c| c.origin() == s) else {
            panic!("no capture began on {stream:?}");
        };
        let graph = capture.finish()?;
        inner.graphs.push(Some(Arc::new(graph)));
        Ok(GraphHandle(inner.graphs.len() as u32 - 1))
    }

    fn free_graph(&self, graph: GraphHandle) {
        let mut inner = self.lock();
        inner.graph(graph);
        inner.graphs[graph.0 as usize] = None;
    }

    fn replay(&self, graph: GraphHandle, stream: Stream) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        inner.not_capturing("a replay")?;
        let s = inner.checked(stream);
        inner.counts.graph_launches += 1;
        let graph = inner.graph(graph);
        inner.queues.push(s, Item::Replay(graph));
        Ok(())
    }

    fn idle(&self) -> Result<(), DeviceError> {
        let mut inner = self.lock();
        self.advance(&mut inner);
        inner.fault.clone().map_or(Ok(()), Err)
    }

    fn give_up(&self) {
        let (call, reason) = ("choosing the GPU".into(), "it was given up, as it hangs".into());
        self.lock().fault.get_or_insert(DeviceError::Driver { call, reason });
    }

    fn counts(&self) -> Counts {
        self.lock().counts
    }
}
