//! Stochastic gradient descent with momentum and weight decay, as `torch.optim.SGD`.
//!
//! Tensors: `grad_i` (f32) for each of n parameters, `control [5]` f32, a [`Control`] (in);
//! state, updated: `w_0 .. w_{n-1}`, then `m_0 .. m_{n-1}`, then a master `p_i` (`Role::Master`) of
//! each group with [`SgdGroup::master`], in order of the groups; all f32, the shapes of their
//! gradients. Out, with [`Sgd::stats`] only: `stats [n, 3]`, see [`crate::update`]. With `p = w`
//! where there is no master:
//!
//! `g = grad_factor * grad + weight_decay * p; m = momentum * m + g;`
//! `p -= rate(lr_factor) * (nesterov ? g + momentum * m : m); w = p`, with [`Control::rate`]
//!
//! The last rounds to the weight's type: on CUDA a `Role::Weight` is fp16, and without a master its
//! small updates would be lost. A momentum of 0 at the start gives torch's first step, which copies
//! g. If `applied` is 0 no bit of the state changes. Numerics: f32. Bound by memory: three reads
//! and two writes an element, and a third of a weight with a master.

mod cases;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};
use rayon::prelude::*;

use crate::check;
use crate::cpu::CpuArgs;
use crate::isa::{Isa, wide};
use crate::ops::control_step::Control;
use crate::update::{self, stats_desc};
use crate::{Cost, DType, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// How one parameter is updated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdGroup {
    /// Part of the weight that is added to its gradient.
    pub weight_decay: f32,
    /// What the full learning rate is multiplied with.
    pub lr_factor: f32,
    /// Whether an fp32 master is updated, of which the weight is a rounded copy.
    pub master: bool,
}

/// SGD with momentum over all parameters of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Sgd {
    /// Part of the last update that is kept.
    pub momentum: f32,
    /// Nesterov's look-ahead.
    pub nesterov: bool,
    /// One a parameter.
    pub groups: Vec<SgdGroup>,
    /// Whether statistics of the weights and gradients are an output.
    pub stats: bool,
}

const NAME: &str = "sgd";

/// Elements a task updates: large enough to hide the cost of a task, small enough for L2.
const CHUNK: usize = 1 << 14;

impl Op for Sgd {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let n = self.groups.len();
        check::arity(NAME, "inputs", inputs, n + 1)?;
        let masters = self.groups.iter().filter(|group| group.master).count();
        check::arity(NAME, "updates", updates, 2 * n + masters)?;
        check::floats(NAME, "control", &inputs[n], &[Control::LEN])?;
        for i in 0..n {
            check::dtype(NAME, "grad_i", &inputs[i], DType::F32)?;
            check::floats(NAME, "w_i", &updates[i], &inputs[i].shape)?;
            check::floats(NAME, "m_i", &updates[n + i], &inputs[i].shape)?;
        }
        for (i, p) in self.masters().zip(&updates[2 * n..]) {
            check::floats(NAME, "p_i", p, &inputs[i].shape)?;
            check::parameter(
                NAME,
                "role of p_i",
                p.role == Role::Master,
                "Master",
                format!("{:?}", p.role),
            )?;
        }
        Ok(if self.stats { vec![stats_desc(n)] } else { vec![] })
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        let elements: u64 = inputs[..self.groups.len()].iter().map(|g| g.len() as u64).sum();
        let copied: u64 = self.masters().map(|i| inputs[i].len() as u64).sum();
        Cost { flops: 7 * elements, bytes: 20 * elements + 4 * copied }
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        if self.stats { update::sums_bytes(&inputs[..self.groups.len()]) } else { 0 }
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let n = self.groups.len();
        let control = Control::read(args.inputs[n].f32());
        if control.is_applied() {
            self.update_all(control, args);
        }
        if self.stats {
            update::write_stats(args, n, self.masters());
        }
    }
}

impl Sgd {
    /// Updates all parameters.
    fn update_all(&self, control: Control, args: &mut CpuArgs<'_>) {
        let n = self.groups.len();
        let (weights, state) = args.updates.split_at_mut(n);
        let (momenta, masters) = state.split_at_mut(n);
        let mut masters = masters.iter_mut();
        let parameters = weights.iter_mut().zip(momenta).zip(&args.inputs[..n]).zip(&self.groups);
        for (((w, m), grad), group) in parameters {
            match group.master.then(|| masters.next()).flatten() {
                None => self.update(*group, control, w.f32(), m.f32(), grad.f32()),
                Some(p) => {
                    self.update(*group, control, p.f32(), m.f32(), grad.f32());
                    w.f32().copy_from_slice(p.f32());
                }
            }
        }
    }

    /// Indices of the parameters that have a master.
    fn masters(&self) -> impl Iterator<Item = usize> + '_ {
        self.groups.iter().enumerate().filter(|(_, group)| group.master).map(|(i, _)| i)
    }

    /// Updates a parameter.
    fn update(
        &self,
        group: SgdGroup,
        control: Control,
        weights: &mut [f32],
        momenta: &mut [f32],
        grads: &[f32],
    ) {
        let (rate, isa) = (control.rate(group.lr_factor), Isa::get());
        let chunks = weights.par_chunks_mut(CHUNK).zip(momenta.par_chunks_mut(CHUNK));
        chunks.zip(grads.par_chunks(CHUNK)).for_each(|((weights, momenta), grads)| {
            update(
                isa,
                (self, group.weight_decay, control.grad_factor, rate),
                weights,
                momenta,
                grads,
            );
        });
    }
}

wide! {
    /// Updates a chunk, given weight decay, factor of the gradient and rate.
    fn update(
        rule: (&Sgd, f32, f32, f32),
        weights: &mut [f32],
        momenta: &mut [f32],
        grads: &[f32],
    ) {
        let (&Sgd { momentum, nesterov, .. }, weight_decay, grad_factor, rate) = rule;
        for ((w, m), grad) in weights.iter_mut().zip(momenta).zip(grads) {
            let g = grad_factor * grad + weight_decay * *w;
            *m = momentum * *m + g;
            *w -= rate * if nesterov { g + momentum * *m } else { *m };
        }
    }
}
