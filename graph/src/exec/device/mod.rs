//! The device executor: each program captured once, then one launch a step.
//!
//! All programs of an executor share one arena, one set of state and two input slots. A step is:
//! the host writes the batch into the staging memory of the next slot, the copy stream brings it
//! over, and one graph launch does the rest. The host never waits for the device in it: it looks at
//! a count in mapped memory that the graph's last kernel raises, and only when it is two steps
//! ahead.

mod anatomy;
mod look;
mod prepared;
mod state;
mod stopwatch;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use device::slots::{Slots, finish_step, take_slot};
use device::{Device, DevicePtr, Event, Pinned, Stream};
use kernels::cpu::HostTensor;
use kernels::on_device::host_tensor;

use crate::capture::{Body, CapturedGraph, LaunchList, Work, capture};
use crate::plan::ALIGNMENT;
use crate::{GraphError, TensorId};

pub use anatomy::{GivenLaunches, OneStream, StampedStep};
pub use look::{Look, Seen};
pub use prepared::{Place, Prepared};
pub use state::DeviceState;
pub use stopwatch::{EventCost, Stopwatch};

use look::Homes;

/// How long the host waits for one step before it says that the device hangs.
const PATIENCE: Duration = Duration::from_secs(600);

/// Memory for the values of programs that run one after the other on a device.
#[derive(Debug)]
pub struct SharedArena {
    device: Arc<dyn Device>,
    ptr: DevicePtr,
    bytes: usize,
}

impl SharedArena {
    /// An arena that holds any one of `programs` at a time.
    ///
    /// # Errors
    /// The device's own.
    pub fn new(device: Arc<dyn Device>, programs: &[&Prepared]) -> Result<Self, GraphError> {
        let bytes = programs.iter().map(|p| p.plan.arena_bytes()).max().unwrap_or(0);
        let ptr = device.alloc(bytes)?;
        Ok(Self { device, ptr, bytes })
    }

    /// Its length.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for SharedArena {
    fn drop(&mut self) {
        // A device that fails here has said so before.
        let _ = self.device.free(self.ptr);
    }
}

/// One of the two places that inputs alternate between.
#[derive(Debug)]
struct Slot {
    memory: DevicePtr,
    staging: Pinned,
    /// Marks the end of the copy into the slot.
    filled: Event,
    /// Marks the end of the step that read it.
    free: Event,
}

/// Runs programs on a device, each as one captured graph.
#[derive(Debug)]
pub struct DeviceExecutor {
    device: Arc<dyn Device>,
    programs: Vec<Prepared>,
    /// What each graph was captured from.
    lists: Vec<LaunchList>,
    graphs: Vec<CapturedGraph>,
    /// Where the tensors of each program lie.
    homes: Vec<Homes>,
    arena: Arc<SharedArena>,
    slots: [Slot; 2],
    inputs: DevicePtr,
    index: DevicePtr,
    done: Pinned,
    main: Stream,
    copies: Stream,
    submitted: u32,
}

