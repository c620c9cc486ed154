//! Layer normalisation (Ba et al. 2016) over the channels of each position:
//! `y = (x - mean) * rstd * gamma + beta`.
//!
//! Matches `torch.nn.functional.layer_norm` over the last dimension, and torchvision's
//! `LayerNorm2d`; the variance is biased.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::{CpuArgs, exactly};
use crate::{BackwardRule, OpError, Sink, Source, TensorDesc, check, op};

pub use cases::cases;
pub use grad::LayerNormGrad;

op! {
    /// `y = normalised(x) * gamma + beta`, each position by itself.
    ///
    /// Sums over channels in f32, some side by side in a fixed order; those over positions, for the
    /// gradients of scale and shift, as in `bias_grad`. Bound by memory. Edges: no positions are
    /// fine, no channels are refused.
    #[derive(Copy)]
    pub struct LayerNorm = "layer_norm" {
        /// Summand of the variance.
        pub eps: f32,
    }
    in LayerNormInputs {
        /// Positions of C channels.
        x: real "[.., C]",
        /// Scale.
        gamma: f32 "[C]",
        /// Shift.
        beta: f32 "[C]",
    }
    out {
        /// Output.
        y: Activation "[.., C]",
        /// Mean and rstd of each position; they serve the gradient, and carry none.
        stats: Master "[M, 2]",
    }
}

/// Positions of `[.., C]`.
fn positions(x: &TensorDesc) -> usize {
    x.shape[..x.shape.len() - 1].iter().product()
}

/// Fails unless `x` has positions of channels; binds their number to M.
fn check_channels(op: &'static str, x: &TensorDesc, dims: &mut Dims) -> Result<(), OpError> {
    if x.shape.len() < 2 || x.dim(-1) == 0 {
        return Err(check::shape_error(op, "x", x, "[.., C] with C > 0".into()));
    }
    dims.bind("M", positions(x));
    Ok(())
}

impl Kernel for LayerNorm {
    const FLOPS: Flops = Flops::Output(7);

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_channels(dims.op(), &inputs[0], dims)
    }

    fn backward(&self, _inputs: &[TensorDesc]) -> BackwardRule {
        let from = [Source::GradOutput(0), Source::Input(0), Source::Input(1), Source::Output(1)];
        BackwardRule::default().step(LayerNormGrad, &from, &[0, 1, 2].map(Sink::GradInput))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::forward(self.eps, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let LayerNormInputs { x, gamma, beta } = LayerNormInputs::of(&args.inputs);
        let [x, gamma, beta] = [x, gamma, beta].map(|t| t.f32());
        let [y, stats] = exactly(&mut args.outputs);
        cpu::forward(x, (gamma, beta), self.eps, y.f32(), stats.f32());
    }
}
