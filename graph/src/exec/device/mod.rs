//! The device executor: each program is captured once; afterwards each step is one graph launch.
//!
//! All programs of an executor share one arena, one set of state and two input buffers. In each
//! step, the copy stream copies a batch from pinned host memory into the next input buffer, and one
//! graph launch runs the program. There is no host sync in a step: the graph's last kernel
//! increments a counter in mapped memory, which the host polls only when it is two steps ahead.

mod anatomy;
mod inputs;
mod log;
mod look;
mod prepared;
mod state;
mod stopwatch;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::step_ends::{StepEnds, finish_step, take_inputs};
use device::{Device, DeviceError, DevicePtr, Pinned, PinnedBuffer, Stream};
use kernels::cpu::HostTensor;
use kernels::on_device::host_tensor;

use crate::capture::{Body, CapturedGraph, LaunchList, Work};
use crate::plan::ALIGNMENT;
use crate::{GraphError, TensorId};

pub use anatomy::{GivenLaunches, OneStream, StampedStep};
pub use prepared::{Place, Prepared};
pub use state::DeviceState;
pub use stopwatch::{EventCost, Stopwatch};

use inputs::InputBuffer;
use look::Homes;

/// Bytes of host memory from which rows not in use are initialised.
const CHUNK: usize = 1 << 20;

/// Maximum time that the host waits for one step before it reports a hang.
const PATIENCE: Duration = Duration::from_secs(600);

/// Memory for the values of programs that run one at a time on a device.
#[derive(Debug)]
pub struct SharedArena {
    device: Arc<dyn Device>,
    ptr: DevicePtr,
    bytes: usize,
}

impl SharedArena {
    /// An arena large enough for any one of `programs` at a time.
    ///
    /// # Errors
    /// Device errors.
    pub fn new(device: Arc<dyn Device>, programs: &[&Prepared]) -> Result<Self, GraphError> {
        let bytes = programs.iter().map(|p| p.plan.arena_bytes()).max().unwrap_or(0);
        Self::of_bytes(device, bytes)
    }

    /// An arena of `bytes` bytes, for plans that need at most this size.
    ///
    /// # Errors
    /// Device errors.
    pub fn of_bytes(device: Arc<dyn Device>, bytes: usize) -> Result<Self, GraphError> {
        let ptr = device.alloc(bytes)?;
        Ok(Self { device, ptr, bytes })
    }

    /// Bytes of the arena.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for SharedArena {
    fn drop(&mut self) {
        // The error is ignored: a failing device has already reported one.
        let _ = self.device.free(self.ptr);
    }
}

/// Runs programs on a device, each as one captured graph.
#[derive(Debug)]
pub struct DeviceExecutor {
    device: Arc<dyn Device>,
    programs: Vec<Prepared>,
    /// The launch list from which each graph was captured.
    lists: Vec<LaunchList>,
    graphs: Vec<CapturedGraph>,
    /// Addresses of each program's tensors.
    homes: Vec<Homes>,
    arena: Arc<SharedArena>,
    buffers: [InputBuffer; 2],
    /// Length of an input buffer.
    buffer_bytes: usize,
    /// Staging memory for [`Self::write_input`], one per input buffer.
    staging: Option<[PinnedBuffer; 2]>,
    /// The program whose inputs were staged for the next step.
    brought: Option<usize>,
    inputs: DevicePtr,
    index: DevicePtr,
    done: Pinned,
    main: Stream,
    copies: Stream,
    submitted: u32,
}

