//! CUDA launch of `weighted_losses`.

use device::{Arg, Buffer, Launch, LaunchArgs, StructArg};

use super::MAX_LOSSES;

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [losses @ .., weight, stop] = &args.inputs[..] else {
        panic!("weighted_losses: weight and stop")
    };
    let pointers: Vec<Arg> = losses.iter().map(Buffer::read).collect();
    let losses = StructArg::new().pointers(&pointers, MAX_LOSSES).arg();
    vec![
        Launch::new("weighted_losses", [1, 1, 1])
            .block(MAX_LOSSES as u32)
            .arg(losses)
            .int(pointers.len())
            .arg(weight.read())
            .arg(stop.read())
            .arg(args.outputs[0].write()),
    ]
}
