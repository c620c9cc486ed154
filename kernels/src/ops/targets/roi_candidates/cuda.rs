//! CUDA launch of `roi_candidates`.

use device::{BLOCK, Launch, LaunchArgs};

use super::{RoiCandidates, RoiCandidatesInputs};

pub(super) fn launches(op: &RoiCandidates, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = RoiCandidatesInputs::of(&args.inputs);
    let (proposals, gts) = (*inputs.proposals, *inputs.gt_boxes);
    let rows = proposals.dim(1) + gts.dim(1);
    // Without rows one block still writes the count.
    let blocks = rows.div_ceil(BLOCK as usize).max(1);
    let mut launch = Launch::new("roi_candidates_f32", [blocks, proposals.dim(0), 1]);
    for input in &args.inputs {
        launch = launch.arg(input.read());
    }
    for output in &args.outputs {
        launch = launch.arg(output.write());
    }
    vec![
        launch.int(proposals.dim(1)).int(gts.dim(1)).arg(op.fg_iou).arg(op.bg_iou).arg(op.plus_one),
    ]
}
