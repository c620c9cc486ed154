//! The RoIs that the heads are trained on, all images in one list, and the positives again for
//! the mask head.
//!
//! Counts as torchvision's sampler, order as there: images in order, candidates ascending within
//! an image, positives and negatives mixed. Drawn are those with the smallest (key, index); the
//! Philox index is the candidate's own key (its anchor or ground truth), so a draw does not depend
//! on where a proposal stands.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::boxes::max_positives;
use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{Cost, TensorDesc, op};

pub use cases::cases;

op! {
    /// Draws up to R = `batch` candidates per image, and up to Rp = int(R * positive_fraction)
    /// positives among them.
    pub struct SampleRois = "sample_rois" {
        /// RoIs per image.
        pub batch: usize,
        /// Largest share of positives, 0 to 1.
        pub positive_fraction: f32 [|share| (0.0..=1.0).contains(share), "within 0..=1"],
        /// Seed of the run.
        pub seed: u64,
    }
    in SampleRoisInputs {
        /// Proposals and ground truth.
        candidates: f32 "[N, C, 4]",
        /// Class, 0 background, -1 ignored.
        labels: i32 "[N, C]",
        /// Ground truth of each candidate.
        matched_idx: i32 "[N, C]",
        /// A candidate's own key: its anchor or ground truth.
        keys: i32 "[N, C]",
        /// Candidates of each image.
        counts: i32 "[N]",
        /// Keys of the image's random numbers.
        image_keys: i32 "[N, 4]",
    }
    out {
        /// Boxes; zeros from the count on.
        rois: Box "[N*R, 4]",
        /// Image of the RoI, or -1.
        image_idx: Index "[N*R]",
        /// Its class, or -1.
        roi_labels: Index "[N*R]",
        /// Its ground truth, or -1.
        matched: Index "[N*R]",
        /// RoIs in use.
        num_rois: Index "[1]",
        /// The same of the positives.
        mask_rois: Box "[N*Rp, 4]",
        /// Image.
        mask_image_idx: Index "[N*Rp]",
        /// Class.
        mask_labels: Index "[N*Rp]",
        /// Ground truth.
        mask_matched: Index "[N*Rp]",
        /// Positives in use.
        num_mask_rois: Index "[1]",
    }
}

impl Kernel for SampleRois {
    fn sizes(&self, dims: &mut Dims) {
        dims.bind("R", self.batch);
        dims.bind("Rp", max_positives(self.batch, self.positive_fraction));
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 60 * SampleRoisInputs::of(inputs).labels.len() as u64)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        cuda::workspace_bytes(self, SampleRoisInputs::of(inputs).labels.dim(0))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::sample_rois(self, args);
    }
}
