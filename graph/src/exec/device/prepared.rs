//! A program made ready for a device: schedule, plan, and where its inputs lie. Data only.

use std::ops::Range;
use std::sync::Arc;

use kernels::TensorDesc;
use kernels::device::{Buffer, DeviceKind, DevicePtr, LaunchArgs, Workspace};

use crate::capture::{LaunchList, Task, Work};
use crate::plan::ALIGNMENT;
use crate::{GraphError, Plan, Program, Schedule, TensorId, TensorKind};

/// A program with its schedule and memory plan for CUDA devices.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The program.
    pub program: Arc<Program>,
    /// Order and streams.
    pub schedule: Schedule,
    /// Where values live in the arena.
    pub plan: Plan,
    /// Where each input lies in an input buffer, by tensor index.
    inputs: Vec<Option<usize>>,
    input_bytes: usize,
}

impl Prepared {
    /// Schedules the program on two streams and plans its memory.
    ///
    /// # Errors
    /// State read after its update.
    pub fn new(program: Arc<Program>) -> Result<Self, GraphError> {
        let schedule = Schedule::two_streams(&program)?;
        Ok(Self::with_schedule(program, schedule, DeviceKind::Cuda))
    }

    /// Plans the memory of a program with a schedule of the caller's, for a kind of device.
    pub fn with_schedule(program: Arc<Program>, schedule: Schedule, kind: DeviceKind) -> Self {
        let plan = Plan::new(&program, &schedule, kind);
        let mut inputs = vec![None; program.tensors().len()];
        let mut input_bytes = 0;
        for (id, tensor) in program.inputs() {
            inputs[id.index()] = Some(input_bytes);
            input_bytes += kind.bytes(&tensor.desc).next_multiple_of(ALIGNMENT);
        }
        Self { program, schedule, plan, inputs, input_bytes }
    }

    /// Bytes of all inputs, each aligned.
    pub fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// The bytes of an input buffer that this input takes; none if the program has no such input.
    pub fn input_range(&self, name: &str) -> Option<Range<usize>> {
        let id = self.program.find(name)?;
        let offset = self.input_offset(id)?;
        Some(offset..offset + self.program.desc(id).cuda_bytes())
    }

    /// Where an input lies in an input buffer.
    pub(super) fn input_offset(&self, id: TensorId) -> Option<usize> {
        self.inputs[id.index()]
    }

    /// The launches of all nodes, with the program's memory at these addresses.
    ///
    /// # Errors
    /// [`GraphError::MissingState`]; [`GraphError::NoLaunches`] names a node that only the CPU
    /// runs.
    pub fn launches(&self, place: &Place<'_>) -> Result<LaunchList, GraphError> {
        let mut list = LaunchList::default();
        for (position, launch) in self.schedule.launches().iter().enumerate() {
            let node = &self.program.nodes()[launch.node.index()];
            let buffers = |ids: &[TensorId]| -> Result<Vec<Buffer<'_>>, GraphError> {
                ids.iter().map(|id| self.buffer(*id, place)).collect()
            };
            let (offset, bytes) = self.plan.workspace(position).unwrap_or((0, 0));
            let args = LaunchArgs {
                inputs: buffers(&node.inputs)?,
                outputs: buffers(&node.outputs)?,
                updates: buffers(&node.updates)?,
                workspace: Workspace { ptr: place.arena + offset as DevicePtr, bytes },
            };
            let launches = node.op.launches(&args);
            let written = args.outputs.iter().chain(&args.updates).any(|b| !b.is_empty());
            if launches.is_empty() && written {
                return Err(GraphError::NoLaunches(self.program.node_name(launch.node)));
            }
            list.push(Work {
                name: self.program.node_name(launch.node),
                task: Task::Kernels(launches),
                stream: launch.stream,
                waits: launch.waits.clone(),
            });
        }
        Ok(list)
    }

    fn buffer(&self, id: TensorId, place: &Place<'_>) -> Result<Buffer<'_>, GraphError> {
        let tensor = &self.program.tensors()[id.index()];
        let desc: &TensorDesc = &tensor.desc;
        let in_arena = self.plan.offset(id).map(|offset| place.arena + offset as DevicePtr);
        let ptr = match tensor.kind {
            TensorKind::State => (place.state)(&tensor.name),
            TensorKind::Input => self.inputs[id.index()].map(|o| place.inputs + o as DevicePtr),
            TensorKind::Value => in_arena,
        };
        let missing = || GraphError::MissingState(tensor.name.clone());
        Ok(Buffer { desc, ptr: ptr.ok_or_else(missing)? })
    }
}

/// Addresses that a program's launches use.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// First byte of the arena.
    pub arena: DevicePtr,
    /// First byte of the inputs.
    pub inputs: DevicePtr,
    /// Where each state tensor is.
    pub state: &'a dyn Fn(&str) -> Option<DevicePtr>,
}
