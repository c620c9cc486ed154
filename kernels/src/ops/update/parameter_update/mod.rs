//! The update of all parameters of a model by an optimizer, a [`Rule`] of
//! `kernels/src/ops/update/rules`.
//!
//! Tensors: `grad_i` (f32) for each of n parameters, `norms [n+1]` f32 if the rule needs them (the
//! first n: the L2 norms of the gradients before `grad_factor`, see `grad_norms`), `control [5]`
//! f32, a [`Control`] (in); state, updated: `w_0 .. w_{n-1}`, then `m_0 .. m_{n-1}`, then an fp32
//! master weight `p_i` (`Role::Master`) for each parameter with [`Group::master`], in order of the
//! parameters; all f32, the shapes of their gradients; then the rule's state by its
//! [`Entry`](super::rules::Entry): a scalar per parameter in `averages [n]` (Role::Scalar), a
//! second moment `v_i` (f32) per parameter, `steps [1]` i32 (updates applied); then, only with an
//! [`Average`], an average `e_i` (f32) per parameter, and `averaged [1]` i32 (updates averaged).
//! Out, only with [`ParameterUpdate::stats`]: `stats [n, 3]` (Role::Scalar), overwritten.
//!
//! With `p = w` if there is no master, a rule updates `p` and `m`; then `w = p`, which rounds to
//! the weight's type: on CUDA a `Role::Weight` is fp16, and without a master its small updates
//! would be lost. If `applied` is 0 the state does not change. Numerics: f32. Memory-bound: three
//! reads and two writes per element, and a third write for a weight with a master; LARS reads all
//! weights once more, for their norms, whose squares are summed in f64 in a fixed order; AdamW
//! reads and writes its second moments too. With an [`Average`], each updated f32 value (`p`, or
//! `w` if there is no master) is read once more, and `e` is read and written.
//!
//! Statistics are, per parameter, the mean and the L2 norm of the weight after the update (of its
//! master if it has one), and the mean of its gradient, which is still multiplied by the loss
//! scale. They need no extra pass over memory on a device: the update sums values already in
//! registers. Sums are in f64, in an order that depends only on shapes; the statistics of a
//! parameter without elements are 0; in a skipped step they describe the unchanged values.
//!
//! Edge cases: with initial momenta of 0 the first SGD step equals torch's, which copies g to m; a
//! gradient of zeros moves a weight only by momentum and decay; LARS uses a factor of 1 if a norm
//! is 0, so that biases which start at 0 can change.

mod average;
mod cases;
mod cuda;

use std::sync::Arc;

use device::{Gpu, Launch, LaunchArgs};
use rayon::prelude::*;

use super::rules::{Group, Momentum, Rule};
use crate::cpu::CpuArgs;
use crate::isa::Isa;
use crate::ops::control_step::Control;
use crate::ops::rules::{Factors, Known, Update};
use crate::{Cost, DType, Op, OpError, Role, TensorDesc, check};

pub use average::Average;
pub use cases::cases;

/// An update of all parameters of a model.
#[derive(Debug, Clone)]
pub struct ParameterUpdate {
    /// The optimizer.
    pub rule: Arc<dyn Rule>,
    /// Hyperparameters that several optimizers share.
    pub momentum: Momentum,
    /// How each parameter is updated.
    pub groups: Vec<Group>,
    /// Statistics of the weights and gradients are computed as an output.
    pub stats: bool,
    /// If set, keeps an exponential moving average of each parameter.
    pub average: Option<Average>,
}

/// Number of statistics per parameter.
pub const STATS: usize = 3;

const NAME: &str = "parameter_update";

