//! The CPU executor: f32, launches in order, memory planned once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use bytemuck::{cast_slice, cast_slice_mut};
use device::Target;
use kernels::DType;
use kernels::cpu::{CpuArgs, HostTensor, TensorMut, TensorRef};
use kernels::isa::GemmSettings;

use super::arena::{Arena, CpuArena, Piece};
use super::device::Prepared;
use super::{Look, Seen};
use crate::{GraphError, Plan, Program, Schedule, StateSet, TensorId, TensorKind};

/// Runs a program on the CPU.
#[derive(Debug)]
pub struct CpuExecutor {
    program: Arc<Program>,
    schedule: Schedule,
    plan: Plan,
    arena: CpuArena,
    /// Kept values of the last run, copied because another program may use the arena afterwards.
    kept: BTreeMap<TensorId, HostTensor>,
    inputs: Vec<Option<HostTensor>>,
    states: Vec<Option<usize>>,
    bindings: Vec<Binding>,
    seconds: Vec<f64>,
    runs: u64,
    products: GemmSettings,
}

/// The tensors of one launch, looked up when the executor is created.
#[derive(Debug)]
struct Binding {
    inputs: Vec<Place>,
    /// Values that the launch reads, in the order of the [`Place::Value`]s.
    read: Vec<Piece>,
    /// Outputs of the launch, then its scratch memory, if any.
    write: Vec<Piece>,
    has_scratch: bool,
    /// Indices of the updated tensors in the state set.
    updates: Vec<usize>,
}

/// The location of a tensor.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// An input of the program, by tensor index.
    Input(usize),
    /// Index in the state set.
    State(usize),
    /// In the arena.
    Value,
}

impl Binding {
    fn new(
        program: &Program,
        schedule: &Schedule,
        plan: &Plan,
        states: &[Option<usize>],
        position: usize,
    ) -> Self {
        let node = &program.nodes()[schedule.launches()[position].node.index()];
        let piece = |t: &TensorId| {
            let bytes = program.desc(*t).cpu_bytes();
            plan.offset(*t).map(|offset| Piece { offset, bytes })
        };
        let place = |t: &TensorId| match (program.tensors()[t.index()].kind, states[t.index()]) {
            (_, Some(position)) => Place::State(position),
            (TensorKind::Input, None) => Place::Input(t.index()),
            _ => match plan.offset(*t) {
                Some(_) => Place::Value,
                None => panic!("{} reads a tensor that no node writes", node.op.name()),
            },
        };
        let mut write: Vec<Piece> = node.outputs.iter().filter_map(piece).collect();
        let scratch = plan.workspace(position).map(|(offset, bytes)| Piece { offset, bytes });
        write.extend(scratch);
        Self {
            inputs: node.inputs.iter().map(place).collect(),
            read: node.inputs.iter().filter_map(piece).collect(),
            write,
            has_scratch: scratch.is_some(),
            updates: node.updates.iter().filter_map(|t| states[t.index()]).collect(),
        }
    }
}

impl CpuExecutor {
    /// Plans a program with state in `state` and its own arena, in which every f32 is NaN until it
    /// is written.
    ///
    /// # Errors
    /// As for [`Self::in_arena`]; state read after its update.
    pub fn new(program: Arc<Program>, state: &StateSet) -> Result<Self, GraphError> {
        let arena = CpuArena::default();
        let executor = Self::in_arena(Prepared::new(program, Target::Cpu)?, state, &arena)?;
        arena.poison(0xFF);
        Ok(executor)
    }

    /// An executor of a planned program with state in `state`, whose values are in `arena` during a
    /// run.
    ///
    /// # Errors
    /// State is missing from the set or has a different shape; memory is exhausted.
    pub fn in_arena(
        prepared: Prepared,
        state: &StateSet,
        arena: &CpuArena,
    ) -> Result<Self, GraphError> {
        let Prepared { program, schedule, plan, .. } = prepared;
        let states = state.bind(&program)?;
        let inputs = program
            .tensors()
            .iter()
            .map(|t| (t.kind == TensorKind::Input).then(|| HostTensor::poisoned(t.desc.clone())))
            .collect();
        let bind = |i| Binding::new(&program, &schedule, &plan, &states, i);
        let bindings = (0..schedule.launches().len()).map(bind).collect();
        let seconds = vec![0.0; program.nodes().len()];
        let kept = program.kept_names().into_iter().filter(|(_, id)| plan.offset(*id).is_some());
        let kept = kept.map(|(_, id)| (id, HostTensor::poisoned(program.desc(id).clone())));
        let kept = kept.collect();
        arena.reserve(plan.arena_bytes())?;
        Ok(Self {
            program,
            schedule,
            plan,
            arena: arena.clone(),
            kept,
            inputs,
            states,
            bindings,
            seconds,
            runs: 0,
            products: GemmSettings::PLAIN,
        })
    }

