//! The CPU executor: f32, launches in order, memory planned once.

use std::sync::Arc;
use std::time::Instant;

use bytemuck::{cast_slice, cast_slice_mut};
use kernels::TensorDesc;
use kernels::cpu::{CpuArgs, HostTensor, TensorMut, TensorRef};

use super::arena::{Arena, Piece};
use crate::{GraphError, Plan, Program, Schedule, StateSet, TensorId, TensorKind};

/// Runs a program on the CPU.
#[derive(Debug)]
pub struct CpuExecutor {
    program: Arc<Program>,
    schedule: Schedule,
    plan: Plan,
    arena: Arena,
    inputs: Vec<Option<HostTensor>>,
    states: Vec<Option<usize>>,
    output_descs: Vec<Vec<TensorDesc>>,
    seconds: Vec<f64>,
    runs: u64,
}

impl CpuExecutor {
    /// Plans and allocates a program whose state lives in `state`.
    ///
    /// # Errors
    /// State missing from the set or of another shape; state read after its update.
    pub fn new(program: Arc<Program>, state: &StateSet) -> Result<Self, GraphError> {
        let schedule = Schedule::single_stream(&program)?;
        let plan = Plan::new(&program, &schedule);
        let states = state.bind(&program)?;
        let inputs = program
            .tensors()
            .iter()
            .map(|t| (t.kind == TensorKind::Input).then(|| HostTensor::poisoned(t.desc.clone())))
            .collect();
        let output_descs = program
            .nodes()
            .iter()
            .map(|n| n.outputs.iter().map(|t| program.desc(*t).clone()).collect())
            .collect();
        let seconds = vec![0.0; program.nodes().len()];
        let arena = Arena::new(plan.arena_bytes());
        Ok(Self { program, schedule, plan, arena, inputs, states, output_descs, seconds, runs: 0 })
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The memory plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The schedule.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// An input, to write.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`] if no input has this name.
    pub fn input_mut(&mut self, name: &str) -> Result<&mut HostTensor, GraphError> {
        let unknown = || GraphError::UnknownTensor(name.to_string());
        let id = self.program.find(name).ok_or_else(unknown)?;
        self.inputs[id.index()].as_mut().ok_or_else(unknown)
    }

    /// Several inputs at once, to write, in the order of `names`.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`] if no input has one of the names, or a name comes twice.
    pub fn inputs_mut<const N: usize>(
        &mut self,
        names: [&str; N],
    ) -> Result<[&mut HostTensor; N], GraphError> {
        let unknown = |name: &str| GraphError::UnknownTensor(name.to_string());
        let mut found: [Option<&mut HostTensor>; N] = [const { None }; N];
        for (tensor, info) in self.inputs.iter_mut().zip(self.program.tensors()) {
            if let Some(i) = names.iter().position(|n| *n == info.name) {
                found[i] = tensor.as_mut();
            }
        }
        if let Some(i) = found.iter().position(Option::is_none) {
            return Err(unknown(names[i]));
        }
        Ok(found.map(|t| match t {
            Some(t) => t,
            None => unreachable!("checked above"),
        }))
    }

    /// A kept tensor's f32 elements, as the last run left them.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`] if no kept tensor has this name.
    pub fn f32(&self, name: &str) -> Result<&[f32], GraphError> {
        self.bytes(name).map(cast_slice)
    }

    /// A kept tensor's i32 elements, as the last run left them.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`] if no kept tensor has this name.
    pub fn i32(&self, name: &str) -> Result<&[i32], GraphError> {
        self.bytes(name).map(cast_slice)
    }

    fn bytes(&self, name: &str) -> Result<&[u8], GraphError> {
        let unknown = || GraphError::UnknownTensor(name.to_string());
        let id = self.program.find(name).ok_or_else(unknown)?;
        match &self.inputs[id.index()] {
            Some(input) => Ok(input.bytes()),
            None => Ok(self.arena.read(self.piece(id).ok_or_else(unknown)?)),
        }
    }

    /// Runs the program once.
    pub fn run(&mut self, state: &mut StateSet) {
        for position in 0..self.schedule.launches().len() {
            let started = Instant::now();
            self.launch(position, state);
            self.seconds[position] += started.elapsed().as_secs_f64();
        }
        self.runs += 1;
    }

    /// Mean seconds a run of each node, in launch order.
    pub fn node_seconds(&self) -> Vec<f64> {
        self.seconds.iter().map(|s| s / self.runs.max(1) as f64).collect()
    }

    /// Runs since the timers were reset.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Forgets the times measured so far.
    pub fn reset_timers(&mut self) {
        self.seconds.fill(0.0);
        self.runs = 0;
    }

    fn piece(&self, tensor: TensorId) -> Option<Piece> {
        let bytes = self.program.desc(tensor).cpu_bytes();
        self.plan.offset(tensor).map(|offset| Piece { offset, bytes })
    }

    fn launch(&mut self, position: usize, state: &mut StateSet) {
        let program = self.program.clone();
        let node = &program.nodes()[self.schedule.launches()[position].node.index()];
        let read: Vec<Piece> = node.inputs.iter().filter_map(|t| self.piece(*t)).collect();
        let mut write: Vec<Piece> = node.outputs.iter().filter_map(|t| self.piece(*t)).collect();
        let scratch = self.plan.workspace_offset(position).map(|offset| {
            let descs = |list: &[TensorId]| -> Vec<TensorDesc> {
                list.iter().map(|t| program.desc(*t).clone()).collect()
            };
            let len = node.op.cpu_workspace_len(&descs(&node.inputs), &descs(&node.outputs));
            Piece { offset, bytes: 4 * len }
        });
        write.extend(scratch);
        let (read, mut write) = self.arena.split(&read, &write);
        let workspace: &mut [f32] = match scratch.and_then(|_| write.pop()) {
            Some(bytes) => cast_slice_mut(bytes),
            None => &mut [],
        };
        let mut read = read.into_iter();
        // State is read by reference and updated by taking it out of the list: a node that did both
        // would find it gone, but the schedule refuses such programs.
        let mut states: Vec<Option<&mut HostTensor>> =
            state.tensors_mut().iter_mut().map(Some).collect();
        let mut slot = |t: &TensorId| self.states[t.index()].and_then(|slot| states[slot].take());
        let updates: Vec<_> = node.updates.iter().filter_map(&mut slot).collect();
        let states: Vec<Option<&HostTensor>> = states.into_iter().map(|s| s.map(|s| &*s)).collect();
        let inputs = node.inputs.iter().map(|t| {
            let own = self.inputs[t.index()].as_ref();
            let shared = self.states[t.index()].and_then(|slot| states[slot]);
            match own.or(shared) {
                Some(tensor) => tensor.view(),
                None => match read.next() {
                    Some(bytes) => TensorRef::new(program.desc(*t), bytes),
                    None => panic!("{} reads a tensor that nothing wrote", node.op.name()),
                },
            }
        });
        let outputs = write.into_iter().zip(&self.output_descs[position]);
        let mut args = CpuArgs {
            inputs: inputs.collect(),
            outputs: outputs.map(|(bytes, desc)| TensorMut::new(desc, bytes)).collect(),
            updates: updates.into_iter().map(HostTensor::view_mut).collect(),
            workspace,
        };
        node.op.run_cpu(&mut args);
    }
}
