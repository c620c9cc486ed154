//! The anchors with the highest logits of each level, the first cut of the proposals.
//!
//! Matches torchvision's `_get_top_n_idx`, with a total order: (logit descending, index
//! ascending); NaN ranks with minus infinity.
//!
//! Tensors: `logits_l` for each level (`[N, h_l, w_l, A]`, f32) -> `idx` (`[N, M]`, i32, index
//! among the anchors of all levels), `levels` (`[M]`, i32); both overwritten.
//! M = sum over the levels of min(k, h_l * w_l * A); a level's block is sorted in the order above.
//! Cost: a selection over all logits, then a sort of k; bound by memory.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};

use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Up to `k` anchors per level.
#[derive(Debug, Clone, PartialEq)]
pub struct TopKPerLevel {
    /// Anchors kept of a level that has more.
    pub k: usize,
}

const NAME: &str = "top_k_per_level";

impl Op for TopKPerLevel {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        if inputs.is_empty() {
            let expected = "one a level, at least 1".to_string();
            return Err(OpError::Arity { op: NAME, what: "inputs", expected, got: 0 });
        }
        let mut dims = Dims::new(NAME, inputs, inputs.len(), updates)?;
        for logits in inputs {
            dims.f32("logits_l", logits, "[N, h_l, w_l, A]")?;
        }
        let total: usize = inputs.iter().map(|d| self.level_len(d)).sum();
        let of = |shape: &[usize]| TensorDesc::new(Role::Index, shape);
        Ok(vec![of(&[dims.get("N"), total]), of(&[total])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, inputs.iter().map(|d| d.len() as u64).sum())
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(self, inputs)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::top_k_per_level(self, args);
    }
}

impl TopKPerLevel {
    /// Anchors kept of a level with these logits.
    fn level_len(&self, logits: &TensorDesc) -> usize {
        self.k.min(logits.shape[1..].iter().product())
    }
}
