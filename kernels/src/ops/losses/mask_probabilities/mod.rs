//! Mask probabilities of the predicted class: what evaluation pastes into the image.
//!
//! Tensors: `mask_logits [M, S, S]` f32, of the label's channel ([`ClassMasks`]), `labels [M]` i32,
//! `count [1]` i32 (all in) -> `probs [M, S, S]` (overwritten): the sigmoid; 0 in rows at or past
//! the count and where the label is 0 or below.
//!
//! [`ClassMasks`]: crate::ops::class_masks::ClassMasks

mod cases;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::check::Dims;
use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;
use crate::losses::sigmoid;
use crate::{Cost, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Sigmoid of the mask logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MaskProbabilities;

const NAME: &str = "mask_probabilities";

impl Op for MaskProbabilities {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, 3, updates)?;
        dims.f32("mask_logits", &inputs[0], "[M, S, S]")?;
        let shape = &inputs[0].shape;
        dims.i32("labels", &inputs[1], "[M]")?;
        dims.i32("count", &inputs[2], "[1]")?;
        Ok(vec![TensorDesc::new(Role::Score, shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 4 * outputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
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
