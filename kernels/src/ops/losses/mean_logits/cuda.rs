//! CUDA launch of `mean_logits`.

use device::{Buffer, Launch, LaunchArgs, StructArg};

use super::MAX_STAGES;
use crate::DType;

/// Rows of a block, one a warp.
const WARPS: usize = 8;

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (first, mean) = (args.inputs[0], args.outputs[0]);
    let kernel = match first.dtype() {
        DType::F16 => "mean_logits_f16",
        _ => "mean_logits_f32",
    };
    let stages: Vec<_> = args.inputs.iter().map(Buffer::read).collect();
    vec![
        Launch::new(kernel, [first.dim(0).div_ceil(WARPS), 1, 1])
            .arg(StructArg::new().pointers(&stages, MAX_STAGES).arg())
            .arg(mean.write())
            .int(stages.len())
            .int(first.dim(0))
            .int(first.dim(1)),
    ]
}
