//! Folds the norm after a convolution into the convolution's weights and a bias. The norm is a
//! batch norm with constant statistics and trained scale and shift.
//!
//! `norm(conv(x, w)) = conv(x, folded) + bias`, as in `torch.nn.functional.batch_norm` with
//! `training = False`.

mod cases;

use device::{Launch, LaunchArgs};

use crate::contract::{Flops, Kernel};
use crate::cpu::{CpuArgs, exactly};
use crate::{BackwardRule, Sink, Source, TensorDesc, op};

pub use cases::cases;

op! {
    /// `folded[k] = w[k] * scale[k]`, `bias[k] = beta[k] - mean[k] * scale[k]`.
    ///
    /// `mean` and `var` get no gradient. The scale is computed in f64, multiplied in f32, rounded
    /// once. Memory-bound. Edge cases: K = 0 and empty filters are supported.
    #[derive(Copy)]
    pub struct FoldNorm = "fold_norm" {
        /// Added to the variance.
        pub eps: f32,
    }
    in FoldNormInputs {
        /// Filters.
        w: real "[K, ..]",
        /// Scale.
        gamma: f32 "[K]",
        /// Shift.
        beta: f32 "[K]",
        /// Mean, a constant.
        mean: f32 "[K]",
        /// Variance, a constant.
        var: f32 "[K]",
    }
    out {
        /// `w * gamma / sqrt(var + eps)`, with the role of `w`.
        folded: Weight "[K, ..]",
        /// `beta - mean * gamma / sqrt(var + eps)`.
        bias: Master "[K]",
    }
}

/// 1 / standard deviation.
fn inverse(var: f32, eps: f32) -> f64 {
    1.0 / (f64::from(var) + f64::from(eps)).sqrt()
}

impl Kernel for FoldNorm {
    const KEEPS_ROLE: bool = true;

    const FLOPS: Flops = Flops::Input(1);

    fn backward(&self, _inputs: &[TensorDesc]) -> BackwardRule {
        let Self { eps } = *self;
        let inputs = [0, 1, 3, 4].map(Source::Input);
        let from = [[Source::GradOutput(0), Source::GradOutput(1)].as_slice(), &inputs].concat();
        BackwardRule::default().step(FoldNormGrad { eps }, &from, &[0, 1, 2].map(Sink::GradInput))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let filters = args.inputs[1].len();
        let launch = Launch::new("fold_norm", [filters, 1, 1]).tensors(args);
        vec![launch.int(args.inputs[0].len() / filters.max(1)).arg(self.eps)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let FoldNormInputs { w, gamma, beta, mean, var } = FoldNormInputs::of(&args.inputs);
        let [w, gamma, beta, mean, var] = [w, gamma, beta, mean, var].map(|t| t.f32());
        let len = w.len() / gamma.len().max(1);
        let [folded, bias] = exactly(&mut args.outputs);
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

op! {
    /// Gradients of the weights, the scale and the shift. The sum over a filter is in f64, in an
    /// order that depends only on the filter's length. Memory-bound.
    #[derive(Copy)]
    pub struct FoldNormGrad = "fold_norm_grad" {
        /// Added to the variance.
        pub eps: f32,
    }
    in FoldNormGradInputs {
        /// Gradient of the folded filters.
        dfolded: f32 "[K, ..]",
        /// Gradient of the bias.
        dbias: f32 "[K]",
        /// Filters.
        w: real "[K, ..]",
        /// Scale.
        gamma: f32 "[K]",
        /// Mean, a constant.
        mean: f32 "[K]",
        /// Variance, a constant.
        var: f32 "[K]",
    }
    out {
        /// `dfolded * gamma / sqrt(var + eps)`.
        dw: WeightGradient "[K, ..]",
        /// `(sum over a filter of w * dfolded - mean * dbias) / sqrt(var + eps)`.
        dgamma: WeightGradient "[K]",
        /// `dbias`.
        dbeta: WeightGradient "[K]",
    }
}

impl Kernel for FoldNormGrad {
    const FLOPS: Flops = Flops::Input(3);

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let filters = args.inputs[1].len();
        let launch = Launch::new("fold_norm_grad", [filters, 1, 1]).tensors(args);
        vec![launch.int(args.inputs[0].len() / filters.max(1)).arg(self.eps)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = FoldNormGradInputs::of(&args.inputs);
        let FoldNormGradInputs { dfolded, dbias, w, gamma, mean, var } = inputs;
        let [dfolded, dbias, w] = [dfolded, dbias, w].map(|t| t.f32());
        let [gamma, mean, var] = [gamma, mean, var].map(|t| t.f32());
        let len = w.len() / gamma.len().max(1);
        let [dw, dgamma, dbeta] = exactly(&mut args.outputs);
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
