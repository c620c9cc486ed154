//! Layer normalisation (Ba et al. 2016) over the channels of each position:
//! `y = (x - mean) * rstd * gamma + beta`.
//!
//! Matches `torch.nn.functional.layer_norm` over the last dimension, and torchvision's
//! `LayerNorm2d`; the variance is biased.
//! Tensors: `x [.., C]`, `gamma [C]`, `beta [C]` (in) -> `y [.., C]`, `stats [M, 2]` (mean and rstd
//! of each of the M positions), both overwritten. `stats` serves the gradient and carries none.
//! Gradient (`layer_norm_grad`): `g`, `x`, `gamma`, `stats` -> `dx`, `dgamma`, `dbeta`. Sums over
//! channels in f32, some side by side in a fixed order; those over positions as in `bias_grad`.
//! Bound by memory. Edges: no positions are fine, no channels are refused.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check;
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Cost, DType, Op, OpError, Role, Sink, Source, TensorDesc};

pub use cases::cases;
pub use grad::LayerNormGrad;

/// `y = normalised(x) * gamma + beta`, each position by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LayerNorm {
    /// Summand of the variance.
    pub eps: f32,
}

op_inputs! {
    /// The inputs of [`LayerNorm`].
    pub struct LayerNormInputs {
        /// `[.., C]`.
        x,
        /// `[C]`.
        gamma,
        /// `[C]`.
        beta,
    }
}

const NAME: &str = "layer_norm";

/// Positions of `[.., C]`.
fn positions(x: &TensorDesc) -> usize {
    x.shape[..x.shape.len() - 1].iter().product()
}

/// Fails unless `x` is `[.., C]` with channels, and each vector has as many values.
fn check_channels(
    op: &'static str,
    x: &TensorDesc,
    vectors: &[(&'static str, &TensorDesc)],
) -> Result<(), OpError> {
    check::dtype(op, "x", x, DType::F32)?;
    if x.shape.len() < 2 || x.dim(-1) == 0 {
        return Err(check::shape_error(op, "x", x, "[.., C] with C > 0".into()));
    }
    vectors.iter().try_for_each(|(name, desc)| check::floats(op, name, desc, &[x.dim(-1)]))
}

impl Op for LayerNorm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, LayerNormInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        let LayerNormInputs { x, gamma, beta } = LayerNormInputs::of(inputs);
        check_channels(NAME, x, &[("gamma", gamma), ("beta", beta)])?;
        let stats = TensorDesc::new(Role::Master, &[positions(x), 2]);
        Ok(vec![TensorDesc::new(Role::Activation, &x.shape), stats])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 7 * outputs[0].len() as u64)
    }

    fn backward(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        let from = [Source::GradOutput(0), Source::Input(0), Source::Input(1), Source::Output(1)];
        BackwardRule::default().step(LayerNormGrad, &from, &[0, 1, 2].map(Sink::GradInput))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::forward(self.eps, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let LayerNormInputs { x, gamma, beta } = LayerNormInputs::of(&args.inputs);
        let [x, gamma, beta] = [x, gamma, beta].map(|t| t.f32());
        let [y, stats] = &mut args.outputs[..] else { unreachable!("{NAME} has two outputs") };
        cpu::forward(x, (gamma, beta), self.eps, y.f32(), stats.f32());
    }
}
