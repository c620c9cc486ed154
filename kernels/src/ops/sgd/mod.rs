//! Stochastic gradient descent with momentum and weight decay, as `torch.optim.SGD`.
//!
//! Tensors: `grad_i` (f32) for each of n parameters, `control [4]` f32 of `control_step` (in);
//! state, updated: `w_0 .. w_{n-1}`, then `m_0 .. m_{n-1}` (f32, the length of their gradients).
//! No outputs. With `lr, multiplier, apply, _ = control`:
//!
//! `g = multiplier * grad + weight_decay * w; m = momentum * m + g;`
//! `w -= lr * lr_factor * (nesterov ? g + momentum * m : m)`
//!
//! A momentum of 0 at the start gives torch's first step, which copies g. If `apply` is 0 no bit of
//! the state changes. Numerics: f32. Bound by memory: three reads and two writes an element.

mod cases;
#[cfg(test)]
mod tests;

use rayon::prelude::*;

use crate::cpu::CpuArgs;
use crate::op::check;
use crate::{Cost, DType, Op, OpError, TensorDesc, contract};

pub use cases::cases;

/// How one parameter is updated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SgdGroup {
    /// Part of the weight that is added to its gradient.
    pub weight_decay: f32,
    /// What the learning rate is multiplied with.
    pub lr_factor: f32,
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
        check::arity(NAME, "updates", updates, 2 * n)?;
        contract::floats(NAME, "control", &inputs[n], &[4])?;
        for i in 0..n {
            check::dtype(NAME, "grad_i", &inputs[i], DType::F32)?;
            contract::floats(NAME, "w_i", &updates[i], &inputs[i].shape)?;
            contract::floats(NAME, "m_i", &updates[n + i], &inputs[i].shape)?;
        }
        Ok(vec![])
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        let elements: u64 = inputs[..self.groups.len()].iter().map(|g| g.len() as u64).sum();
        Cost { flops: 7 * elements, bytes: 20 * elements }
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let n = self.groups.len();
        let control = args.inputs[n].f32();
        if control[2] == 0.0 {
            return;
        }
        let (weights, momenta) = args.updates.split_at_mut(n);
        let parameters = weights.iter_mut().zip(momenta).zip(&args.inputs[..n]).zip(&self.groups);
        for (((w, m), grad), group) in parameters {
            let chunks = w.f32().par_chunks_mut(CHUNK).zip(m.f32().par_chunks_mut(CHUNK));
            chunks.zip(grad.f32().par_chunks(CHUNK)).for_each(|((w, m), grad)| {
                self.update(*group, control, w, m, grad);
            });
        }
    }
}

impl Sgd {
    /// Updates some elements of a parameter.
    fn update(
        &self,
        group: SgdGroup,
        control: &[f32],
        weights: &mut [f32],
        momenta: &mut [f32],
        grads: &[f32],
    ) {
        let rate = control[0] * group.lr_factor;
        for ((w, m), grad) in weights.iter_mut().zip(momenta).zip(grads) {
            let g = control[1] * grad + group.weight_decay * *w;
            *m = self.momentum * *m + g;
            *w -= rate * if self.nesterov { g + self.momentum * *m } else { *m };
        }
    }
}
