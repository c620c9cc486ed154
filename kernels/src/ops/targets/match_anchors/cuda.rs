//! CUDA launches of `match_anchors`.

use device::{Access, Launch, LaunchArgs, StructArg};

use super::{MatchAnchors, MatchAnchorsInputs};

/// Anchors a block labels.
const ANCHORS_A_BLOCK: usize = 256 * 4;

/// The best IoU of each ground truth.
pub(super) fn workspace_bytes(images: usize, gts: usize) -> usize {
    4 * images * gts
}

pub(super) fn launches(op: &MatchAnchors, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let MatchAnchorsInputs { anchors, gt_boxes, gt_counts, network_sizes, num_images } =
        MatchAnchorsInputs::of(&args.inputs);
    let (images, gts) = (gt_boxes.dim(0), gt_boxes.dim(1));
    let highest = |access| args.workspace.piece(0, workspace_bytes(images, gts), access);
    let grid = [anchors.dim(0).div_ceil(ANCHORS_A_BLOCK), images, 1];
    let clear = Launch::over("match_anchors_clear", images * gts)
        .arg(highest(Access::Write))
        .len(images * gts);
    let find = Launch::new("match_anchors_highest", grid)
        .arg(anchors.read())
        .arg(gt_boxes.read())
        .arg(gt_counts.read())
        .arg(num_images.read())
        .arg(highest(Access::Update))
        .int(anchors.dim(0))
        .int(gts)
        .arg(op.plus_one);
    let rule = StructArg::new()
        .field([op.fg_iou, op.bg_iou])
        .field([op.low_quality, op.plus_one, op.straddle_filter].map(i32::from));
    let label = Launch::new("match_anchors_label", grid)
        .arg(anchors.read())
        .arg(gt_boxes.read())
        .arg(gt_counts.read())
        .arg(network_sizes.read())
        .arg(num_images.read())
        .arg(highest(Access::Read))
        .arg(args.outputs[0].write())
        .arg(args.outputs[1].write())
        .arg(rule.arg())
        .int(anchors.dim(0))
        .int(gts);
    // Without low-quality matches nobody asks for the best anchor of a ground truth.
    if op.low_quality { vec![clear, find, label] } else { vec![label] }
}
