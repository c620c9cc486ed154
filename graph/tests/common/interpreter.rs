//! Two interpreters of a program: a reference in which no tensors share memory, and one that uses
//! the planned arena and runs launches in a random order that the schedule allows.

use std::collections::BTreeMap;

use graph::{Plan, Schedule, StateSet, TensorId, TensorKind};
use kernels::TensorDesc;
use kernels::cpu::HostTensor;
use kernels::on_cpu::run_updating;

use super::random::{Rng, Sample};

/// The result of a run: all values by tensor index, and the state.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    pub(crate) values: BTreeMap<usize, HostTensor>,
    pub(crate) state: StateSet,
}

/// Runs the nodes in program order, each tensor in separate memory.
pub(crate) fn naive(sample: &Sample) -> Outcome {
    let program = &sample.program;
    let mut outcome = Outcome { values: BTreeMap::new(), state: sample.state.clone() };
    for node in program.nodes() {
        let inputs: Vec<_> = node
            .inputs
            .iter()
            .map(|t| {
                source(sample, &outcome.state, *t)
                    .unwrap_or_else(|| outcome.values[&t.index()].clone())
            })
            .collect();
        let name = |t: &TensorId| program.tensors()[t.index()].name.clone();
        let held = |t| outcome.state.get(&name(t)).expect("declared").clone();
        let mut updates: Vec<_> = node.updates.iter().map(held).collect();
        let outputs = run_updating(node.op.as_ref(), &inputs, &mut updates).expect("inferred");
        outcome.values.extend(node.outputs.iter().map(|t| t.index()).zip(outputs));
        for (t, new) in node.updates.iter().zip(updates) {
            outcome.state.insert(&name(t), new);
        }
    }
    outcome
}

/// The contents of an input or state tensor; `None` for a value.
fn source(sample: &Sample, state: &StateSet, tensor: TensorId) -> Option<HostTensor> {
    let info = &sample.program.tensors()[tensor.index()];
    match info.kind {
        TensorKind::Input => Some(sample.input(&info.name)),
        TensorKind::State => state.get(&info.name).cloned(),
        TensorKind::Value => None,
    }
}

/// A simulated device with streams and one arena, which starts and ends launches in a random order
/// that the schedule's streams and waits allow.
pub(crate) struct Adversary<'a> {
    sample: &'a Sample,
    schedule: &'a Schedule,
    plan: &'a Plan,
    arena: Vec<u8>,
    state: StateSet,
    rng: Rng,
    done: Vec<bool>,
    running: Vec<Running>,
    /// Per stream, its launches in order, and the number of launches that have started.
    queues: BTreeMap<usize, (Vec<usize>, usize)>,
}

/// A launch between start and end, with the inputs that it read and the bytes that it wrote at its
/// start.
struct Running {
    launch: usize,
    inputs: Vec<HostTensor>,
    /// Arena ranges that the launch owns while it runs, with the garbage that it wrote into them.
    owned: Vec<(usize, Vec<u8>)>,
}

impl<'a> Adversary<'a> {
    pub(crate) fn new(
        sample: &'a Sample,
        schedule: &'a Schedule,
        plan: &'a Plan,
        seed: u32,
    ) -> Self {
        let mut queues = BTreeMap::new();
        for (i, launch) in schedule.launches().iter().enumerate() {
            let queue = queues.entry(launch.stream).or_insert((Vec::new(), 0));
            queue.0.push(i);
        }
        Self {
            sample,
            schedule,
            plan,
            arena: vec![0xEE; plan.arena_bytes()],
            state: sample.state.clone(),
            rng: Rng::new(seed),
            done: vec![false; schedule.launches().len()],
            running: Vec::new(),
            queues,
        }
    }

    /// Runs all launches and returns the kept values and the state; returns an error if another
    /// launch wrote to the memory of a launch while it ran.
    pub(crate) fn run(mut self) -> Result<Outcome, String> {
        while self.done.iter().any(|d| !d) {
            let startable = self.startable();
            let choice = self.rng.below(startable.len() + self.running.len());
            match startable.get(choice) {
                Some(stream) => self.start(*stream),
                None => self.end(choice - startable.len())?,
            }
        }
        let program = &self.sample.program;
        let value = |t: &TensorId| (t.index(), self.read(*t));
        let kept = program.kept().iter().filter(|t| self.plan.offset(**t).is_some());
        Ok(Outcome { values: kept.map(value).collect(), state: self.state.clone() })
    }

