//! CPU reference of `parameter_update`.

use rayon::prelude::*;

use super::{Average, NAME, ParameterUpdate, STATS};
use crate::cpu::CpuArgs;
use crate::isa::Isa;
use crate::ops::control_step::Control;
use crate::ops::rules::{Factors, Known, Update};

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

/// `seconds` is empty for a rule without.
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
