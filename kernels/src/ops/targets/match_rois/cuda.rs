//! CUDA launch of `match_rois`.

use device::{Launch, LaunchArgs};

use super::{MatchRois, MatchRoisInputs};

pub(super) fn launches(op: &MatchRois, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = MatchRoisInputs::of(&args.inputs);
    let (rows, gts) = (inputs.image_idx.len(), *inputs.gt_boxes);
    let launch = Launch::over("match_rois_f32", rows);
    let launch = args.inputs.iter().fold(launch, |launch, input| launch.arg(input.read()));
    let launch = args.outputs.iter().fold(launch, |launch, output| launch.arg(output.write()));
    vec![launch.arg(op.fg_iou).arg(op.plus_one).int(rows).int(gts.dim(0)).int(gts.dim(1))]
}
