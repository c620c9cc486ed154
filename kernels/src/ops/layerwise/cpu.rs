//! CPU reference of `layerwise`.

use rayon::prelude::*;

use super::rule::{Factors, Known, LayerRule};
use super::{Layerwise, NAME};
use crate::cpu::{CpuArgs, TensorMut};
use crate::isa::{Isa, wide};
use crate::ops::control_step::Control;
use crate::update;

/// Elements of one task and one sum. Fixed, so that no sum depends on the threads.
const CHUNK: usize = 1 << 14;

pub(super) fn run(op: &Layerwise, args: &mut CpuArgs<'_>) {
    let n = op.groups.len();
    let control = Control::read(args.inputs[n + 1].f32());
    if control.is_applied() {
        update_all(op, control, args);
    }
    if op.stats {
        update::write_stats(args, n, op.masters());
    }
}

fn update_all(op: &Layerwise, control: Control, args: &mut CpuArgs<'_>) {
    let n = op.groups.len();
    let norms = args.inputs[n].f32();
    let (weights, state) = args.updates.split_at_mut(n);
    let (momenta, rest) = state.split_at_mut(n);
    let (masters, own) = rest.split_at_mut(op.masters().count());
    let mut own = own_state(own);
    if let Some((_, steps)) = &mut own {
        **steps = steps.wrapping_add(1);
    }
    let mut masters = masters.iter_mut();
    let parameters = weights.iter_mut().zip(momenta).zip(&args.inputs[..n]).zip(&op.groups);
    for (i, (((w, m), grad), group)) in parameters.enumerate() {
        let mut master = group.master.then(|| masters.next()).flatten();
        let values = match &mut master {
            Some(p) => p.f32(),
            None => w.f32(),
        };
        let known = Known::new(*group, control, norms[i]);
        let factors = match (&op.rule, &mut own) {
            (LayerRule::Lars(lars), _) => lars.factors(known, group.adapts, norm(values)),
            (LayerRule::Novograd(novograd), Some((averages, steps))) => {
                let (factors, average) = novograd.factors(known, averages[i], **steps as u32);
                averages[i] = average;
                factors
            }
            (LayerRule::Novograd(_), None) => panic!("{NAME}: two more state tensors"),
        };
        update(factors, values, m.f32(), grad.f32());
        if let Some(p) = &mut master {
            w.f32().copy_from_slice(p.f32());
        }
    }
}

/// Averages and steps, if the rule has them.
fn own_state<'a>(own: &'a mut [TensorMut<'_>]) -> Option<(&'a mut [f32], &'a mut i32)> {
    let [averages, steps] = own else { return None };
    Some((averages.f32(), &mut steps.i32()[0]))
}

fn norm(values: &[f32]) -> f64 {
    let square = |&v: &f32| f64::from(v) * f64::from(v);
    let sums = values.par_chunks(CHUNK).map(|chunk| chunk.iter().map(square).sum());
    sums.collect::<Vec<f64>>().iter().sum::<f64>().sqrt()
}

fn update(factors: Factors, weights: &mut [f32], momenta: &mut [f32], grads: &[f32]) {
    let isa = Isa::get();
    let chunks = weights.par_chunks_mut(CHUNK).zip(momenta.par_chunks_mut(CHUNK));
    chunks.zip(grads.par_chunks(CHUNK)).for_each(|((weights, momenta), grads)| {
        update_chunk(isa, factors, weights, momenta, grads);
    });
}

wide! {
    /// Updates a chunk.
    fn update_chunk(
        factors: Factors,
        weights: &mut [f32],
        momenta: &mut [f32],
        grads: &[f32],
    ) {
        let Factors { keep, of_grad, of_weight, of_momentum, decay } = factors;
        for ((w, m), grad) in weights.iter_mut().zip(momenta).zip(grads) {
            *m = keep * *m + (of_grad * grad + of_weight * *w);
            *w -= of_momentum * *m + decay * *w;
        }
    }
}
