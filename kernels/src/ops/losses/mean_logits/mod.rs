//! Class logits whose softmax is the mean of several stages' softmax: the scores of a cascade.
//!
//! Matches detectron2's `CascadeROIHeads._forward_box` in inference, which averages the
//! probabilities of its stages.
//!
//! Edge cases: a NaN logit makes its row NaN; a mean probability of 0 gives minus infinity.

mod cases;

use device::{Buffer, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{Cost, OpError, TensorDesc, op};

pub use cases::cases;

/// Maximum number of stages that the kernel supports.
pub const MAX_STAGES: usize = 3;

op! {
    /// Averages the stages' probabilities.
    #[derive(Copy, Eq)]
    pub struct MeanLogits = "mean_logits" {}
    in MeanLogitsInputs {
    }
    each {
        /// Logits of a stage.
        logits: real "[M, K+1]",
    }
    out {
        /// Logarithm of the mean probability, with the role of `logits`.
        mean: Activation "[M, K+1]",
    }
}

/// Rows per block, one per warp.
const WARPS: usize = 8;

impl Kernel for MeanLogits {
    const KEEPS_ROLE: bool = true;

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let (got, expected) = (inputs.len(), format!("2 to {MAX_STAGES}"));
        match got {
            2..=MAX_STAGES => Ok(()),
            _ => Err(OpError::Arity { op: dims.op(), what: "inputs", expected, got }),
        }
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 8 * (inputs.len() * outputs[0].len()) as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (first, mean) = (args.inputs[0], args.outputs[0]);
        let stages = args.inputs.iter().map(Buffer::read);
        vec![
            Launch::new("mean_logits_f16", [first.dim(0).div_ceil(WARPS), 1, 1])
                .arg(StructArg::new().pointers(stages, MAX_STAGES).arg())
                .arg(mean.write())
                .int(args.inputs.len())
                .int(first.dim(0))
                .int(first.dim(1)),
        ]
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
