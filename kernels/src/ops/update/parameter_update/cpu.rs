//! CPU reference of `parameter_update`.

use rayon::prelude::*;

use super::rules::{Known, Step};
use super::{Average, NAME, ParameterUpdate, Rule, STATS};
use crate::cpu::{CpuArgs, TensorMut};
use crate::isa::Isa;
use crate::ops::control_step::Control;

/// Elements of one task and one sum: large enough to hide the cost of a task, small enough for L2.
/// Fixed, so that no sum depends on the threads.
const CHUNK: usize = 1 << 14;

pub(super) fn run(op: &ParameterUpdate, args: &mut CpuArgs<'_>) {
    let control = args.inputs.last().map(|control| Control::read(control.f32()));
    let control = control.unwrap_or_else(|| panic!("{NAME} runs only with its control"));
    if control.is_applied() {
        update_all(op, control, args);
        if let Some(average) = op.average {
            average_all(op, average, args);
        }
    }
    if op.stats {
        write_stats(op, args);
    }
}

fn update_all(op: &ParameterUpdate, control: Control, args: &mut CpuArgs<'_>) {
    let n = op.groups.len();
    let norms = op.rule.needs_norms().then(|| args.inputs[n].f32());
    let len = args.updates.len() - op.average_states();
    let (weights, state) = args.updates[..len].split_at_mut(n);
    let (momenta, rest) = state.split_at_mut(n);
    let (masters, own) = rest.split_at_mut(op.masters().count());
    let own = Own::new(&op.rule, own);
    let mut masters = masters.iter_mut();
    let parameters = weights.iter_mut().zip(momenta).zip(&args.inputs[..n]).zip(&op.groups);
    for (i, (((w, m), grad), group)) in parameters.enumerate() {
        let mut master = group.master.then(|| masters.next()).flatten();
        let values = match &mut master {
            Some(p) => p.f32(),
            None => w.f32(),
        };
        let known = Known::new(*group, control, norms.map_or(0.0, |norms| norms[i]));
        let average = own.averages.get_mut(i);
        let step = op.rule.step(&known, || norm(values), average, own.t);
        let second = own.seconds.get_mut(i).map_or(&mut [][..], |second| second.f32());
        update(step, values, [m.f32(), second], grad.f32());
        if let Some(p) = &mut master {
            w.f32().copy_from_slice(p.f32());
        }
    }
}

/// The state that a rule alone has: empty where it has none.
struct Own<'a, 'b> {
    averages: &'a mut [f32],
    seconds: &'a mut [TensorMut<'b>],
    /// The number of this update, 1 being the first.
    t: u32,
}

impl<'a, 'b> Own<'a, 'b> {
    /// Counts the update, too.
    fn new(rule: &Rule, own: &'a mut [TensorMut<'b>]) -> Self {
        let Some((steps, moments)) = own.split_last_mut() else {
            return Self { averages: &mut [], seconds: &mut [], t: 0 };
        };
        let steps = &mut steps.i32()[0];
        *steps = steps.wrapping_add(1);
        let t = *steps as u32;
        match rule.has_averages() {
            true => Self { averages: moments[0].f32(), seconds: &mut [], t },
            false => Self { averages: &mut [], seconds: moments, t },
        }
    }
}

fn norm(values: &[f32]) -> f64 {
    let square = |&v: &f32| f64::from(v) * f64::from(v);
    let sums = values.par_chunks(CHUNK).map(|chunk| chunk.iter().map(square).sum());
    sums.collect::<Vec<f64>>().iter().sum::<f64>().sqrt()
}

/// `second` is empty for a rule without.
fn update(step: Step, weights: &mut [f32], [momenta, second]: [&mut [f32]; 2], grads: &[f32]) {
    let isa = Isa::get();
    let chunks = weights.par_chunks_mut(CHUNK).zip(momenta.par_chunks_mut(CHUNK));
    let chunks = chunks.zip(grads.par_chunks(CHUNK));
    if second.is_empty() {
        chunks.for_each(|((weights, momenta), grads)| {
            step.update(isa, weights, [momenta, &mut []], grads);
        });
        return;
    }
    chunks.zip(second.par_chunks_mut(CHUNK)).for_each(|(((weights, momenta), grads), second)| {
        step.update(isa, weights, [momenta, second], grads);
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