impl DeviceExecutor {
    /// Captures the programs. `arena` and `state` must have been made with all of them.
    ///
    /// Panics if a program was planned for another GPU than this device.
    ///
    /// # Errors
    /// What cannot be captured; the device's own.
    pub fn new(
        device: Arc<dyn Device>,
        programs: Vec<Prepared>,
        arena: Arc<SharedArena>,
        state: &DeviceState,
    ) -> Result<Self, GraphError> {
        for prepared in &programs {
            let planned = prepared.target.gpu();
            assert_eq!(planned, Some(device.gpu()), "a plan for another target");
        }
        let bytes = programs.iter().map(Prepared::input_bytes).max().unwrap_or(0).max(ALIGNMENT);
        let slot = || -> Result<Slot, GraphError> {
            Ok(Slot {
                memory: device.alloc(bytes)?,
                staging: device.alloc_pinned(bytes)?,
                filled: device.event()?,
                free: device.event()?,
            })
        };
        let slots = [slot()?, slot()?];
        let (inputs, index) = (device.alloc(bytes)?, device.alloc(ALIGNMENT)?);
        let (done, zero) = (device.alloc_pinned(4)?, device.alloc_pinned(4)?);
        let (main, copies) = (device.stream()?, device.stream()?);
        device.upload(main, index, zero, 0, 4)?;
        device.synchronize()?;
        device.free_pinned(zero)?;
        let ends = Slots {
            slots: [slots[0].memory, slots[1].memory],
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
        let graphs = lists
            .iter()
            .map(|list| Ok(capture(device.as_ref(), list)?))
            .collect::<Result<_, GraphError>>()?;
        let homes = programs.iter().map(|p| p.homes(&place, state)).collect();
        // Graphs are uploaded on the stream of their capture, and replayed on another.
        device.synchronize()?;
        Ok(Self {
            device,
            programs,
            lists,
            graphs,
            homes,
            arena,
            slots,
            inputs,
            index,
            done,
            main,
            copies,
            submitted: 0,
        })
    }

    /// The programs, as they were given.
    pub fn programs(&self) -> &[Prepared] {
        &self.programs
    }

    /// Their captured graphs.
    pub fn graphs(&self) -> &[CapturedGraph] {
        &self.graphs
    }

    /// What their graphs were captured from: the inputs come from their slot, then each launch of
    /// the schedule is one work, then the turn is over.
    pub fn launch_lists(&self) -> &[LaunchList] {
        &self.lists
    }

    /// The device.
    pub fn device(&self) -> &dyn Device {
        self.device.as_ref()
    }

    /// Bytes of device memory for inputs.
    pub fn input_bytes(&self) -> usize {
        3 * self.slots[0].staging.bytes
    }

    /// Bytes of the arena.
    pub fn arena_bytes(&self) -> usize {
        self.arena.bytes()
    }

    /// Writes the head of an input of the next step; each is written for each step. What follows
    /// the head holds anything: bytes of an earlier step, maybe of another program. A program reads
    /// no more of it than its counts say. Waits only for the last step but one, which read the
    /// slot.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`] if the program has no such input; a fault of the device.
    pub fn write_input(
        &mut self,
        program: usize,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), GraphError> {
        self.until_done(self.submitted.wrapping_sub(1))?;
        let unknown = || GraphError::UnknownTensor(name.to_string());
        let prepared = &self.programs[program];
        let id = prepared.program.find(name).ok_or_else(unknown)?;
        let offset = prepared.input_offset(id).ok_or_else(unknown)?;
        let room = prepared.program.desc(id).cuda_bytes();
        assert!(bytes.len() <= room, "{} bytes for `{name}`, which has {room}", bytes.len());
        let slot = &self.slots[self.submitted as usize % 2];
        self.device.write_pinned(slot.staging, offset, bytes);
        Ok(())
    }

    /// Starts the next step: the copy of its inputs, then one graph launch. Returns its number,
    /// from 1, for [`Self::until_done`].
    ///
    /// # Errors
    /// The device's own.
    pub fn submit(&mut self, program: usize) -> Result<u32, GraphError> {
        self.bring_inputs(program)?;
        self.device.replay(self.graphs[program].handle, self.main)?;
        self.close_step()
    }

    /// Copies the inputs into their slot; what follows on the main stream finds them there.
    fn bring_inputs(&self, program: usize) -> Result<(), GraphError> {
        let bytes = self.programs[program].input_bytes();
        let slot = &self.slots[self.submitted as usize % 2];
        let device = self.device.as_ref();
        // An event that was never recorded holds nobody up.
        device.wait(self.copies, slot.free)?;
        device.upload(self.copies, slot.memory, slot.staging, 0, bytes)?;
        device.record(slot.filled, self.copies)?;
        device.wait(self.main, slot.filled)?;
        Ok(())
    }

    /// Marks the end of a step that was given to the main stream, and returns its number.
    fn close_step(&mut self) -> Result<u32, GraphError> {
        let slot = &self.slots[self.submitted as usize % 2];
        self.device.record(slot.free, self.main)?;
        self.submitted = self.submitted.wrapping_add(1);
        Ok(self.submitted)
    }

    /// Steps given to the device. Begins again at 0 after 2^32.
    pub fn submitted(&self) -> u32 {
        self.submitted
    }

    /// Steps that the device has finished, as the mapped count says. Begins again at 0 after 2^32.
    pub fn done(&self) -> u32 {
        let mut bytes = [0; 4];
        self.device.read_pinned(self.done, 0, &mut bytes);
        u32::from_ne_bytes(bytes)
    }

    /// Sleeps until `step` steps are done. Looks at memory; asks nothing of the device.
    ///
    /// # Errors
    /// A fault of the device; [`GraphError::Hangs`] after ten minutes.
    ///
    /// # Panics
    /// If `step` was not submitted: it would never be done.
    pub fn until_done(&self, step: u32) -> Result<(), GraphError> {
        assert!(!is_before(self.submitted, step), "step {step} of {}", self.submitted);
        let started = Instant::now();
        while is_before(self.done(), step) {
            self.device.idle()?;
            if started.elapsed() > PATIENCE {
                return Err(GraphError::Hangs { step, seconds: PATIENCE.as_secs() });
            }
        }
        Ok(())
    }

    /// A kept tensor, an input or state-free value of the last step, floats widened to f32. Waits
    /// for the device.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`]; a fault of the device.
    pub fn read(&self, program: usize, name: &str) -> Result<HostTensor, GraphError> {
        let unknown = || GraphError::UnknownTensor(name.to_string());
        let prepared = &self.programs[program];
        let id: TensorId = prepared.program.find(name).ok_or_else(unknown)?;
        let value = prepared.plan.offset(id).map(|o| self.arena.ptr + o as DevicePtr);
        let input = prepared.input_offset(id).map(|o| self.inputs + o as DevicePtr);
        let desc = prepared.program.desc(id);
        let mut bytes = vec![0; desc.cuda_bytes()];
        let ptr = value.or(input).ok_or_else(unknown)?;
        self.device.download(self.main, ptr, &mut bytes)?;
        Ok(host_tensor(desc, &bytes))
    }
}

/// True if step `a` comes before step `b`; numbers go round.
fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

impl Drop for DeviceExecutor {
    fn drop(&mut self) {
        for ptr in [self.slots[0].memory, self.slots[1].memory, self.inputs, self.index] {
            // A device that fails here has said so before.
            let _ = self.device.free(ptr);
        }
        for pinned in [self.slots[0].staging, self.slots[1].staging, self.done] {
            let _ = self.device.free_pinned(pinned);
        }
    }
}

/// The launches of a step: the inputs come from their slot, the nodes, then the turn is over.
fn whole_step(
    prepared: &Prepared,
    place: &Place<'_>,
    ends: &Slots,
) -> Result<LaunchList, GraphError> {
    let mut list = LaunchList::default();
    let take = take_slot(ends, prepared.input_bytes());
    list.push(Work::new("take_slot", vec![take.into()]));
    let nodes = prepared.launches(place)?;
    // The last work of each stream beside the main line.
    let mut beside = BTreeMap::new();
    for work in nodes.works() {
        let mut work = work.clone();
        // Everything comes after the inputs were taken.
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
    // A step that is counted as done is done on every stream.
    let body = Body::Tasks(vec![finish_step(ends).into()]);
    let waits = beside.into_values().collect();
    list.push(Work { name: "finish_step".into(), body, stream: 0, waits });
    Ok(list)
}
