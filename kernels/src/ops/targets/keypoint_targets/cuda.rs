//! CUDA launch of `keypoint_targets`.

use device::{Launch, LaunchArgs};

use super::{KeypointTargets, KeypointTargetsInputs};

pub(super) fn launches(op: &KeypointTargets, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = KeypointTargetsInputs::of(&args.inputs);
    let launch = Launch::over("keypoint_targets", args.outputs[0].len());
    let launch = args.inputs.iter().fold(launch, |launch, input| launch.arg(input.read()));
    let launch = args.outputs.iter().fold(launch, |launch, output| launch.arg(output.write()));
    let launch = launch.int(inputs.matched.len()).int(op.side);
    vec![(0..3).fold(launch, |launch, axis| launch.int(inputs.keypoints.dim(axis)))]
}
