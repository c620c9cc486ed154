//! CUDA launches of `fold_norm` and its gradient: a block for each filter.

use device::{Launch, LaunchArgs};

pub(super) fn forward(eps: f32, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let filters = args.inputs[1].len();
    let inputs = args.inputs.iter();
    let launch = inputs.fold(Launch::new("fold_norm", [filters, 1, 1]), |l, t| l.arg(t.read()));
    let launch = args.outputs.iter().fold(launch, |l, t| l.arg(t.write()));
    vec![launch.int(args.inputs[0].len() / filters.max(1)).arg(eps)]
}

pub(super) fn backward(eps: f32, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let filters = args.inputs[1].len();
    let launch = Launch::new("fold_norm_grad", [filters, 1, 1]);
    let launch = args.inputs.iter().fold(launch, |l, t| l.arg(t.read()));
    let launch = args.outputs.iter().fold(launch, |l, t| l.arg(t.write()));
    vec![launch.int(args.inputs[0].len() / filters.max(1)).arg(eps)]
}
