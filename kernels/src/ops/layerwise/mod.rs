//! Optimizers whose update of a parameter depends on norms of that parameter: NovoGrad and LARS.
//!
//! Tensors: `grad_i` (f32) for each of n parameters, `norms [n+1]` f32 (the first n: the L2 norms
//! of the gradients as given, see `grad_norms`), `control [4]` f32, a [`Control`] (in); state,
//! updated: `w_0 .. w_{n-1}`, then `m_0 .. m_{n-1}`, then a master `p_i` (`Role::Master`) of each
//! group with [`LayerGroup::master`], in order of the groups; all f32, the shapes of their
//! gradients; then, for NovoGrad, `averages [n]` (Role::Scalar, the root of each second moment) and
//! `steps [1]` i32 (updates applied). Out, with [`Layerwise::stats`] only: `stats [n, 3]`, see
//! [`crate::update`].
//!
//! With `p = w` where there is no master, and five factors of each parameter:
//!
//! `m = keep * m + (of_grad * grad + of_weight * p); p -= of_momentum * m + decay * p; w = p`
//!
//! [`LayerRule`] says how the factors follow from the norms; they are computed in f64 and rounded
//! once. The last rounds to the weight's type. If `applied` is 0 no bit of the state changes.
//! Numerics: f32. Bound by memory, as `sgd`; LARS reads all weights once more, for their norms,
//! whose squares are summed in f64 in a fixed order.
//!
//! Edges: a gradient of zeros moves a weight by momentum and decay alone; LARS takes a factor of 1
//! where a norm is 0, so that biases which start at 0 leave it.

mod cases;
mod cpu;
mod cuda;
mod rule;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::cpu::CpuArgs;
use crate::ops::control_step::Control;
use crate::update::stats_desc;
use crate::{Cost, DType, Op, OpError, Role, TensorDesc};

pub use cases::cases;
pub use rule::{Lars, LayerRule, Novograd, NovogradForm};

/// How one parameter is updated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerGroup {
    /// Weight decay, as the rule applies it.
    pub weight_decay: f32,
    /// What the learning rate is multiplied with.
    pub lr_factor: f32,
    /// Whether an fp32 master is updated, of which the weight is a rounded copy.
    pub master: bool,
    /// LARS: whether the rate follows the norms; if not, this is SGD with momentum.
    pub adapts: bool,
}

/// An update of all parameters of a model, each by its own norms.
#[derive(Debug, Clone, PartialEq)]
pub struct Layerwise {
    /// NovoGrad or LARS.
    pub rule: LayerRule,
    /// One a parameter.
    pub groups: Vec<LayerGroup>,
    /// Whether statistics of the weights and gradients are an output.
    pub stats: bool,
}

const NAME: &str = "layerwise";

impl Op for Layerwise {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let n = self.groups.len();
        check::arity(NAME, "inputs", inputs, n + 2)?;
        let masters = self.masters().count();
        let own = if self.rule.has_state() { 2 } else { 0 };
        check::arity(NAME, "updates", updates, 2 * n + masters + own)?;
        check::floats(NAME, "norms", &inputs[n], &[n + 1])?;
        check::floats(NAME, "control", &inputs[n + 1], &[Control::LEN])?;
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
        if let [averages, steps] = &updates[2 * n + masters..] {
            check::floats(NAME, "averages", averages, &[n])?;
            check::integers(NAME, "steps", steps, &[1])?;
        }
        Ok(if self.stats { vec![stats_desc(n)] } else { vec![] })
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        let elements: u64 = inputs[..self.groups.len()].iter().map(|g| g.len() as u64).sum();
        let copied: u64 = self.masters().map(|i| inputs[i].len() as u64).sum();
        let read_twice = if self.rule.needs_weight_norms() { elements } else { 0 };
        let flops = 8 * elements + 2 * read_twice;
        Cost { flops, bytes: 20 * elements + 4 * copied + 4 * read_twice }
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
        cpu::run(self, args);
    }
}

impl Layerwise {
    /// Indices of the parameters that have a master.
    fn masters(&self) -> impl Iterator<Item = usize> + '_ {
        self.groups.iter().enumerate().filter(|(_, group)| group.master).map(|(i, _)| i)
    }
}
