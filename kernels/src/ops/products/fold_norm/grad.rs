//! Gradient of `fold_norm`.

use device::{Launch, LaunchArgs};

use crate::contract::{Flops, Kernel};
use crate::cpu::{CpuArgs, exactly};
use crate::op;

use super::inverse;

op! {
    /// Gradients of the weights, the scale and the shift. The sum is in f64, in an order that
    /// depends on the filter's length alone. Bound by memory.
    #[derive(Copy)]
    pub struct FoldNormGrad = "fold_norm_grad" {
        /// Summand of the variance.
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
        /// The sum of `w * dfolded` over a filter less `mean * dbias`, over `sqrt(var + eps)`.
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
