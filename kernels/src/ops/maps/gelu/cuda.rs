//! CUDA launches of `gelu` and its gradient.

use device::{Launch, LaunchArgs};

use crate::losses::launch::assert_real;

/// Elements that a thread works on; as in `vector.cuh`.
const VECTOR: usize = 8;

/// An elementwise kernel of one output.
pub(super) fn launches(kernel: &'static str, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let y = args.outputs[0];
    args.inputs.iter().for_each(|input| assert_real(input.desc));
    let launch = Launch::over(kernel, y.len().div_ceil(VECTOR));
    let launch = args.inputs.iter().fold(launch, |launch, input| launch.arg(input.read()));
    vec![launch.arg(y.write()).len(y.len())]
}
