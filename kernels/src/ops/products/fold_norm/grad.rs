//! Gradient of `fold_norm`.
//!
//! Tensors: `dfolded [K, ..]` and `dbias [K]` of the outputs, `w [K, ..]`, `gamma [K]`, `mean [K]`,
//! `var [K]` (all in) -> `dw [K, ..]`: `dfolded * gamma / sqrt(var + eps)`; `dgamma [K]`: the sum
//! of `w * dfolded` over a filter less `mean * dbias`, over `sqrt(var + eps)`; `dbeta [K]`:
//! `dbias`. All overwritten. The sum is in f64, in an order that depends on the filter's length
//! alone. Bound by memory.

use device::{Launch, LaunchArgs};

use super::{check_filters, cuda, inverse};
use crate::check;
use crate::cpu::CpuArgs;
use crate::{Cost, DType, Op, OpError, Role, TensorDesc};

/// Gradients of the weights, the scale and the shift.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FoldNormGrad {
    /// Summand of the variance.
    pub eps: f32,
}

op_inputs! {
    /// The inputs of [`FoldNormGrad`].
    pub struct FoldNormGradInputs {
        /// `[K, ..]`.
        dfolded,
        /// `[K]`.
        dbias,
        /// `[K, ..]`.
        w,
        /// `[K]`.
        gamma,
        /// `[K]`.
        mean,
        /// `[K]`.
        var,
    }
}

const NAME: &str = "fold_norm_grad";

impl Op for FoldNormGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, FoldNormGradInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        let FoldNormGradInputs { dfolded, dbias, w, gamma, mean, var } =
            FoldNormGradInputs::of(inputs);
        let vectors = [("dbias", dbias), ("gamma", gamma), ("mean", mean), ("var", var)];
        check_filters(NAME, w, &vectors)?;
        check::dtype(NAME, "dfolded", dfolded, DType::F32)?;
        check::shape(NAME, "dfolded", dfolded, &w.shape)?;
        let gradient = |shape: &[usize]| TensorDesc::new(Role::WeightGradient, shape);
        let [dgamma, dbeta] = [0, 1].map(|_| gradient(&w.shape[..1]));
        Ok(vec![gradient(&w.shape), dgamma, dbeta])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 3 * inputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::backward(self.eps, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = FoldNormGradInputs::of(&args.inputs);
        let FoldNormGradInputs { dfolded, dbias, w, gamma, mean, var } = inputs;
        let [dfolded, dbias, w] = [dfolded, dbias, w].map(|t| t.f32());
        let [gamma, mean, var] = [gamma, mean, var].map(|t| t.f32());
        let len = w.len() / gamma.len().max(1);
        let [dw, dgamma, dbeta] = &mut args.outputs[..] else {
            unreachable!("{NAME} has three outputs")
        };
        let dw = dw.f32();
        for (k, (dgamma, dbeta)) in dgamma.f32().iter_mut().zip(dbeta.f32()).enumerate() {
            let inverse = inverse(var[k], self.eps);
            let scale = (f64::from(gamma[k]) * inverse) as f32;
            let filter = k * len..(k + 1) * len;
            let mut sum = 0.0;
            let values = w[filter.clone()].iter().zip(&dfolded[filter.clone()]);
            for (dw, (w, dfolded)) in dw[filter].iter_mut().zip(values) {
                *dw = *dfolded * scale;
                sum += f64::from(*w) * f64::from(*dfolded);
            }
            *dgamma = ((sum - f64::from(mean[k]) * f64::from(dbias[k])) * inverse) as f32;
            *dbeta = dbias[k];
        }
    }
}
