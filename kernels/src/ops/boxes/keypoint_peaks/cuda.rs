//! CUDA launch of `keypoint_peaks`.

use device::{Launch, LaunchArgs};

use super::{KeypointPeaksInputs, sizes};
use crate::losses::launch::assert_real;

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = KeypointPeaksInputs::of(&args.inputs);
    let [per_box, side] = sizes([inputs.maps.desc, inputs.boxes.desc]);
    assert_real(inputs.maps.desc);
    let launch = Launch::new("keypoint_peaks_f16", [inputs.maps.dim(0), 1, 1]);
    let launch = args.inputs.iter().fold(launch, |launch, input| launch.arg(input.read()));
    vec![launch.arg(args.outputs[0].write()).int(per_box).int(side)]
}
