//! CUDA launch of `encode_boxes`.

use device::{Arg, Launch, LaunchArgs};

use super::{EncodeBoxes, EncodeBoxesInputs};

pub(super) fn launches(op: &EncodeBoxes, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = EncodeBoxesInputs::of(&args.inputs);
    let (rows, gt_boxes) = (inputs.image_idx.len(), *inputs.gt_boxes);
    let launch = Launch::over("encode_boxes", rows);
    let launch = args.inputs.iter().fold(launch, |launch, input| launch.arg(input.read()));
    let launch = args.outputs.iter().fold(launch, |launch, output| launch.arg(output.write()));
    vec![
        launch
            .arg(Arg::of(&op.weights))
            .arg(op.plus_one)
            .int(rows)
            .int(gt_boxes.dim(0))
            .int(gt_boxes.dim(1)),
    ]
}