impl Op for ParameterUpdate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let n = self.groups.len();
        let norms = usize::from(self.rule.entry().needs_norms);
        check::arity(NAME, "inputs", inputs, n + norms + 1)?;
        let masters = self.masters().count();
        let averages = self.average_states();
        let own: usize = self.own_states().iter().sum();
        check::arity(NAME, "updates", updates, 2 * n + masters + own + averages)?;
        let (updates, averages) = updates.split_at(updates.len() - averages);
        if let Some((averaged, averages)) = averages.split_last() {
            check::integers(NAME, "averaged", averaged, &[1])?;
            for (e, grad) in averages.iter().zip(inputs) {
                check::floats(NAME, "e_i", e, &grad.shape)?;
            }
        }
        if norms > 0 {
            check::floats(NAME, "norms", &inputs[n], &[n + 1])?;
        }
        check::floats(NAME, "control", &inputs[n + norms], &[Control::LEN])?;
        for i in 0..n {
            check::dtype(NAME, "grad_i", &inputs[i], DType::F32)?;
            check::floats(NAME, "w_i", &updates[i], &inputs[i].shape)?;
            check::floats(NAME, "m_i", &updates[n + i], &inputs[i].shape)?;
        }
        for (i, p) in self.masters().zip(&updates[2 * n..]) {
            check::floats(NAME, "p_i", p, &inputs[i].shape)?;
            let (is_master, got) = (p.role == Role::Master, format!("{:?}", p.role));
            check::parameter(NAME, "role of p_i", is_master, "Master", got)?;
        }
        let [numbers, seconds, steps] = self.own(&updates[2 * n + masters..]);
        for steps in steps {
            check::integers(NAME, "steps", steps, &[1])?;
        }
        for averages in numbers {
            check::floats(NAME, "averages", averages, &[n])?;
        }
        for (v, grad) in seconds.iter().zip(inputs) {
            check::floats(NAME, "v_i", v, &grad.shape)?;
        }
        let stats = TensorDesc::new(Role::Scalar, &[n, STATS]);
        Ok(if self.stats { vec![stats] } else { vec![] })
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        let elements: u64 = inputs[..self.groups.len()].iter().map(|g| g.len() as u64).sum();
        let copied: u64 = self.masters().map(|i| inputs[i].len() as u64).sum();
        let of_element = self.rule.entry().cost;
        let average = self.average.map_or(Cost { flops: 0, bytes: 0 }, |_| average::COST);
        let bytes = (of_element.bytes + average.bytes) * elements + 4 * copied;
        Cost { flops: (of_element.flops + average.flops) * elements, bytes }
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(self, &inputs[..self.groups.len()])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let control = args.inputs.last().map(|control| Control::read(control.f32()));
        let control = control.unwrap_or_else(|| panic!("{NAME} runs only with its control"));
        if control.is_applied() {
            update_all(self, control, args);
            if let Some(average) = self.average {
                average_all(self, average, args);
            }
        }
        if self.stats {
            write_stats(self, args);
        }
    }
}

impl ParameterUpdate {
    /// Number of the rule's state tensors, which follow the masters: per-parameter scalars, second
    /// moments, and the update count.
    fn own_states(&self) -> [usize; 3] {
        let entry = self.rule.entry();
        let seconds = if entry.second.is_some() { self.groups.len() } else { 0 };
        [usize::from(entry.number.is_some()), seconds, usize::from(entry.steps.is_some())]
    }

    /// Splits the rule's state tensors into per-parameter scalars, second moments, and the update
    /// count.
    fn own<'a, T>(&self, own: &'a [T]) -> [&'a [T]; 3] {
        let [numbers, seconds, _] = self.own_states();
        let (own, steps) = own.split_at(numbers + seconds);
        let (numbers, seconds) = own.split_at(numbers);
        [numbers, seconds, steps]
    }

    /// Number of state tensors of the averages, which come last.
    fn average_states(&self) -> usize {
        if self.average.is_some() { self.groups.len() + 1 } else { 0 }
    }

    /// For each parameter, the index of the state tensor with the updated values: the master, or
    /// the weight if there is no master.
    fn places(&self) -> Vec<usize> {
        let n = self.groups.len();
        let mut places: Vec<usize> = (0..n).collect();
        self.masters().enumerate().for_each(|(k, i)| places[i] = 2 * n + k);
        places
    }

    /// Indices of the parameters that have a master.
    fn masters(&self) -> impl Iterator<Item = usize> + '_ {
        self.groups.iter().enumerate().filter(|(_, group)| group.master).map(|(i, _)| i)
    }
}

/// Elements per task and per sum: large enough to hide the cost of a task, small enough for L2. The
/// size is fixed, so that no sum depends on the number of threads.
const CHUNK: usize = 1 << 14;