impl DeviceExecutor {
    /// Captures the programs. `arena` and `state` must have been created for all of them.
    ///
    /// Panics if a program was planned for a different GPU model than this device's, or for a
    /// precision that differs from the state's.
    ///
    /// # Errors
    /// Work that cannot be captured; device errors.
    pub fn new(
        device: Arc<dyn Device>,
        programs: Vec<Prepared>,
        arena: Arc<SharedArena>,
        state: &DeviceState,
    ) -> Result<Self, GraphError> {
        for prepared in &programs {
            let planned = device.gpu().in_precision(state.precision());
            assert_eq!(prepared.target.gpu(), Some(&planned), "a plan for another target");
        }
        let bytes = programs.iter().map(Prepared::input_bytes).max().unwrap_or(0).max(ALIGNMENT);
        let buffer = || -> Result<InputBuffer, GraphError> {
            let (filled, free) = (device.event()?, device.event()?);
            Ok(InputBuffer { memory: device.alloc(bytes)?, filled, free })
        };
        let buffers = [buffer()?, buffer()?];
        let (inputs, index) = (device.alloc(bytes)?, device.alloc(ALIGNMENT)?);
        let (done, chunk) = (device.alloc_pinned(4)?, device.alloc_pinned(CHUNK)?);
        let (main, copies) = (device.stream()?, device.stream()?);
        device.upload(main, index, chunk, 0, 4)?;
        // Waits for this upload, and for steps of other executors that use the arena.
        device.synchronize()?;
        device.write_pinned(chunk, 0, &vec![0xFF; CHUNK]);
        programs.iter().try_for_each(|p| initialise_rows(p, &arena, main, chunk))?;
        device.synchronize()?;
        device.free_pinned(chunk)?;
        let ends = StepEnds {
            buffers: buffers.each_ref().map(|buffer| buffer.memory),
            bytes,
            index,
            inputs,
            done: done.device_ptr,
        };
        let address = |name: &str| state.ptr(name);
        let place = Place { arena: arena.ptr, inputs, state: &address };
        let lists = programs
            .iter()
            .map(|p| whole_step(p, &place, &ends))
            .collect::<Result<Vec<_>, GraphError>>()?;
        programs.iter().zip(&lists).for_each(|(program, list)| log::kernels(program, list));
        log::modules(device.as_ref(), &lists);
        let graphs = lists
            .iter()
            .map(|list| log::captured(device.as_ref(), list))
            .collect::<Result<_, GraphError>>()?;
        let homes = programs.iter().map(|p| p.homes(&place, state)).collect();
        // Waits for the upload of the graphs, which are replayed on a different stream.
        device.synchronize()?;
        Ok(Self {
            device,
            programs,
            lists,
            graphs,
            homes,
            arena,
            buffers,
            buffer_bytes: bytes,
            staging: None,
            brought: None,
            inputs,
            index,
            done,
            main,
            copies,
            submitted: 0,
        })
    }

    /// The programs, in the given order.
    pub fn programs(&self) -> &[Prepared] {
        &self.programs
    }

    /// The captured graphs of the programs.
    pub fn graphs(&self) -> &[CapturedGraph] {
        &self.graphs
    }

    /// The launch lists of the programs: first the inputs are copied from their buffer, then each
    /// launch of the schedule is one piece of work, finally the input buffers are switched.
    pub fn launch_lists(&self) -> &[LaunchList] {
        &self.lists
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        self.device.as_ref()
    }

    /// Bytes of device memory for inputs.
    pub fn input_bytes(&self) -> usize {
        3 * self.buffer_bytes
    }

    /// Bytes of the arena.
    pub fn arena_bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// Submits the next step as one graph launch. Its inputs must have been provided by
    /// [`Self::upload_inputs`], or by [`Self::write_input`], in which case this call starts their
    /// copy. Returns the step number, starting at 1, for [`Self::until_done`].
    ///
    /// # Errors
    /// Device errors.
    pub fn submit(&mut self, program: usize) -> Result<u32, GraphError> {
        self.take_inputs_of(program)?;
        self.device.replay(self.graphs[program].handle, self.main)?;
        self.close_step()
    }

    /// Marks the end of a step that was submitted to the main stream, and returns its number.
    fn close_step(&mut self) -> Result<u32, GraphError> {
        let buffer = &self.buffers[self.submitted as usize % 2];
        self.device.record(buffer.free, self.main)?;
        self.submitted = self.submitted.wrapping_add(1);
        Ok(self.submitted)
    }

    /// Number of steps submitted. Wraps to 0 at 2^32.
    pub fn submitted(&self) -> u32 {
        self.submitted
    }

    /// True if step `step` is done, so that the memory of its inputs can be written again.
    pub fn is_done(&self, step: u32) -> bool {
        !is_before(self.done(), step)
    }

    /// Number of steps that the device has completed, read from the mapped counter. Wraps to 0 at
    /// 2^32.
    pub fn done(&self) -> u32 {
        let mut bytes = [0; 4];
        self.device.read_pinned(self.done, 0, &mut bytes);
        u32::from_ne_bytes(bytes)
    }

    /// Sleeps until `step` steps are done. Polls memory; never calls the device.
    ///
    /// # Errors
    /// A device error; [`GraphError::Hangs`] after ten minutes.
    ///
    /// # Panics
    /// Panics if `step` was not submitted, since it would never be done.
    pub fn until_done(&self, step: u32) -> Result<(), GraphError> {
        self.until_done_within(step, PATIENCE)
    }

