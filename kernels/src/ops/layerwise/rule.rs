//! What NovoGrad and LARS make of a parameter's norms. `layerwise.cu` computes the same in double,
//! operation by operation, so the bits are equal.

use crate::ops::control_step::Control;

use super::LayerGroup;

/// How the factors of an update follow from norms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LayerRule {
    /// NovoGrad.
    Novograd(Novograd),
    /// LARS.
    Lars(Lars),
}

/// Layer-wise adaptive rate scaling: <https://arxiv.org/abs/1708.03888>, Algorithm 1.
///
/// `m = momentum * m + rate * local * (g + weight_decay * w); w -= m`, with
/// `local = trust * |w| / (|g| + weight_decay * |w|)`, or 1 where a norm is 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lars {
    /// Part of the last update that is kept.
    pub momentum: f32,
    /// Length of an update as a part of its weight's, before rate and momentum.
    pub trust: f32,
}

/// Stochastic gradient descent with moments of layer-wise norms: <https://arxiv.org/abs/1905.11286>.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Novograd {
    /// Part of the first moment that is kept.
    pub beta1: f32,
    /// Part of the second moment, of the gradient's squared norm, that is kept.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub eps: f32,
    /// As in the paper or as in apex.
    pub form: NovogradForm,
}

/// The two forms in use, which differ in more than rounding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NovogradForm {
    /// Algorithm 1: `m = beta1 * m + (g / (sqrt(v) + eps) + weight_decay * w); w -= rate * m`,
    /// without `eps` in the first update, whose `v` is the squared norm itself.
    Paper,
    /// `FusedNovoGrad` of NVIDIA's apex.
    Apex {
        /// Divides both moments by `1 - beta^t`.
        bias_correction: bool,
        /// Normalizes and decays before the momentum; else after it, which then averages raw
        /// gradients.
        reg_inside: bool,
        /// Multiplies what the momentum takes in with `1 - beta1`.
        averaging: bool,
        /// The second moment starts at 0; else at the first squared norm.
        init_zero: bool,
    },
}

/// Factors of one parameter's update, see [`super::Layerwise`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Factors {
    pub(super) keep: f32,
    pub(super) of_grad: f32,
    pub(super) of_weight: f32,
    pub(super) of_momentum: f32,
    pub(super) decay: f32,
}

/// What the rules know of one parameter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    /// Learning rate of the parameter.
    rate: f64,
    weight_decay: f64,
    grad_factor: f64,
    /// Norm of the gradient, unscaled and clipped.
    norm: f64,
}

impl Known {
    /// `norm` is that of the gradient as given.
    pub(super) fn new(group: LayerGroup, control: Control, norm: f32) -> Self {
        let grad_factor = f64::from(control.grad_factor);
        let factor = f64::from(group.lr_factor);
        Self {
            rate: f64::from(control.lr) * factor + f64::from(control.warmup_cut) * (factor - 1.0),
            weight_decay: f64::from(group.weight_decay),
            grad_factor,
            norm: f64::from(norm) * grad_factor,
        }
    }
}

impl LayerRule {
    /// Whether the rule has a state of its own.
    pub(super) fn has_state(&self) -> bool {
        matches!(self, Self::Novograd(_))
    }

    /// Whether the rule asks for the norms of weights.
    pub(super) fn needs_weight_norms(&self) -> bool {
        matches!(self, Self::Lars(_))
    }
}

impl Lars {
    pub(super) fn factors(&self, known: Known, adapts: bool, weight_norm: f64) -> Factors {
        let trust = f64::from(self.trust);
        let local = if adapts && known.norm > 0.0 && weight_norm > 0.0 {
            trust * weight_norm / (known.norm + known.weight_decay * weight_norm)
        } else {
            1.0
        };
        let rate = known.rate * local;
        Factors {
            keep: self.momentum,
            of_grad: (rate * known.grad_factor) as f32,
            of_weight: (rate * known.weight_decay) as f32,
            of_momentum: 1.0,
            decay: 0.0,
        }
    }
}

impl Novograd {
    /// The factors of update `t` (1 is the first), and the new root of the second moment.
    pub(super) fn factors(&self, known: Known, average: f32, t: u32) -> (Factors, f32) {
        let (beta1, beta2) = (f64::from(self.beta1), f64::from(self.beta2));
        let eps = f64::from(self.eps);
        let first = t <= 1;
        let start = match self.form {
            NovogradForm::Apex { init_zero: true, .. } => 0.0,
            _ => known.norm,
        };
        let before = if first { start } else { f64::from(average) };
        let is_apex = self.form != NovogradForm::Paper;
        let root = if first && !is_apex {
            known.norm
        } else {
            (beta2 * (before * before) + (1.0 - beta2) * (known.norm * known.norm)).sqrt()
        };
        let NovogradForm::Apex { bias_correction, reg_inside, averaging, .. } = self.form else {
            let inverse = inverse(if first { root } else { root + eps });
            let factors = Factors {
                keep: self.beta1,
                of_grad: (inverse * known.grad_factor) as f32,
                of_weight: known.weight_decay as f32,
                of_momentum: known.rate as f32,
                decay: 0.0,
            };
            return (factors, root as f32);
        };
        let [c1, c2] = match bias_correction {
            true => [1.0 - power(beta1, t), (1.0 - power(beta2, t)).sqrt()],
            false => [1.0, 1.0],
        };
        let taken = if averaging { 1.0 - beta1 } else { 1.0 };
        let inverse = inverse(root / c2 + eps);
        let factors = match reg_inside {
            true => Factors {
                keep: self.beta1,
                of_grad: (taken * inverse * known.grad_factor) as f32,
                of_weight: (taken * known.weight_decay) as f32,
                of_momentum: (known.rate / c1) as f32,
                decay: 0.0,
            },
            false => Factors {
                keep: self.beta1,
                of_grad: (taken * known.grad_factor) as f32,
                of_weight: 0.0,
                of_momentum: (known.rate * inverse / c1) as f32,
                decay: (known.rate * known.weight_decay) as f32,
            },
        };
        (factors, root as f32)
    }
}

/// 1 / x, and 0 of 0: a gradient of zeros stays one.
fn inverse(x: f64) -> f64 {
    if x > 0.0 { 1.0 / x } else { 0.0 }
}

/// `base^exponent` by squaring. Not powi, whose order of products is the compiler's.
fn power(base: f64, exponent: u32) -> f64 {
    let (mut result, mut square, mut rest) = (1.0, base, exponent);
    while rest > 0 {
        if rest % 2 == 1 {
            result *= square;
        }
        square *= square;
        rest /= 2;
    }
    result
}
