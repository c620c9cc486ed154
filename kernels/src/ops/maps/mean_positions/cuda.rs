//! CUDA launches of `mean_positions` and its gradient.

use device::{Launch, LaunchArgs};

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (x, y) = (args.inputs[0], args.outputs[0]);
    vec![
        Launch::over("mean_positions_f16", y.len())
            .arg(x.read())
            .arg(args.inputs[1].read())
            .arg(y.write())
            .len(y.len())
            .int(x.dim(1) * x.dim(2))
            .int(x.dim(3)),
    ]
}

pub(super) fn grad_launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (g, dx) = (args.inputs[0], args.outputs[0]);
    vec![
        Launch::over("mean_positions_grad_f16", dx.len())
            .arg(g.read())
            .arg(args.inputs[1].read())
            .arg(dx.write())
            .len(dx.len())
            .int(dx.dim(1) * dx.dim(2))
            .int(dx.dim(3)),
    ]
}
