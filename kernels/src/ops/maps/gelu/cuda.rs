//! CUDA launches of `gelu` and its gradient.

use device::{Launch, LaunchArgs};

/// Elements that a thread works on; as in `vector.cuh`.
const VECTOR: usize = 8;

/// An elementwise kernel of one output.
pub(super) fn launches(kernel: &'static str, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let y = args.outputs[0];
    let launch = Launch::over(kernel, y.len().div_ceil(VECTOR));
    vec![launch.tensors(args).len(y.len())]
}
