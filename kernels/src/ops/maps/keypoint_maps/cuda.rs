//! CUDA launches of `keypoint_maps` and its gradient.

use device::{Launch, LaunchArgs};

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (x, maps) = (args.inputs[0], args.outputs[0]);
    let launch = Launch::over("keypoint_maps_f16", maps.len()).arg(x.read());
    let launch = launch.arg(args.inputs[1].read()).arg(maps.write()).len(maps.len());
    vec![(1..4).fold(launch, |launch, axis| launch.int(x.dim(axis)))]
}

pub(super) fn grad_launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (g, dx) = (args.inputs[0], args.outputs[0]);
    let launch = Launch::over("keypoint_maps_grad_f16", dx.len()).arg(g.read());
    let launch = launch.arg(args.inputs[1].read()).arg(dx.write()).len(dx.len());
    vec![(1..4).fold(launch, |launch, axis| launch.int(dx.dim(axis)))]
}
