//! Proposals of the selected anchors: decoded, clipped, scored.
//!
//! Matches torchvision's `RegionProposalNetwork.filter_proposals` up to its NMS: a proposal counts
//! if both sides are at least `min_size` after the clip and its score is at least
//! `score_threshold`.
//!
//! Edges: an index that is no anchor gives a box of zeros and score -1.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{Cost, OpError, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Decodes the anchors that `idx` names.
    pub struct DecodeProposals = "decode_proposals" {
        /// Boxes are inclusive.
        pub plus_one: bool,
        /// Least width and height in network pixels.
        pub min_size: f32,
        /// Least score.
        pub score_threshold: f32,
        /// Factors of the four deltas.
        pub weights: [f32; 4],
    }
    in DecodeProposalsInputs {
        /// Selected anchors.
        idx: i32 "[N, M]",
        /// Anchors of all levels.
        anchors: f32 "[A_total, 4]",
        /// Height and width of the network's input without padding.
        network_sizes: i32 "[N, 2]",
    }
    each {
        /// Logits of a level.
        logits: float "[N, h, w, A]",
        /// Deltas of a level.
        deltas: float "[N, h, w, 4A]",
    }
    out {
        /// Decoded and clipped to the image.
        boxes: Box "[N, M, 4]",
        /// Sigmoid of the logit, or -1 for a proposal that does not count.
        scores: Score "[N, M]",
    }
}

const NAME: &str = "decode_proposals";

impl Kernel for DecodeProposals {
    fn check(&self, inputs: &[TensorDesc], _dims: &mut Dims) -> Result<(), OpError> {
        let of = DecodeProposalsInputs::of(inputs);
        let total = of.logits.iter().map(|level| level.shape[1..].iter().product::<usize>()).sum();
        check::shape(NAME, "anchors", of.anchors, &[total, 4])
    }

    fn cost(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Only the selected anchors of the maps are read: 5 values, an index and the anchor.
        let rows = outputs[1].len() as u64;
        Cost { flops: 40 * rows, bytes: (5 + 1 + 4 + 5) * 4 * rows }
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::decode_proposals(self, args);
    }
}
