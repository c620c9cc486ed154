//! CUDA launch of `transform_boxes`.

use device::{Launch, LaunchArgs};

use super::{TransformBoxes, TransformBoxesInputs};

pub(super) fn launches(op: &TransformBoxes, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = TransformBoxesInputs::of(&args.inputs);
    let (boxes, out) = (*inputs.boxes, args.outputs[0]);
    let launch = Launch::over("transform_boxes_f32", out.len() / 4);
    let launch = args.inputs.iter().fold(launch, |launch, input| launch.arg(input.read()));
    vec![launch.arg(out.write()).int(boxes.dim(0)).int(boxes.dim(1)).arg(op.plus_one)]
}
