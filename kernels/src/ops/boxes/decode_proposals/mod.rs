//! Proposals of the selected anchors: decoded, clipped, scored.
//!
//! Matches the steps before NMS of torchvision's `RegionProposalNetwork.filter_proposals`: a
//! proposal is valid if both sides of the clipped box are at least `min_size` and the score is at
//! least `score_threshold`.
//!
//! Edge cases: an invalid anchor index gives a box of zeros and score -1.

mod cases;

use device::{Arg, Buffer, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::boxes::{Box4, ImageSize, as_boxes, as_boxes_mut, clip, decode, is_small, sigmoid};
use crate::contract::{Dims, Kernel};
use crate::cpu::{CpuArgs, exactly};
use crate::{Cost, OpError, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Decodes the anchors selected by `idx`.
    pub struct DecodeProposals = "decode_proposals" {
        /// Box corners are inclusive: width = x2 - x1 + 1.
        pub plus_one: bool,
        /// Minimum width and height in network pixels.
        pub min_size: f32,
        /// Minimum score.
        pub score_threshold: f32,
        /// Weights of dx, dy, dw, dh in the box coding.
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
        logits: real "[N, h, w, A]",
        /// Deltas of a level.
        deltas: real "[N, h, w, 4A]",
    }
    out {
        /// Decoded and clipped to the image.
        boxes: Box "[N, M, 4]",
        /// Sigmoid of the logit, or -1 for an invalid proposal.
        scores: Score "[N, M]",
    }
}

impl Kernel for DecodeProposals {
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let of = DecodeProposalsInputs::of(inputs);
        let total = of.logits.iter().map(|level| level.shape[1..].iter().product::<usize>()).sum();
        check::shape(dims.op(), "anchors", of.anchors, &[total, 4])
    }

    fn cost(&self, _inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Per selected anchor: 5 map values, an index and the anchor are read; 5 values are
        // written.
        let rows = outputs[1].len() as u64;
        Cost { flops: 40 * rows, bytes: (5 + 1 + 4 + 5) * 4 * rows }
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let DecodeProposalsInputs { idx, anchors, network_sizes, logits, deltas } =
            DecodeProposalsInputs::of(&args.inputs);
        let mut first = 0;
        let mut launches = Vec::new();
        for (logits, deltas) in logits.chunks(MAX_LEVELS).zip(deltas.chunks(MAX_LEVELS)) {
            let levels = levels_arg(logits, deltas, first, anchors.dim(0), launches.is_empty());
            first += logits.iter().map(|logits| anchors_of(logits)).sum::<usize>();
            launches.push(
                Launch::over("decode_proposals_f16", idx.len())
                    .reads([idx, anchors, network_sizes])
                    // A launch writes only the rows of its levels.
                    .arg(args.outputs[0].write())
                    .arg(args.outputs[1].write())
                    .arg(levels)
                    .int(idx.dim(0))
                    .int(idx.dim(1))
                    .arg(Arg::of(&self.weights))
                    .arg(self.min_size)
                    .arg(self.score_threshold)
                    .arg(self.plus_one),
            );
        }
        launches
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let DecodeProposalsInputs { idx, anchors, network_sizes, logits, deltas } =
            DecodeProposalsInputs::of(&args.inputs);
        let rows = idx.shape()[1];
        let (idx, anchors, sizes) = (idx.i32(), as_boxes(anchors.f32()), network_sizes.i32());
        let mut levels = Vec::new();
        let mut first = 0;
        for (logits, deltas) in logits.iter().zip(deltas) {
            let len = logits.shape()[1..].iter().product();
            levels.push(Level { logits: logits.f32(), deltas: as_boxes(deltas.f32()), first, len });
            first += len;
        }
        let [boxes, scores] = exactly(&mut args.outputs);
        let rows = rows.max(1);
        as_boxes_mut(boxes.f32())
            .par_chunks_mut(rows)
            .zip(scores.f32().par_chunks_mut(rows))
            .zip(idx.par_chunks(rows))
            .enumerate()
            .for_each(|(n, ((boxes, scores), idx))| {
                let size = ImageSize::from_row(&sizes[2 * n..]);
                for ((b, score), &i) in boxes.iter_mut().zip(scores).zip(idx) {
                    (*b, *score) = proposal(self, anchors, &levels, n, i, size);
                }
            });
    }
}

/// Logits and deltas of a level, and the range of its anchors.
struct Level<'a> {
    logits: &'a [f32],
    deltas: &'a [Box4],
    first: usize,
    len: usize,
}

fn proposal(
    op: &DecodeProposals,
    anchors: &[Box4],
    levels: &[Level<'_>],
    n: usize,
    idx: i32,
    size: ImageSize,
) -> (Box4, f32) {
    let found = usize::try_from(idx).ok().and_then(|i| {
        let level = levels.iter().find(|l| i < l.first + l.len)?;
        Some((anchors[i], level, n * level.len + i - level.first))
    });
    let Some((anchor, level, at)) = found else { return ([0.0; 4], -1.0) };
    let b = decode(&anchor, &level.deltas[at], &op.weights, op.plus_one);
    let b = clip(&b, size, op.plus_one);
    let score = sigmoid(level.logits[at]);
    let counts = !is_small(&b, op.min_size, op.plus_one) && score >= op.score_threshold;
    (b, if counts { score } else { -1.0 })
}

/// Maximum levels per launch, as in `decode_proposals.cu`.
const MAX_LEVELS: usize = 8;

fn anchors_of(logits: &Buffer<'_>) -> usize {
    logits.desc.shape[1..].iter().product()
}

/// The kernel argument `Levels` of `decode_proposals.cu`; `first` is the index of the first level's
/// first anchor.
fn levels_arg(
    logits: &[&Buffer<'_>],
    deltas: &[&Buffer<'_>],
    first: usize,
    total: usize,
    first_launch: bool,
) -> Arg {
    let mut ends = [0i32; MAX_LEVELS];
    let mut end = first;
    for (place, logits) in ends.iter_mut().zip(logits) {
        end += anchors_of(logits);
        *place = end as i32;
    }
    let strays = i32::from(first_launch);
    StructArg::new()
        .pointers(logits.iter().map(|map| map.read()), MAX_LEVELS)
        .pointers(deltas.iter().map(|map| map.read()), MAX_LEVELS)
        .field(ends)
        .field([first as i32, logits.len() as i32, total as i32, strays])
        .arg()
}
