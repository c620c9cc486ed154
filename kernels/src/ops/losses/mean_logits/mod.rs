//! Class logits whose softmax is the mean of the softmax of several stages: the scores of a
//! cascade.
//!
//! Matches detectron2's `CascadeROIHeads._forward_box` in inference, which averages the
//! probabilities of its stages.
//!
//! Tensors: `logits_s` (`[M, K+1]`) for each of two or three stages (all in) -> `logits`
//! (`[M, K+1]`, overwritten): the logarithm of the mean probability.
//! Edges: a NaN makes its row NaN; a probability of 0 gives minus infinity.

mod cases;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, TensorDesc};

pub use cases::cases;

/// Stages that a kernel takes.
pub const MAX_STAGES: usize = 3;

/// Averages the probabilities of stages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeanLogits;

const NAME: &str = "mean_logits";

impl Op for MeanLogits {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        if !(2..=MAX_STAGES).contains(&inputs.len()) {
            let expected = format!("2 to {MAX_STAGES}");
            return Err(OpError::Arity { op: NAME, what: "inputs", expected, got: inputs.len() });
        }
        let mut dims = Dims::new(NAME, inputs, inputs.len(), updates)?;
        for logits in inputs {
            dims.f32("logits_s", logits, "[M, K+1]")?;
        }
        Ok(vec![inputs[0].clone()])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 8 * (inputs.len() * outputs[0].len()) as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let stages: Vec<&[f32]> = args.inputs.iter().map(|logits| logits.f32()).collect();
        let classes = args.inputs[0].shape()[1].max(1);
        let rows = args.outputs[0].f32().par_chunks_mut(classes).enumerate();
        rows.for_each(|(row, mean)| {
            mean.fill(0.0);
            for logits in &stages {
                let own = &logits[row * classes..][..classes];
                let greatest = own.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
                let sum: f32 = own.iter().map(|x| (x - greatest).exp()).sum();
                let terms = mean.iter_mut().zip(own);
                terms.for_each(|(mean, x)| *mean += (x - greatest).exp() / sum);
            }
            mean.iter_mut().for_each(|mean| *mean = (*mean / stages.len() as f32).ln());
        });
    }
}
