//! CUDA launch of `decide_flips`.

use device::{Launch, LaunchArgs};

use super::DecideFlips;

pub(super) fn launches(op: &DecideFlips, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (keys, flips) = (args.inputs[0], args.outputs[0]);
    vec![
        Launch::over("decide_flips", flips.len())
            .arg(keys.read())
            .arg(flips.write())
            .arg(op.seed)
            .arg(op.bound())
            .int(flips.len()),
    ]
}
