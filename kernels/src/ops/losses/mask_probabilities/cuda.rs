//! CUDA launch of `mask_probabilities`.

use device::{Launch, LaunchArgs};

use crate::DType;

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (logits, probs) = (args.inputs[0], args.outputs[0]);
    let kernel = match logits.dtype() {
        DType::F16 => "mask_probabilities_f16",
        _ => "mask_probabilities_f32",
    };
    vec![
        Launch::over(kernel, probs.len())
            .arg(logits.read())
            .arg(args.inputs[1].read())
            .arg(args.inputs[2].read())
            .arg(probs.write())
            .len(probs.len())
            .int(logits.dim(1) * logits.dim(2)),
    ]
}
