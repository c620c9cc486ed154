//! Group normalisation (Wu & He 2018) in NHWC with a fused epilogue:
//! `y = relu((x - mean) * rstd * gamma + beta + residual)`.
//!
//! Matches `torch.nn.functional.group_norm`; mean and variance (biased) run over the positions and
//! the C / groups channels of one group of one image.
//!
//! Bound by memory: x is read twice. Sums of 128 positions in f32, taken about the channel's first
//! value so that a large mean cancels nothing; the rest in f64, in order: deterministic.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Kernel};
use crate::cpu::{CpuArgs, TensorRef, exactly};
use crate::ops::relu_mask::ReluMask;
use crate::{BackwardRule, Cost, OpError, Sink, Source, TensorDesc, check, op};

pub use cases::cases;
pub use grad::{GroupNormGradInput, GroupNormGradParams, GroupNormGradSums};

op! {
    /// `y = relu(normalised(x) * gamma + beta + residual)`, ReLU and residual if flagged.
    pub struct GroupNorm = "group_norm" {
        /// Number of groups; it divides C.
        pub groups: usize,
        /// Summand of the variance.
        pub eps: f32,
        /// Negative results become 0.
        pub relu: bool,
        /// The last input is `residual [N,H,W,C]`.
        pub residual: bool,
    }
    in GroupNormInputs {
        /// Map.
        x: real "[N, H, W, C]",
        /// Scale.
        gamma: f32 "[C]",
        /// Shift.
        beta: f32 "[C]",
    }
    optional {
        /// Added before the ReLU.
        residual: real "[N, H, W, C]" if |op| op.residual,
    }
    out {
        /// Output.
        y: Activation "[N, H, W, C]",
        /// Mean and rstd of each group; they serve the gradients, and carry none.
        stats: Master "[N, groups, 2]",
    }
}

/// Fails unless `groups` divides the channels of `x`, and the map holds something.
fn check_map(op: &'static str, x: &TensorDesc, groups: usize) -> Result<(), OpError> {
    let divides = groups > 0 && x.dim(3).is_multiple_of(groups);
    let expected = format!("a divisor of the {} channels", x.dim(3));
    check::parameter(op, "groups", divides, &expected, groups)?;
    if x.dim(0) > 0 && x.shape[1..].contains(&0) {
        return Err(check::shape_error(op, "x", x, "[N, H, W, C] with H, W, C > 0".into()));
    }
    Ok(())
}

impl Kernel for GroupNorm {
    fn sizes(&self, dims: &mut Dims) {
        dims.bind("groups", self.groups);
    }

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_map(dims.op(), &inputs[0], self.groups)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let mut cost = Cost::streaming(inputs, outputs, 7 * outputs[0].len() as u64);
        cost.bytes += inputs[0].cpu_bytes() as u64;
        cost
    }

    fn backward(&self, _inputs: &[TensorDesc]) -> BackwardRule {
        let groups = self.groups;
        let mut rule = BackwardRule::default();
        let mut g = Source::GradOutput(0);
        if self.relu {
            rule = rule.step(ReluMask, &[g, Source::Output(0)], &[Sink::Temp(0)]);
            g = Source::Temp(0);
        }
        let (x, gamma, stats) = (Source::Input(0), Source::Input(1), Source::Output(1));
        let sums = usize::from(self.relu);
        rule = rule
            .step(GroupNormGradSums { groups }, &[g, x, stats], &[Sink::Temp(sums)])
            .step(
                GroupNormGradInput { groups },
                &[g, x, gamma, stats, Source::Temp(sums)],
                &[Sink::GradInput(0)],
            )
            .step(
                GroupNormGradParams,
                &[Source::Temp(sums)],
                &[Sink::GradInput(1), Sink::GradInput(2)],
            );
        if self.residual { rule.alias(g, 3) } else { rule }
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        cpu::Map::new(&inputs[0], self.groups).partial_len()
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        cuda::partial_bytes(&inputs[0], self.groups)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::forward(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let GroupNormInputs { x, gamma, beta, residual } =
            GroupNormInputs::of(&args.inputs, [self.residual]);
        let map = cpu::Map::new(x.desc, self.groups);
        let (x, gamma, beta) = (x.f32(), gamma.f32(), beta.f32());
        let residual = residual.map(TensorRef::f32);
        let [y, stats] = exactly(&mut args.outputs);
        cpu::statistics(map, x, self.eps, stats.f32(), args.workspace);
        cpu::normalise(map, x, (gamma, beta), residual, self.relu, stats.f32(), y.f32());
    }
}
