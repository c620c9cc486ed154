//! A program prepared for a device: schedule, plan and input layout, as data only.

use std::ops::Range;
use std::sync::Arc;

use device::{Buffer, DevicePtr, LaunchArgs, Target, Workspace};
use kernels::Precision;

use crate::capture::{Body, LaunchList, Work};
use crate::plan::ALIGNMENT;
use crate::{GraphError, Plan, Program, Schedule, TensorId, TensorKind};

/// A program with its schedule and memory plan for CUDA devices.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The program.
    pub program: Arc<Program>,
    /// The target for which schedule and plan were made.
    pub target: Target,
    /// Launch order and streams.
    pub schedule: Schedule,
    /// Offsets of the values in the arena.
    pub plan: Plan,
    /// Offset of each input in an input buffer, by tensor index.
    inputs: Vec<Option<usize>>,
    input_bytes: usize,
}

/// Maximum number of positions (elements divided by the last dimension) of a tensor on the CPU;
/// limits the memory of a plan.
const CPU_POSITIONS: usize = 1 << 29;
/// Maximum number of positions of a tensor on a GPU: kernels count positions in an `int`.
const GPU_POSITIONS: usize = i32::MAX as usize;

/// Rejects tensors with more positions than the target supports.
fn check_positions(program: &Program, target: &Target) -> Result<(), GraphError> {
    let limit = if target.is_cpu() { CPU_POSITIONS } else { GPU_POSITIONS };
    for tensor in program.tensors() {
        let shape = &tensor.desc.shape;
        let positions = shape.split_last().map_or(1, |(_, rest)| rest.iter().product());
        if positions > limit {
            let (tensor, shape) = (tensor.name.clone(), shape.clone());
            return Err(GraphError::TooManyPositions { tensor, shape, positions, limit });
        }
    }
    Ok(())
}

impl Prepared {
    /// Schedules the program for a target and plans its memory.
    ///
    /// # Errors
    /// State is read after its update; a tensor has more positions than the target supports.
    pub fn new(program: Arc<Program>, target: Target) -> Result<Self, GraphError> {
        check_positions(&program, &target)?;
        let schedule = Schedule::new(&program, &target)?;
        Ok(Self::with_schedule(program, schedule, target))
    }

    /// Plans the memory of a program for a schedule given by the caller.
    pub fn with_schedule(program: Arc<Program>, schedule: Schedule, target: Target) -> Self {
        let plan = Plan::new(&program, &schedule, &target);
        let mut inputs = vec![None; program.tensors().len()];
        let mut input_bytes = 0;
        for (id, tensor) in program.inputs() {
            inputs[id.index()] = Some(input_bytes);
            input_bytes += target.bytes(&tensor.desc).next_multiple_of(ALIGNMENT);
        }
        plan.log(&program, &schedule);
        Self { program, target, schedule, plan, inputs, input_bytes }
    }

    /// The precision of the program's tensors on a GPU.
    pub fn precision(&self) -> Precision {
        self.target.gpu().map_or(Precision::Fp32, |gpu| gpu.precision)
    }

    /// Bytes of all inputs, each aligned.
    pub fn input_bytes(&self) -> usize {
        self.input_bytes
    }

    /// Number of copies of the inputs in memory: on a GPU the two input buffers and the memory that
    /// the step reads.
    pub fn input_places(&self) -> usize {
        if self.target.is_cpu() { 1 } else { 3 }
    }

    /// The range of an input in an input buffer; `None` if the program has no such input.
    pub fn input_range(&self, name: &str) -> Option<Range<usize>> {
        let id = self.program.find(name)?;
        let offset = self.input_offset(id)?;
        Some(offset..offset + self.target.bytes(self.program.desc(id)))
    }

    /// Offset of an input in an input buffer.
    pub(super) fn input_offset(&self, id: TensorId) -> Option<usize> {
        self.inputs[id.index()]
    }

    /// The launches of all nodes, with the program's tensors at the addresses given by `place`.
    ///
    /// Panics if the plan is for the CPU, which has no launches.
    ///
    /// # Errors
    /// [`GraphError::MissingState`]; [`GraphError::NoLaunches`] names a CPU-only node.
    pub fn launches(&self, place: &Place<'_>) -> Result<LaunchList, GraphError> {
        let Target::Gpu(gpu) = &self.target else { panic!("launches of a plan for the CPU") };
        let mut list = LaunchList::default();
        for (position, launch) in self.schedule.launches().iter().enumerate() {
            let node = &self.program.nodes()[launch.node.index()];
            let buffers = |ids: &[TensorId]| -> Result<Vec<Buffer<'_>>, GraphError> {
                ids.iter().map(|id| self.buffer(*id, place)).collect()
            };
            let (offset, bytes) = self.plan.workspace(position).unwrap_or((0, 0));
            let args = LaunchArgs {
                gpu,
                inputs: buffers(&node.inputs)?,
                outputs: buffers(&node.outputs)?,
                updates: buffers(&node.updates)?,
                workspace: Workspace { ptr: place.arena + offset as DevicePtr, bytes },
            };
            let tasks = node.op.tasks(&args);
            let written = args.outputs.iter().chain(&args.updates).any(|b| !b.is_empty());
            if tasks.is_empty() && written {
                return Err(GraphError::NoLaunches(self.program.node_name(launch.node)));
            }
            list.push(Work {
                name: self.program.node_name(launch.node),
                body: Body::Tasks(tasks),
                stream: launch.stream,
                waits: launch.waits.clone(),
            });
        }
        Ok(list)
    }

    fn buffer(&self, id: TensorId, place: &Place<'_>) -> Result<Buffer<'_>, GraphError> {
        let tensor = &self.program.tensors()[id.index()];
        let missing = || GraphError::MissingState(tensor.name.clone());
        let ptr = self.address(id, place).ok_or_else(missing)?;
        Ok(Buffer { desc: &tensor.desc, ptr, precision: self.precision() })
    }

    /// Address of a tensor, if it has memory.
    pub(super) fn address(&self, id: TensorId, place: &Place<'_>) -> Option<DevicePtr> {
        let tensor = &self.program.tensors()[id.index()];
        match tensor.kind {
            TensorKind::State => (place.state)(&tensor.name),
            TensorKind::Input => self.input_offset(id).map(|o| place.inputs + o as DevicePtr),
            TensorKind::Value => self.plan.offset(id).map(|o| place.arena + o as DevicePtr),
        }
    }
}

/// The memory addresses for a program's launches.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// First byte of the arena.
    pub arena: DevicePtr,
    /// First byte of the inputs.
    pub inputs: DevicePtr,
    /// Address of each state tensor.
    pub state: &'a dyn Fn(&str) -> Option<DevicePtr>,
}
