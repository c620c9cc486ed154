//! CUDA launch of `gather_anchors`.

use device::{Launch, LaunchArgs};

use super::GatherAnchorsInputs;

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = GatherAnchorsInputs::of(&args.inputs);
    let rows = args.outputs[1].len();
    let launch = Launch::over("gather_anchors", rows);
    let launch = args.inputs.iter().fold(launch, |launch, input| launch.arg(input.read()));
    let launch = args.outputs.iter().fold(launch, |launch, output| launch.arg(output.write()));
    vec![launch.int(rows).int(inputs.idx.dim(1)).int(inputs.anchors.dim(0))]
}
