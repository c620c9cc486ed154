//! Samples the RoIs for training the heads: a list of the RoIs of all images, and a second list of
//! only the positives, for the mask head.
//!
//! Counts and order match torchvision's sampler: images in order, candidates ascending within an
//! image, positives and negatives mixed. The samples are the candidates with the smallest (random
//! key, index). The random key depends on the candidate's entry in `keys` (its anchor or ground
//! truth), so the selection does not depend on the position of a proposal.

mod cases;

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::boxes::{Box4, as_boxes, as_boxes_mut, at_most, max_positives, sample};
use crate::contract::{Dims, Kernel};
use crate::cpu::{CpuArgs, TensorMut, exactly};
use crate::philox::{Purpose, keyed};
use crate::{Cost, TensorDesc, op};

pub use cases::cases;

op! {
    /// Samples up to R = `batch` candidates per image, and up to Rp = int(R * positive_fraction)
    /// positives among them.
    pub struct SampleRois = "sample_rois" {
        /// RoIs per image.
        pub batch: usize,
        /// Maximum fraction of positives, 0 to 1.
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
        /// Identity of each candidate: its anchor or ground truth.
        keys: i32 "[N, C]",
        /// Number of candidates of each image.
        counts: i32 "[N]",
        /// Random number keys of the image.
        image_keys: i32 "[N, 4]",
    }
    out {
        /// Boxes; zeros past the count.
        rois: Box "[N*R, 4]",
        /// Image of the RoI, or -1.
        image_idx: Index "[N*R]",
        /// Class of the RoI, or -1.
        roi_labels: Index "[N*R]",
        /// Ground truth of the RoI, or -1.
        matched: Index "[N*R]",
        /// Number of RoIs in use.
        num_rois: Index "[1]",
        /// Boxes of the positives.
        mask_rois: Box "[N*Rp, 4]",
        /// Image.
        mask_image_idx: Index "[N*Rp]",
        /// Class.
        mask_labels: Index "[N*Rp]",
        /// Ground truth.
        mask_matched: Index "[N*Rp]",
        /// Number of positives in use.
        num_mask_rois: Index "[1]",
    }
}

/// Threads of a block, which samples the candidates of one image.
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
            .reads([labels, keys, counts, image_keys])
            .arg(drawn(Access::Write))
            .arg(drawn_counts(Access::Write))
            .arg(self.seed)
            .int(capacity)
            .int(self.batch)
            .int(positives);
        let (all, of_positives) = args.outputs.split_at(5);
        // At least one thread, to write the counts.
        let write = Launch::over("sample_rois_write", (images * self.batch).max(1))
            .reads([candidates, labels, matched_idx])
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
        let inputs = SampleRoisInputs::of(&args.inputs);
        let (candidates, labels) = (as_boxes(inputs.candidates.f32()), inputs.labels.i32());
        let (matched, keys) = (inputs.matched_idx.i32(), inputs.keys.i32());
        let (counts, image_keys) = (inputs.counts.i32(), inputs.image_keys.i32());
        let capacity = inputs.labels.shape()[1];
        let drawn: Vec<Vec<usize>> = (0..counts.len())
            .into_par_iter()
            .map(|n| {
                let first = n * capacity;
                let image_key = &image_keys[4 * n..][..4];
                let key = |i| keyed(self.seed, image_key, Purpose::Rois, keys[first + i] as u32);
                let own = &labels[first..][..at_most(counts[n], capacity)];
                let (mut all, negatives) = sample(own, self.batch, self.positive_fraction, key);
                all.extend(negatives);
                all.sort_unstable();
                all
            })
            .collect();

        let mut rois = Vec::new();
        for (n, own) in drawn.iter().enumerate() {
            rois.extend(own.iter().map(|i| {
                let at = n * capacity + i;
                let (label, matched) = (labels[at], matched[at]);
                Row { roi: candidates[at], image: n as i32, label, matched }
            }));
        }
        let (all, positives) = args.outputs.split_at_mut(5);
        write(rois.iter(), all);
        write(rois.iter().filter(|row| row.label > 0), positives);
    }
}

/// Bytes of the per-image counts, the first part of the scratch memory.
fn counts_bytes(images: usize) -> usize {
    (8 * images).next_multiple_of(256)
}

/// The five tensors of a list as one kernel argument.
fn list(outputs: &[Buffer<'_>]) -> Arg {
    StructArg::new().pointers(outputs.iter().map(Buffer::write), outputs.len()).arg()
}

/// A row of either list.
struct Row {
    roi: Box4,
    image: i32,
    label: i32,
    matched: i32,
}

/// Writes the rows and their number, and fills unused rows.
fn write<'a>(rows: impl Iterator<Item = &'a Row>, outputs: &mut [TensorMut<'_>]) {
    let [rois, image_idx, labels, matched, count] = exactly(outputs);
    let rois = as_boxes_mut(rois.f32());
    let (image_idx, labels, matched) = (image_idx.i32(), labels.i32(), matched.i32());
    rois.fill([0.0; 4]);
    image_idx.fill(-1);
    labels.fill(-1);
    matched.fill(-1);
    let mut len = 0;
    for row in rows {
        rois[len] = row.roi;
        (image_idx[len], labels[len], matched[len]) = (row.image, row.label, row.matched);
        len += 1;
    }
    count.i32()[0] = len as i32;
}