    /// Streams whose next launch may start: the previous launches on the stream and all launches
    /// for which it waits have ended.
    fn startable(&self) -> Vec<usize> {
        let ready = |(queue, started): &(Vec<usize>, usize)| {
            queue.get(*started).is_some_and(|next| {
                let waits = &self.schedule.launches()[*next].waits;
                queue[..*started].iter().chain(waits).all(|w| self.done[*w])
            })
        };
        self.queues.iter().filter(|(_, q)| ready(q)).map(|(stream, _)| *stream).collect()
    }

    fn start(&mut self, stream: usize) {
        let (queue, started) = self.queues.get_mut(&stream).expect("a stream of the schedule");
        let launch = queue[*started];
        *started += 1;
        let node = &self.sample.program.nodes()[self.schedule.launches()[launch].node.index()];
        let inputs = self.gather(&node.inputs);
        let mut pieces: Vec<(usize, usize)> = node
            .outputs
            .iter()
            .map(|t| (self.plan.offset(*t).expect("planned"), self.desc(*t).cpu_bytes()))
            .collect();
        let scratch = 4 * node.op.cpu_workspace_len(&descs(&inputs), &self.descs(&node.outputs));
        let planned = self.plan.workspace_offset(launch);
        assert_eq!(planned.is_some(), scratch > 0);
        pieces.extend(planned.map(|offset| (offset, scratch)));
        let mut owned = Vec::new();
        for (offset, bytes) in pieces {
            let garbage: Vec<u8> = (0..bytes).map(|_| self.rng.below(256) as u8).collect();
            self.arena[offset..offset + bytes].copy_from_slice(&garbage);
            owned.push((offset, garbage));
        }
        self.running.push(Running { launch, inputs, owned });
    }

    fn end(&mut self, index: usize) -> Result<(), String> {
        let Running { launch, inputs, owned } = self.running.swap_remove(index);
        let program = &self.sample.program;
        let node = &program.nodes()[self.schedule.launches()[launch].node.index()];
        // Compared as bytes: the contents may be NaN.
        let bytes =
            |list: &[HostTensor]| list.iter().map(|t| t.bytes().to_vec()).collect::<Vec<_>>();
        if bytes(&self.gather(&node.inputs)) != bytes(&inputs) {
            return Err(format!("an input of launch {launch} changed while it ran"));
        }
        if owned.iter().any(|(offset, old)| self.arena[*offset..offset + old.len()] != old[..]) {
            return Err(format!("an output or scratch of launch {launch} changed while it ran"));
        }
        let name = |t: &TensorId| program.tensors()[t.index()].name.clone();
        let held = |t| self.state.get(&name(t)).expect("declared").clone();
        let mut updates: Vec<_> = node.updates.iter().map(held).collect();
        let outputs = run_updating(node.op.as_ref(), &inputs, &mut updates).expect("inferred");
        for (t, new) in node.outputs.iter().zip(outputs) {
            let offset = self.plan.offset(*t).expect("planned");
            let len = new.bytes().len();
            self.arena[offset..offset + len].copy_from_slice(new.bytes());
        }
        for (t, new) in node.updates.iter().zip(updates) {
            self.state.insert(&name(t), new);
        }
        self.done[launch] = true;
        Ok(())
    }

    fn gather(&self, tensors: &[TensorId]) -> Vec<HostTensor> {
        let own = |t: &TensorId| source(self.sample, &self.state, *t);
        tensors.iter().map(|t| own(t).unwrap_or_else(|| self.read(*t))).collect()
    }

    fn read(&self, tensor: TensorId) -> HostTensor {
        let desc = self.desc(tensor).clone();
        let offset = self.plan.offset(tensor).expect("planned");
        let mut host = HostTensor::poisoned(desc);
        let len = host.bytes().len();
        host.bytes_mut().copy_from_slice(&self.arena[offset..offset + len]);
        host
    }

    fn desc(&self, tensor: TensorId) -> &TensorDesc {
        self.sample.program.desc(tensor)
    }

    fn descs(&self, tensors: &[TensorId]) -> Vec<TensorDesc> {
        tensors.iter().map(|t| self.desc(*t).clone()).collect()
    }
}

fn descs(tensors: &[HostTensor]) -> Vec<TensorDesc> {
    tensors.iter().map(|t| t.desc.clone()).collect()
}
