//! The anchors of each image that carry the RPN losses.
//!
//! Counts as torchvision's `BalancedPositiveNegativeSampler`; which ones are drawn is a pure
//! function of (seed, epoch, image, anchor) instead of a generator's state: those with the
//! smallest (key, index).
//!
//! Tensors: `labels` (`[N, A_total]`, i32: 1 or more positive, 0 negative, -1 ignored),
//! `image_keys` (`[N, 4]`) -> `idx` (`[N, B]`, i32: positives ascending, then negatives ascending,
//! then -1), `counts` (`[N, 2]`, i32: positives, all); both overwritten.
//! B = `batch`; n_pos = min(#positives, int(B * positive_fraction)),
//! n_neg = min(#negatives, B - n_pos).

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Draws up to `batch` anchors per image.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleAnchors {
    /// Anchors per image.
    pub batch: usize,
    /// Largest share of positives, 0 to 1.
    pub positive_fraction: f32,
    /// Seed of the run.
    pub seed: u64,
}

const NAME: &str = "sample_anchors";

impl Op for SampleAnchors {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let ok = (0.0..=1.0).contains(&self.positive_fraction);
        check::parameter(NAME, "positive_fraction", ok, "within 0..=1", self.positive_fraction)?;
        let mut dims = Dims::new(NAME, inputs, 2, updates)?;
        dims.i32("labels", &inputs[0], "[N, A_total]")?;
        dims.i32("image_keys", &inputs[1], "[N, 4]")?;
        let n = dims.get("N");
        let of = |shape: &[usize]| TensorDesc::new(Role::Index, shape);
        Ok(vec![of(&[n, self.batch]), of(&[n, 2])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Ten rounds of two multiplications and four xors a key.
        Cost::streaming(inputs, outputs, 60 * inputs[0].len() as u64)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(inputs[0].dim(0), inputs[0].dim(1))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::sample_anchors(self, args);
    }
}
