//! Mask probabilities of the predicted class, which evaluation pastes into the image.

mod cases;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::contract::{Flops, Kernel};
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::losses::sigmoid;
use crate::op;

pub use cases::cases;

op! {
    /// Sigmoid of the mask logits.
    #[derive(Copy, Eq)]
    pub struct MaskProbabilities = "mask_probabilities" {}
    in MaskProbabilitiesInputs {
        /// Logits of the channel of the row's label (see
        /// [`ClassMasks`](crate::ops::class_masks::ClassMasks)).
        mask_logits: real "[M, H, W]",
        /// Predicted class.
        labels: i32 "[M]",
        /// Number of rows in use.
        count: i32 "[1]",
    }
    out {
        /// The sigmoid; 0 in rows at or past the count and where the label is 0 or below.
        probs: Score "[M, H, W]",
    }
}

impl Kernel for MaskProbabilities {
    const FLOPS: Flops = Flops::Output(4);

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (logits, probs) = (args.inputs[0], args.outputs[0]);
        vec![
            Launch::over("mask_probabilities_f16", probs.len())
                .tensors(args)
                .len(probs.len())
                .int(logits.dim(1) * logits.dim(2)),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let shape = args.inputs[0].shape();
        let pixels = shape[1] * shape[2];
        let (logits, labels) = (args.inputs[0].f32(), args.inputs[1].i32());
        let count = rows_in_use(args.inputs[2].i32(), shape[0]);
        let probs = args.outputs[0].f32();
        if probs.is_empty() {
            return;
        }
        probs.par_chunks_mut(pixels).enumerate().for_each(|(row, probs)| {
            if row >= count || labels[row] <= 0 {
                probs.fill(0.0);
                return;
            }
            let logits = &logits[row * pixels..][..pixels];
            probs.iter_mut().zip(logits).for_each(|(p, logit)| *p = sigmoid(*logit));
        });
    }
}
