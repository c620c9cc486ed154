//! The anchors with the highest logits of each level, the first cut of the proposals.
//!
//! Matches torchvision's `_get_top_n_idx`, with a total order: (logit descending, index
//! ascending); NaN ranks with minus infinity.
//!
//! Cost: a selection over all logits, then a sort of k; bound by memory.

mod cases;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::boxes::top_k;
use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{Cost, OpError, TensorDesc, op};

pub use cases::cases;

op! {
    /// Up to `k` anchors per level: M is the sum over the levels of min(k, h * w * A).
    pub struct TopKPerLevel = "top_k_per_level" {
        /// Anchors kept of a level that has more.
        pub k: usize,
    }
    in TopKPerLevelInputs {
    }
    each {
        /// Logits of a level.
        logits: float "[N, h, w, A]",
    }
    out {
        /// Index among the anchors of all levels, best first within a level.
        idx: Index "[N, M]",
        /// Level of each column.
        levels: Index "[M]",
    }
}

impl Kernel for TopKPerLevel {
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        dims.bind("M", inputs.iter().map(|logits| self.level_len(logits)).sum());
        Ok(())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, inputs.iter().map(|d| d.len() as u64).sum())
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        cuda::workspace_bytes(self, inputs)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = &args.inputs;
        let mut levels = Vec::new();
        // Each level as (logits, anchors per image, first anchor, anchors kept).
        let mut maps = Vec::new();
        let mut first = 0;
        for (l, logits) in inputs.iter().enumerate() {
            let len: usize = logits.shape()[1..].iter().product();
            let kept = self.level_len(logits.desc);
            levels.extend(std::iter::repeat_n(l as i32, kept));
            maps.push((logits.f32(), len, first, kept));
            first += len;
        }
        args.outputs[1].i32().copy_from_slice(&levels);

        let mut rest = args.outputs[0].i32();
        let mut tasks = Vec::new();
        for n in 0..inputs[0].shape()[0] {
            for &(logits, len, first, kept) in &maps {
                let (own, later) = rest.split_at_mut(kept);
                tasks.push((&logits[n * len..][..len], first, own));
                rest = later;
            }
        }
        tasks.into_par_iter().for_each(|(logits, first, own)| {
            let kept = own.len();
            for (idx, i) in own.iter_mut().zip(top_k(logits, kept)) {
                *idx = (first + i) as i32;
            }
        });
    }
}

impl TopKPerLevel {
    /// Anchors kept of a level with these logits.
    fn level_len(&self, logits: &TensorDesc) -> usize {
        self.k.min(logits.shape[1..].iter().product())
    }
}
