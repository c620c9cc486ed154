//! An op for random programs in which only the data flow matters: any number of inputs and outputs
//! of any length, optional scratch memory, optional update of state.

use kernels::check;
use kernels::cpu::{CpuArgs, TensorMut, TensorRef};
use kernels::{DType, Op, OpError, Role, TensorDesc};

/// Mixes all inputs into each output: `y_k[i] = fract(salt + k + sum_j (j + 2) x_j[i mod n_j])`, so
/// that a wrong or stale input changes every output, and values stay below 1. Updates state by
/// adding the same mix to it.
#[derive(Debug, Clone)]
pub(crate) struct Mix {
    /// Lengths of the outputs.
    pub(crate) outputs: Vec<usize>,
    /// Number of scratch elements, through which the op's intermediate values pass.
    pub(crate) scratch: usize,
    /// Makes ops of equal shape compute different values.
    pub(crate) salt: f32,
}

const NAME: &str = "mix";

impl Op for Mix {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        for desc in inputs.iter().chain(updates) {
            check::dtype(NAME, "x", desc, DType::F32)?;
        }
        Ok(self.outputs.iter().map(|n| TensorDesc::new(Role::Activation, &[*n])).collect())
    }

    fn cpu_workspace_len(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        self.scratch
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let CpuArgs { inputs, outputs, updates, workspace } = args;
        for (i, w) in workspace.iter_mut().enumerate() {
            *w = self.mixed(inputs, 0, i);
        }
        for (k, y) in outputs.iter_mut().enumerate() {
            self.write(inputs, workspace, k, y);
        }
        for (k, s) in updates.iter_mut().enumerate() {
            for (i, s) in s.f32().iter_mut().enumerate() {
                *s = (*s + self.mixed(inputs, k, i)).fract();
            }
        }
    }
}

impl Mix {
    /// An op with outputs of these lengths, without scratch memory.
    pub(crate) fn of(outputs: &[usize]) -> Self {
        Self { outputs: outputs.to_vec(), scratch: 0, salt: 0.0 }
    }

    fn write(&self, inputs: &[TensorRef<'_>], scratch: &[f32], k: usize, y: &mut TensorMut<'_>) {
        for (i, y) in y.f32().iter_mut().enumerate() {
            let through = scratch.get(i).copied();
            *y = match through {
                Some(mixed) => (mixed + k as f32 * 0.25).fract(),
                None => self.mixed(inputs, k, i),
            };
        }
    }

    fn mixed(&self, inputs: &[TensorRef<'_>], k: usize, i: usize) -> f32 {
        let terms = inputs.iter().enumerate().map(|(j, x)| {
            let x = x.f32();
            if x.is_empty() { 0.5 } else { (j + 2) as f32 * x[i % x.len()] }
        });
        (self.salt + k as f32 * 0.25 + i as f32 * 0.125 + terms.sum::<f32>()).fract()
    }
}
