//! The norm behind a convolution, put into its weights and a bias: a batch norm whose statistics
//! are constants and whose scale and shift are trained.
//!
//! `norm(conv(x, w)) = conv(x, folded) + bias`, as in `torch.nn.functional.batch_norm` with
//! `training = False`.
//! Tensors: `w [K, ..]`, `gamma [K]`, `beta [K]`, `mean [K]`, `var [K]` (all in) -> `folded` (shape
//! and role of w): `w * gamma / sqrt(var + eps)`, and `bias [K]`: `beta - mean * gamma / sqrt(var +
//! eps)`; both overwritten. `mean` and `var` get no gradient. The scale is made in f64, a product
//! of f32 rounded once. Bound by memory. Edges: K = 0, and filters without values, are fine.

mod cases;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check;
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Cost, DType, Op, OpError, Role, Sink, Source, TensorDesc};

pub use cases::cases;
pub use grad::FoldNormGrad;

/// `folded[k] = w[k] * scale[k]`, `bias[k] = beta[k] - mean[k] * scale[k]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FoldNorm {
    /// Summand of the variance.
    pub eps: f32,
}

op_inputs! {
    /// The inputs of [`FoldNorm`].
    pub struct FoldNormInputs {
        /// `[K, ..]`.
        w,
        /// `[K]`.
        gamma,
        /// `[K]`.
        beta,
        /// `[K]`.
        mean,
        /// `[K]`.
        var,
    }
}

const NAME: &str = "fold_norm";

/// 1 / standard deviation.
fn inverse(var: f32, eps: f32) -> f64 {
    1.0 / (f64::from(var) + f64::from(eps)).sqrt()
}

/// Fails unless `w` has filters, and each vector a value for each of them.
fn check_filters(
    op: &'static str,
    w: &TensorDesc,
    vectors: &[(&'static str, &TensorDesc)],
) -> Result<(), OpError> {
    check::dtype(op, "w", w, DType::F32)?;
    if w.shape.is_empty() {
        return Err(check::shape_error(op, "w", w, "[K, ..]".into()));
    }
    vectors.iter().try_for_each(|(name, desc)| check::floats(op, name, desc, &w.shape[..1]))
}

impl Op for FoldNorm {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, FoldNormInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        let FoldNormInputs { w, gamma, beta, mean, var } = FoldNormInputs::of(inputs);
        let vectors = [("gamma", gamma), ("beta", beta), ("mean", mean), ("var", var)];
        check_filters(NAME, w, &vectors)?;
        Ok(vec![w.clone(), TensorDesc::new(Role::Master, &w.shape[..1])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, inputs[0].len() as u64)
    }

    fn backward(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        let Self { eps } = *self;
        let inputs = [0, 1, 3, 4].map(Source::Input);
        let from = [[Source::GradOutput(0), Source::GradOutput(1)].as_slice(), &inputs].concat();
        BackwardRule::default().step(FoldNormGrad { eps }, &from, &[0, 1, 2].map(Sink::GradInput))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::forward(self.eps, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let FoldNormInputs { w, gamma, beta, mean, var } = FoldNormInputs::of(&args.inputs);
        let [w, gamma, beta, mean, var] = [w, gamma, beta, mean, var].map(|t| t.f32());
        let len = w.len() / gamma.len().max(1);
        let [folded, bias] = &mut args.outputs[..] else { unreachable!("{NAME} has two outputs") };
        let (folded, bias) = (folded.f32(), bias.f32());
        for k in 0..gamma.len() {
            let scale = f64::from(gamma[k]) * inverse(var[k], self.eps);
            bias[k] = (f64::from(beta[k]) - f64::from(mean[k]) * scale) as f32;
            let filter = k * len..(k + 1) * len;
            for (folded, w) in folded[filter.clone()].iter_mut().zip(&w[filter]) {
                *folded = *w * scale as f32;
            }
        }
    }
}