    fn until_done_within(&self, step: u32, limit: Duration) -> Result<(), GraphError> {
        assert!(!is_before(self.submitted, step), "step {step} of {}", self.submitted);
        let started = Instant::now();
        while !self.is_done(step) {
            self.device.idle()?;
            if started.elapsed() > limit {
                // Before reporting this error the caller drops the executor, which would wait for
                // the step.
                self.device.give_up();
                return Err(GraphError::Hangs { step, seconds: limit.as_secs() });
            }
        }
        Ok(())
    }

    /// Reads a kept tensor or an input of the last step, with floats widened to f32. Waits for the
    /// device.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`]; a device error.
    pub fn read(&self, program: usize, name: &str) -> Result<HostTensor, GraphError> {
        let unknown = || GraphError::UnknownTensor(name.to_string());
        let prepared = &self.programs[program];
        let id: TensorId = prepared.program.find(name).ok_or_else(unknown)?;
        let value = prepared.plan.offset(id).map(|o| self.arena.ptr + o as DevicePtr);
        let input = prepared.input_offset(id).map(|o| self.inputs + o as DevicePtr);
        let desc = prepared.program.desc(id);
        let mut bytes = vec![0; prepared.target.bytes(desc)];
        let ptr = value.or(input).ok_or_else(unknown)?;
        self.device.download(self.main, ptr, &mut bytes)?;
        Ok(host_tensor(prepared.precision(), desc, &bytes))
    }
}

/// Initialises the tensors of which ops write only the rows in use: element-wise ops read all rows.
/// Each value becomes NaN, so that no result can depend on such a row unnoticed.
fn initialise_rows(
    prepared: &Prepared,
    arena: &SharedArena,
    stream: Stream,
    nan: Pinned,
) -> Result<(), DeviceError> {
    let Prepared { program, target, plan, .. } = prepared;
    let counted = program.nodes().iter().filter(|node| node.op.traits().count_input.is_some());
    for tensor in counted.flat_map(|node| &node.outputs) {
        let Some(offset) = plan.offset(*tensor) else { continue };
        let bytes = target.bytes(program.desc(*tensor));
        for begin in (0..bytes).step_by(CHUNK) {
            let to = arena.ptr + (offset + begin) as DevicePtr;
            arena.device.upload(stream, to, nan, 0, CHUNK.min(bytes - begin))?;
        }
    }
    Ok(())
}

/// True if step `a` is before step `b`, even if the step number has wrapped between them.
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Drop for DeviceExecutor {
    fn drop(&mut self) {
        let [first, second] = self.buffers.each_ref().map(|buffer| buffer.memory);
        for ptr in [first, second, self.inputs, self.index] {
            // The error is ignored: a failing device has already reported one.
            let _ = self.device.free(ptr);
        }
        let _ = self.device.free_pinned(self.done);
        self.graphs.iter().for_each(|graph| self.device.free_graph(graph.handle));
        for InputBuffer { filled, free, .. } in &self.buffers {
            self.device.free_event(*filled);
            self.device.free_event(*free);
        }
        self.device.free_stream(self.main);
        self.device.free_stream(self.copies);
    }
}

/// The launches of a step: copy the inputs from their buffer, run the nodes, switch the buffers.
fn whole_step(
    prepared: &Prepared,
    place: &Place<'_>,
    ends: &StepEnds,
) -> Result<LaunchList, GraphError> {
    let mut list = LaunchList::default();
    let take = take_inputs(ends, prepared.input_bytes());
    list.push(Work::new("take_inputs", vec![take.into()]));
    let nodes = prepared.launches(place)?;
    // The last piece of work on each stream except the main stream.
    let mut beside = BTreeMap::new();
    for work in nodes.works() {
        let mut work = work.clone();
        // All nodes run after the copy of the inputs, which is at index 0 of the list.
        work.waits.iter_mut().for_each(|w| *w += 1);
        if work.stream > 0 && work.waits.is_empty() {
            work.waits.push(0);
        }
        let stream = work.stream;
        let position = list.push(work);
        if stream > 0 {
            beside.insert(stream, position);
        }
    }
    // The end of the step waits for all streams, so a step that counts as done is done on every
    // stream.
    let body = Body::Tasks(vec![finish_step(ends).into()]);
    let waits = beside.into_values().collect();
    list.push(Work { name: "finish_step".into(), body, stream: 0, waits });
    Ok(list)
}
