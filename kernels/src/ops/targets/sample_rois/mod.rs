//! The RoIs that the heads are trained on, all images in one list, and the positives again for
//! the mask head.
//!
//! Counts as torchvision's sampler, order as there: images in order, candidates ascending within
//! an image, positives and negatives mixed. Drawn are those with the smallest (key, index); the
//! Philox index is the candidate's own key (its anchor or ground truth), so a draw does not depend
//! on where a proposal stands.

mod cases;
mod cpu;
#[cfg(test)]
mod tests;

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg};

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

/// Threads that draw from the candidates of an image.
const DRAW_THREADS: u32 = 1024;

impl Kernel for SampleRois {
    fn sizes(&self, dims: &mut Dims) {
        dims.bind("R", self.batch);
        dims.bind("Rp", max_positives(self.batch, self.positive_fraction));
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 60 * SampleRoisInputs::of(inputs).labels.len() as u64)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        let images = SampleRoisInputs::of(inputs).labels.dim(0);
        counts_bytes(images) + 8 * images * self.batch
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let SampleRoisInputs { candidates, labels, matched_idx, keys, counts, image_keys } =
            SampleRoisInputs::of(&args.inputs);
        let (images, capacity) = (labels.dim(0), labels.dim(1));
        let positives = max_positives(self.batch, self.positive_fraction);
        let drawn_counts = |access| args.workspace.piece(0, 8 * images, access);
        let drawn =
            |access| args.workspace.piece(counts_bytes(images), 8 * images * self.batch, access);
        let draw = Launch::new("sample_rois_draw", [images, 1, 1])
            .block(DRAW_THREADS)
            .arg(labels.read())
            .arg(keys.read())
            .arg(counts.read())
            .arg(image_keys.read())
            .arg(drawn(Access::Write))
            .arg(drawn_counts(Access::Write))
            .arg(self.seed)
            .int(capacity)
            .int(self.batch)
            .int(positives);
        let (all, of_positives) = args.outputs.split_at(5);
        // One thread at least: it writes the counts.
        let write = Launch::over("sample_rois_write", (images * self.batch).max(1))
            .arg(candidates.read())
            .arg(labels.read())
            .arg(matched_idx.read())
            .arg(drawn(Access::Read))
            .arg(drawn_counts(Access::Read))
            .arg(list(all))
            .arg(list(of_positives))
            .int(images)
            .int(capacity)
            .int(self.batch)
            .int(positives);
        vec![draw, write]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::sample_rois(self, args);
    }
}

/// Bytes of the counts of the images, as a first piece of the scratch.
fn counts_bytes(images: usize) -> usize {
    (8 * images).next_multiple_of(256)
}

/// The five tensors of a list as one argument.
fn list(outputs: &[Buffer<'_>]) -> Arg {
    StructArg::new().pointers(outputs.iter().map(Buffer::write), outputs.len()).arg()
}
