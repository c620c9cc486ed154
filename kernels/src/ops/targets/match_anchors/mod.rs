//! Labels of the anchors for the RPN losses, and the ground truth of each foreground anchor.
//!
//! Matches torchvision's `Matcher` (`assign_targets_to_anchors`): foreground at an IoU of `fg_iou`
//! or more, background below `bg_iou`; with `low_quality`, every anchor whose IoU equals the best
//! IoU of some ground truth is also foreground, and is matched to its own best ground truth. As in
//! torchvision, if no anchor overlaps a ground truth, all anchors tie for it at IoU 0. With
//! `straddle_filter` (maskrcnn-benchmark) anchors that cross the image's border are labelled as
//! ignored, but take part in the matching.
//!
//! Edge cases: images past `num_images` are all -1; without ground truth all anchors are
//! background. Cost: two passes over A_total x G IoUs, tile by tile; the IoU matrix is never
//! stored. Compute-bound. Deterministic: only maxima are combined across tiles.

mod cases;

use device::{Access, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::boxes::{
    Box4, BoxColumns, ImageSize, Thresholds, as_boxes, at_most, best_gts, gt_rows, inside,
};
use crate::contract::Kernel;
use crate::cpu::{CpuArgs, exactly};
use crate::{Cost, TensorDesc, op};

pub use cases::cases;

op! {
    /// Labels anchors by their IoU with the ground truth.
    pub struct MatchAnchors = "match_anchors" {
        /// Minimum IoU of a foreground anchor.
        pub fg_iou: f32,
        /// IoU below which an anchor is background.
        pub bg_iou: f32,
        /// The best anchors of every ground truth are foreground at any IoU.
        pub low_quality: bool,
        /// Box corners are inclusive: width = x2 - x1 + 1.
        pub plus_one: bool,
        /// Ignore anchors that cross the border of the (unpadded) image.
        pub straddle_filter: bool,
    }
    in MatchAnchorsInputs {
        /// Anchors of all levels.
        anchors: f32 "[A_total, 4]",
        /// Ground truth.
        gt_boxes: f32 "[N, G, 4]",
        /// Number of ground truths of each image.
        gt_counts: i32 "[N]",
        /// Height and width of the network's input without padding.
        network_sizes: i32 "[N, 2]",
        /// Number of images in use.
        num_images: i32 "[1]",
    }
    out {
        /// 1 foreground, 0 background, -1 ignored.
        labels: Index "[N, A_total]",
        /// Ground truth of a foreground anchor, even if `straddle_filter` then ignores the anchor;
        /// else 0.
        matched_idx: Index "[N, A_total]",
    }
}

/// Anchors per block.
const ANCHORS_A_BLOCK: usize = 256 * 4;

impl Kernel for MatchAnchors {
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Two passes, each with 14 operations and 2 comparisons per IoU.
        let pairs = outputs[0].len() * MatchAnchorsInputs::of(inputs).gt_boxes.dim(1);
        Cost::streaming(inputs, outputs, 32 * pairs as u64)
    }

    /// The best IoU of every anchor, between the two passes.
    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        let of = MatchAnchorsInputs::of(inputs);
        of.gt_boxes.dim(0) * of.anchors.dim(0)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        workspace_bytes(
            MatchAnchorsInputs::of(inputs).gt_boxes.dim(0),
            MatchAnchorsInputs::of(inputs).gt_boxes.dim(1),
        )
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let MatchAnchorsInputs { anchors, gt_boxes, gt_counts, network_sizes, num_images } =
            MatchAnchorsInputs::of(&args.inputs);
        let (images, gts) = (gt_boxes.dim(0), gt_boxes.dim(1));
        let highest = |access| args.workspace.piece(0, workspace_bytes(images, gts), access);
        let grid = [anchors.dim(0).div_ceil(ANCHORS_A_BLOCK), images, 1];
        let clear = Launch::over("match_anchors_clear", images * gts)
            .arg(highest(Access::Write))
            .len(images * gts);
        let find = Launch::new("match_anchors_highest", grid)
            .reads([anchors, gt_boxes, gt_counts, num_images])
            .arg(highest(Access::Update))
            .int(anchors.dim(0))
            .int(gts)
            .arg(self.plus_one);
        let rule = StructArg::new()
            .field([self.fg_iou, self.bg_iou])
            .field([self.low_quality, self.plus_one, self.straddle_filter].map(i32::from));
        let label = Launch::new("match_anchors_label", grid)
            .reads([anchors, gt_boxes, gt_counts, network_sizes, num_images])
            .arg(highest(Access::Read))
            .arg(args.outputs[0].write())
            .arg(args.outputs[1].write())
            .arg(rule.arg())
            .int(anchors.dim(0))
            .int(gts);
        // The best anchor of a ground truth is needed only for low-quality matches.
        if self.low_quality { vec![clear, find, label] } else { vec![label] }
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = MatchAnchorsInputs::of(&args.inputs);
        let anchors = as_boxes(inputs.anchors.f32());
        let (gt_boxes, gt_counts) = (as_boxes(inputs.gt_boxes.f32()), inputs.gt_counts.i32());
        let sizes = inputs.network_sizes.i32();
        let num_images = at_most(inputs.num_images.i32()[0], gt_counts.len());
        let [labels, matched] = exactly(&mut args.outputs);
        let len = anchors.len().max(1);
        let images = labels.i32().par_chunks_mut(len).zip(matched.i32().par_chunks_mut(len));
        images.zip(args.workspace.par_chunks_mut(len)).enumerate().for_each(
            |(n, ((labels, matched), best_iou))| {
                if n >= num_images {
                    labels.fill(-1);
                    matched.fill(0);
                    return;
                }
                let gts = gt_rows(gt_boxes, gt_counts, n);
                let image = Image { anchors, gts, size: ImageSize::from_row(&sizes[2 * n..]) };
                let highest = find_best(self, &image, matched, best_iou);
                label(self, &image, &highest, labels, matched, best_iou);
            },
        );
    }
}