fn update_all(op: &ParameterUpdate, control: Control, args: &mut CpuArgs<'_>) {
    let (n, entry) = (op.groups.len(), op.rule.entry());
    let norms = entry.needs_norms.then(|| args.inputs[n].f32());
    let len = args.updates.len() - op.average_states();
    let (weights, state) = args.updates[..len].split_at_mut(n);
    let (momenta, rest) = state.split_at_mut(n);
    let (masters, own) = rest.split_at_mut(op.masters().count());
    let [numbers, seconds, _] = op.own_states();
    let (own, steps) = own.split_at_mut(numbers + seconds);
    let (numbers, seconds) = own.split_at_mut(numbers);
    let numbers = numbers.first_mut().map_or(&mut [][..], |numbers| numbers.f32());
    let t = steps.first_mut().map_or(0, |steps| {
        let steps = &mut steps.i32()[0];
        *steps = steps.wrapping_add(1);
        *steps as u32
    });
    let mut masters = masters.iter_mut();
    let parameters = weights.iter_mut().zip(momenta).zip(&args.inputs[..n]).zip(&op.groups);
    for (i, (((w, m), grad), group)) in parameters.enumerate() {
        let mut master = group.master.then(|| masters.next()).flatten();
        let values = match &mut master {
            Some(p) => p.f32(),
            None => w.f32(),
        };
        let mut known =
            Known { t, ..Known::new(*group, control, op.momentum, norms.map_or(0.0, |of| of[i])) };
        if entry.needs_weight_norms {
            known.weight_norm = norm(values);
        }
        known.number = numbers.get(i).copied().unwrap_or_default();
        let factors = op.rule.factors(&mut known);
        numbers.iter_mut().skip(i).take(1).for_each(|number| *number = known.number);
        let second = seconds.get_mut(i).map_or(&mut [][..], |second| second.f32());
        update((entry.update, factors), values, [m.f32(), second], grad.f32());
        if let Some(p) = &mut master {
            w.f32().copy_from_slice(p.f32());
        }
    }
}

fn norm(values: &[f32]) -> f64 {
    let square = |&v: &f32| f64::from(v) * f64::from(v);
    let sums = values.par_chunks(CHUNK).map(|chunk| chunk.iter().map(square).sum());
    sums.collect::<Vec<f64>>().iter().sum::<f64>().sqrt()
}

/// Updates one parameter; `seconds` is empty for a rule without second moments.
fn update(
    (update, factors): (Update, Factors),
    weights: &mut [f32],
    [momenta, seconds]: [&mut [f32]; 2],
    grads: &[f32],
) {
    let (isa, mut seconds) = (Isa::get(), seconds.chunks_mut(CHUNK));
    let chunks = weights.chunks_mut(CHUNK).zip(momenta.chunks_mut(CHUNK)).zip(grads.chunks(CHUNK));
    let chunks: Vec<_> = chunks.map(|of| (of, seconds.next().unwrap_or_default())).collect();
    chunks.into_par_iter().for_each(|(((weights, momenta), grads), seconds)| {
        update(isa, factors, weights, momenta, seconds, grads);
    });
}

fn average_all(op: &ParameterUpdate, average: Average, args: &mut CpuArgs<'_>) {
    let len = args.updates.len() - op.average_states();
    let (values, averages) = args.updates.split_at_mut(len);
    let Some((averaged, averages)) = averages.split_last_mut() else { return };
    let averaged = &mut averaged.i32()[0];
    *averaged = averaged.wrapping_add(1);
    let take = average.take(*averaged as u32);
    for (e, at) in averages.iter_mut().zip(op.places()) {
        let chunks = e.f32().par_chunks_mut(CHUNK).zip(values[at].f32().par_chunks(CHUNK));
        chunks.for_each(|(e, p)| e.iter_mut().zip(p).for_each(|(e, p)| *e += take * (p - *e)));
    }
}

/// Writes the statistics after the update.
fn write_stats(op: &ParameterUpdate, args: &mut CpuArgs<'_>) {
    let (updates, inputs) = (&mut args.updates, &args.inputs);
    let rows = args.outputs[0].f32().chunks_mut(STATS);
    for ((row, at), grad) in rows.zip(op.places()).zip(inputs) {
        row.copy_from_slice(&statistics(updates[at].f32(), grad.f32()));
    }
}

fn statistics(weights: &[f32], grads: &[f32]) -> [f32; STATS] {
    let of = |(weights, grads): (&[f32], &[f32])| {
        let mut sums = [0.0f64; STATS];
        for (&w, &g) in weights.iter().zip(grads) {
            let (w, g) = (f64::from(w), f64::from(g));
            sums = [sums[0] + w, sums[1] + w * w, sums[2] + g];
        }
        sums
    };
    let chunks = weights.par_chunks(CHUNK).zip(grads.par_chunks(CHUNK));
    let sums: Vec<[f64; STATS]> = chunks.map(of).collect();
    let total = |k: usize| sums.iter().map(|sum| sum[k]).sum::<f64>();
    let len = weights.len().max(1) as f64;
    [(total(0) / len) as f32, total(1).sqrt() as f32, (total(2) / len) as f32]
}
