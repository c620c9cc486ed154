//! CUDA launch of `refine_rois`.

use device::{Arg, Launch, LaunchArgs};

use super::{RefineRois, RefineRoisInputs};
use crate::DType;

pub(super) fn launches(op: &RefineRois, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = RefineRoisInputs::of(&args.inputs);
    let (rows, images) = (inputs.image_idx.len(), inputs.network_sizes.dim(0));
    let half = inputs.deltas.dtype() == DType::F16;
    let launch = Launch::over(if half { "refine_rois_f16" } else { "refine_rois_f32" }, rows);
    let launch = args.inputs.iter().fold(launch, |launch, input| launch.arg(input.read()));
    let launch = launch.arg(args.outputs[0].write()).arg(Arg::of(&op.weights)).arg(op.plus_one);
    vec![launch.int(rows).int(images)]
}