/// Bytes of the best IoU of each ground truth.
fn workspace_bytes(images: usize, gts: usize) -> usize {
    4 * images * gts
}

/// Anchors per tile: their coordinates, one row of IoUs and the results fit in L1 and L2.
const TILE: usize = 2048;

/// The inputs for matching one image.
struct Image<'a> {
    anchors: &'a [Box4],
    gts: &'a [Box4],
    size: ImageSize,
}

/// First pass: the best ground truth of each anchor, and for each tile the highest IoU of each
/// ground truth.
fn find_best(
    op: &MatchAnchors,
    image: &Image<'_>,
    matched: &mut [i32],
    best_iou: &mut [f32],
) -> Vec<Vec<f32>> {
    let tiles = matched.par_chunks_mut(TILE).zip(best_iou.par_chunks_mut(TILE));
    tiles
        .zip(image.anchors.par_chunks(TILE))
        .map(|((matched, best_iou), anchors)| {
            let mut row = [0.0; TILE];
            let columns = BoxColumns::new(anchors, op.plus_one);
            best_gts(&columns, image.gts, best_iou, matched, &mut row[..anchors.len()])
        })
        .collect()
}

/// Second pass: labels. The IoUs with a ground truth are recomputed only in tiles that contain its
/// best anchor.
fn label(
    op: &MatchAnchors,
    image: &Image<'_>,
    highest: &[Vec<f32>],
    labels: &mut [i32],
    matched: &mut [i32],
    best_iou: &[f32],
) {
    let of_image: Vec<f32> = (0..image.gts.len())
        .map(|gt| highest.iter().fold(-1.0f32, |high, tile| high.max(tile[gt])))
        .collect();
    let thresholds = Thresholds { fg_iou: op.fg_iou, bg_iou: op.bg_iou };
    let tiles = labels.par_chunks_mut(TILE).zip(matched.par_chunks_mut(TILE));
    let tiles = tiles.zip(best_iou.par_chunks(TILE)).zip(image.anchors.par_chunks(TILE));
    tiles.zip(highest).for_each(|((((labels, matched), best_iou), anchors), highest)| {
        for ((label, &gt), &iou) in labels.iter_mut().zip(matched.iter()).zip(best_iou) {
            *label = thresholds.classify(iou, gt);
        }
        if op.low_quality {
            restore(op, image.gts, anchors, highest, &of_image, labels, matched);
        }
        for ((label, gt), anchor) in labels.iter_mut().zip(matched).zip(anchors) {
            *gt = (*label).max(0);
            *label = match *label {
                crate::boxes::BELOW => 0,
                crate::boxes::BETWEEN => -1,
                _ => 1,
            };
            if op.straddle_filter && !inside(anchor, image.size) {
                *label = -1;
            }
        }
    });
}

/// Matches every anchor of the tile whose IoU equals the best IoU of some ground truth to the
/// anchor's own best ground truth.
fn restore(
    op: &MatchAnchors,
    gts: &[Box4],
    anchors: &[Box4],
    highest: &[f32],
    of_image: &[f32],
    matches: &mut [i32],
    best_gt: &[i32],
) {
    let holds_best = |gt: &usize| highest[*gt] == of_image[*gt];
    let mut row = [0.0; TILE];
    let row = &mut row[..anchors.len()];
    let mut columns = None;
    for gt in (0..gts.len()).filter(holds_best) {
        let columns = columns.get_or_insert_with(|| BoxColumns::new(anchors, op.plus_one));
        columns.iou_into(&gts[gt], 0, row);
        for ((m, &best), &iou) in matches.iter_mut().zip(best_gt).zip(row.iter()) {
            if iou == of_image[gt] {
                *m = best;
            }
        }
    }
}
