//! CUDA launch of `scalar_product`.

use device::{Launch, LaunchArgs};

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [a, b] = [args.inputs[0], args.inputs[1]];
    let launch = Launch::over("scalar_product", 1).arg(a.read()).arg(b.read());
    vec![launch.arg(args.outputs[0].write())]
}