    /// Replaces the GEMM settings, which are [`GemmSettings::PLAIN`] by default.
    #[must_use]
    pub fn taking(self, products: GemmSettings) -> Self {
        Self { products, ..self }
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

    /// Mutable access to an input.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`] if no input has this name.
    pub fn input_mut(&mut self, name: &str) -> Result<&mut HostTensor, GraphError> {
        let unknown = || GraphError::UnknownTensor(name.to_string());
        let id = self.program.find(name).ok_or_else(unknown)?;
        self.inputs[id.index()].as_mut().ok_or_else(unknown)
    }

    /// Mutable access to several inputs at once, in the order of `names`.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`] if a name is not an input, or appears twice.
    pub fn inputs_mut<const N: usize>(
        &mut self,
        names: [&str; N],
    ) -> Result<[&mut HostTensor; N], GraphError> {
        let unknown = |name: &str| GraphError::UnknownTensor(name.to_string());
        let mut found: [Option<&mut HostTensor>; N] = [const { None }; N];
        // Only inputs are searched: a value may have the same name as an input.
        for (tensor, info) in self.inputs.iter_mut().zip(self.program.tensors()) {
            let Some(tensor) = tensor else { continue };
            if let Some(i) = names.iter().position(|n| *n == info.name) {
                found[i] = Some(tensor);
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

    /// The f32 elements of a kept tensor after the last run; read state from the state set.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`] if no kept tensor has this name, [`GraphError::WrongType`] if
    /// it has other elements.
    pub fn f32(&self, name: &str) -> Result<&[f32], GraphError> {
        self.bytes(name, DType::F32).map(cast_slice)
    }

    /// The i32 elements of a kept tensor after the last run; read state from the state set.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`] if no kept tensor has this name, [`GraphError::WrongType`] if
    /// it has other elements.
    pub fn i32(&self, name: &str) -> Result<&[i32], GraphError> {
        self.bytes(name, DType::I32).map(cast_slice)
    }

    /// A copy of a kept tensor or input.
    ///
    /// # Errors
    /// [`GraphError::UnknownTensor`] if no kept tensor has this name.
    pub fn read(&self, name: &str) -> Result<HostTensor, GraphError> {
        let unknown = || GraphError::UnknownTensor(name.to_string());
        let id = self.program.find(name).ok_or_else(unknown)?;
        let mut tensor = HostTensor::poisoned(self.program.desc(id).clone());
        let bytes = self.bytes(name, tensor.desc.role.cpu_dtype())?;
        tensor.bytes_mut().copy_from_slice(bytes);
        Ok(tensor)
    }

    fn bytes(&self, name: &str, expected: DType) -> Result<&[u8], GraphError> {
        let unknown = || GraphError::UnknownTensor(name.to_string());
        let id = self.program.find(name).ok_or_else(unknown)?;
        let desc = self.program.desc(id);
        if desc.role.cpu_dtype() != expected {
            return Err(GraphError::WrongType {
                name: name.to_string(),
                expected: format!("{expected:?}"),
                got: format!("{:?} ({desc:?})", desc.role.cpu_dtype()),
            });
        }
        let found = self.inputs[id.index()].as_ref().or(self.kept.get(&id));
        found.map(HostTensor::bytes).ok_or_else(unknown)
    }

    /// Runs the program once. Results never depend on the arena's previous contents.
    ///
    /// Panics if the layout of `state` differs from that of the set passed at creation.
    pub fn run(&mut self, state: &mut StateSet) {
        self.run_while(state, || true);
    }

    /// Runs the program once, but stops before the first launch for which `go_on` returns false.
    /// Returns true if the run is complete; after a partial run, kept tensors are meaningless.
    ///
    /// Panics as [`Self::run`] does.
    pub fn run_while(&mut self, state: &mut StateSet, go_on: impl Fn() -> bool) -> bool {
        let bound = state.is_bound(&self.program, &self.states);
        assert!(bound, "the state set is not laid out as the one that the executor was made with");
        let arena = self.arena.clone();
        let mut arena = arena.lock();
        for position in 0..self.schedule.launches().len() {
            if !go_on() {
                return false;
            }
            let started = Instant::now();
            self.launch(position, state, &mut arena);
            self.seconds[position] += started.elapsed().as_secs_f64();
        }
        self.finish(&arena);
        true
    }

    /// Copies the kept values out of the arena.
    fn finish(&mut self, arena: &Arena) {
        for (id, tensor) in &mut self.kept {
            if let Some(offset) = self.plan.offset(*id) {
                let piece = Piece { offset, bytes: tensor.desc.cpu_bytes() };
                tensor.bytes_mut().copy_from_slice(arena.read(piece));
            }
        }
        self.runs += 1;
    }

    /// Like [`Self::run`]; `look` gets the tensors of the nodes that it requests.
    ///
    /// Panics as [`Self::run`] does.
    pub fn run_watched(&mut self, state: &mut StateSet, look: &mut dyn Look) {
        let bound = state.is_bound(&self.program, &self.states);
        assert!(bound, "the state set is not laid out as the one that the executor was made with");
        let (program, arena) = (self.program.clone(), self.arena.clone());
        let mut arena = arena.lock();
        for position in 0..self.schedule.launches().len() {
            let node = self.schedule.launches()[position].node;
            if !look.wants(&program, node) {
                self.launch(position, state, &mut arena);
                continue;
            }
            let of = &program.nodes()[node.index()];
            let (inputs, before) =
                (self.copies(&of.inputs, state, &arena), self.copies(&of.updates, state, &arena));
            self.launch(position, state, &mut arena);
            let (outputs, after) =
                (self.copies(&of.outputs, state, &arena), self.copies(&of.updates, state, &arena));
            look.see(&program, Seen { node, inputs, before, outputs, after });
        }
        self.finish(&arena);
    }

    /// Copies of tensors of the launch that runs next or has just run.
    fn copies(&self, ids: &[TensorId], state: &StateSet, arena: &Arena) -> Vec<HostTensor> {
        let copy = |id: &TensorId| {
            let desc = self.program.desc(*id);
            match (self.states[id.index()], &self.inputs[id.index()], self.plan.offset(*id)) {
                (Some(position), ..) => state.tensors()[position].clone(),
                (None, Some(input), _) => input.clone(),
                (None, None, Some(offset)) => {
                    let mut tensor = HostTensor::poisoned(desc.clone());
                    let piece = Piece { offset, bytes: desc.cpu_bytes() };
                    tensor.bytes_mut().copy_from_slice(arena.read(piece));
                    tensor
                }
                // An output that no node reads has no memory.
                (None, None, None) => HostTensor::poisoned(desc.clone()),
            }
        };
        ids.iter().map(copy).collect()
    }

    /// Overwrites the arena's contents ([`CpuArena::poison`]).
    pub fn poison_arena(&mut self, byte: u8) {
        self.arena.poison(byte);
    }

    /// Mean seconds per run of each node, in launch order.
    pub fn node_seconds(&self) -> Vec<f64> {
        self.seconds.iter().map(|s| s / self.runs.max(1) as f64).collect()
    }

    /// Number of runs since the timers were reset.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// Resets the timers.
    pub fn reset_timers(&mut self) {
        self.seconds.fill(0.0);
        self.runs = 0;
    }

    fn launch(&self, position: usize, state: &mut StateSet, arena: &mut Arena) {
        let program = &*self.program;
        let node = &program.nodes()[self.schedule.launches()[position].node.index()];
        let binding = &self.bindings[position];
        let (read, mut write) = arena.split(&binding.read, &binding.write);
        let workspace: &mut [f32] = match write.pop_if(|_| binding.has_scratch) {
            Some(bytes) => cast_slice_mut(bytes),
            None => &mut [],
        };
        let (states, updates) = borrow_states(state.tensors_mut(), &binding.updates);
        let mut read = read.into_iter();
        let inputs = node.inputs.iter().zip(&binding.inputs).map(|(t, place)| {
            let found = match *place {
                Place::Input(i) => self.inputs[i].as_ref().map(HostTensor::view),
                Place::State(position) => states.get(position).map(HostTensor::view),
                Place::Value => read.next().map(|bytes| TensorRef::new(program.desc(*t), bytes)),
            };
            match found {
                Some(view) => view,
                None => unreachable!("bound when the executor was made"),
            }
        });
        let outputs = write.into_iter().zip(&node.outputs);
        let mut args = CpuArgs {
            inputs: inputs.collect(),
            outputs: outputs.map(|(b, t)| TensorMut::new(program.desc(*t), b)).collect(),
            updates: updates.into_iter().map(HostTensor::view_mut).collect(),
            workspace,
        };
        // Set even if they are the default: the thread pool may run this node on a thread that
        // waits inside a run of a model with different settings.
        self.products.within(|| node.op.run_cpu(&mut args));
    }
}

/// Shared references to the state by index, without the tensors in `updates`; and mutable
/// references to these, in the order of `updates`.
fn borrow_states<'a>(
    tensors: &'a mut [HostTensor],
    updates: &[usize],
) -> (States<'a>, Vec<&'a mut HostTensor>) {
    if updates.is_empty() {
        return (States::All(tensors), Vec::new());
    }
    let mut unique: Vec<Option<&mut HostTensor>> = tensors.iter_mut().map(Some).collect();
    // A state listed twice would be missing the second time, but the schedule rejects such nodes.
    let updates = updates.iter().filter_map(|position| unique[*position].take()).collect();
    let shared = unique.into_iter().map(|t| t.map(|t| &*t)).collect();
    (States::But(shared), updates)
}

/// State that a launch may read.
enum States<'a> {
    /// All state, if the launch updates none.
    All(&'a [HostTensor]),
    /// All state except the tensors that the launch updates, which are `None`.
    But(Vec<Option<&'a HostTensor>>),
}

impl<'a> States<'a> {
    fn get(&self, position: usize) -> Option<&'a HostTensor> {
        match self {
            States::All(tensors) => tensors.get(position),
            States::But(tensors) => tensors.get(position).copied().flatten(),
        }
    }
}
