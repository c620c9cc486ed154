//! The RoIs that the heads are trained on, all images in one list, and the positives again for
//! the mask head.
//!
//! Counts as torchvision's sampler, order as there: images in order, candidates ascending within
//! an image, positives and negatives mixed. Drawn are those with the smallest (key, index); the
//! Philox index is the candidate's own key (its anchor or ground truth), so a draw does not depend
//! on where a proposal stands.
//!
//! Tensors: `candidates` (`[N, C, 4]`), `labels`, `matched_idx`, `keys` (`[N, C]`), `counts`
//! (`[N]`) (all of `roi_candidates`, C = P+G), `image_keys` (`[N, 4]`) -> `rois` (`[N*R, 4]`),
//! `image_idx`, `labels`, `matched` (`[N*R]`), `num_rois` (`[1]`), and of the positives
//! `mask_rois` (`[N*Rp, 4]`), `mask_image_idx`, `mask_labels`, `mask_matched` (`[N*Rp]`),
//! `num_mask_rois` (`[1]`); all overwritten. R = `batch`, Rp = int(R * positive_fraction).
//! Rows from the count on hold boxes of zeros, and -1 elsewhere.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};

use crate::boxes::max_positives;
use crate::check;
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Draws up to `batch` candidates per image.
#[derive(Debug, Clone, PartialEq)]
pub struct SampleRois {
    /// RoIs per image.
    pub batch: usize,
    /// Largest share of positives, 0 to 1.
    pub positive_fraction: f32,
    /// Seed of the run.
    pub seed: u64,
}

op_inputs! {
    /// The inputs of [`SampleRois`].
    pub struct SampleRoisInputs {
        /// `[N, C, 4]` f32.
        candidates,
        /// `[N, C]` i32.
        labels,
        /// `[N, C]` i32.
        matched_idx,
        /// `[N, C]` i32.
        keys,
        /// Candidates of each image, `[N]` i32.
        counts,
        /// `[N, 4]` i32.
        image_keys,
    }
}

const NAME: &str = "sample_rois";

impl Op for SampleRois {
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
        let mut dims = Dims::new(NAME, inputs, SampleRoisInputs::LEN, updates)?;
        let inputs = SampleRoisInputs::of(inputs);
        dims.f32("candidates", inputs.candidates, "[N, C, 4]")?;
        dims.i32("labels", inputs.labels, "[N, C]")?;
        dims.i32("matched_idx", inputs.matched_idx, "[N, C]")?;
        dims.i32("keys", inputs.keys, "[N, C]")?;
        dims.i32("counts", inputs.counts, "[N]")?;
        dims.i32("image_keys", inputs.image_keys, "[N, 4]")?;
        let n = dims.get("N");
        let list = |rows: usize| {
            let index = TensorDesc::new(Role::Index, &[rows]);
            let count = TensorDesc::new(Role::Index, &[1]);
            let boxes = TensorDesc::new(Role::Box, &[rows, 4]);
            [boxes, index.clone(), index.clone(), index, count]
        };
        let positives = max_positives(self.batch, self.positive_fraction);
        Ok([list(n * self.batch), list(n * positives)].concat())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 60 * SampleRoisInputs::of(inputs).labels.len() as u64)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(self, SampleRoisInputs::of(inputs).labels.dim(0))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::sample_rois(self, args);
    }
}
