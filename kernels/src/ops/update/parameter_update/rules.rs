//! The rules of optimizers: what each keeps, asks for, and makes of a parameter and its norms.
//! `parameter_update.cu` computes the same, operation by operation, so the bits are equal.

use super::Group;
use crate::Cost;
use crate::isa::{Isa, wide};
use crate::ops::control_step::Control;

/// How parameters are updated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// SGD.
    Sgd(Sgd),
    /// NovoGrad.
    Novograd(Novograd),
    /// LARS.
    Lars(Lars),
    /// AdamW.
    Adamw(Adamw),
}

/// Stochastic gradient descent with momentum and weight decay, as `torch.optim.SGD`:
///
/// `g = grad + weight_decay * w; m = momentum * m + g;`
/// `w -= rate * (nesterov ? g + momentum * m : m)`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sgd {
    /// Part of the last update that is kept.
    pub momentum: f32,
    /// Nesterov's look-ahead.
    pub nesterov: bool,
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
    /// Summand of the root of the second moment.
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

/// Adam with decoupled weight decay, as `torch.optim.AdamW`: <https://arxiv.org/abs/1711.05101>,
/// Algorithm 2. Update `t`, the first being 1, is:
///
/// `m += (1 - beta1) * (g - m); v = beta2 * v + (1 - beta2) * g * g;`
/// `w = (1 - rate * weight_decay) * w - rate / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + eps)`
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Adamw {
    /// Part of the first moment that is kept. In f64, as torch has it: `1 - beta` in f32 has few
    /// digits left.
    pub beta1: f64,
    /// Part of the second moment, of each element's square, that is kept.
    pub beta2: f64,
    /// Summand of the root of the second moment.
    pub eps: f32,
}

/// The values of one parameter that a rule needs.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    group: Group,
    control: Control,
    /// Learning rate of the parameter.
    rate: f64,
    weight_decay: f64,
    grad_factor: f64,
    /// Norm of the gradient, unscaled and clipped.
    norm: f64,
}

/// The update of a parameter's elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    Sgd { sgd: Sgd, rate: f32, grad_factor: f32, weight_decay: f32 },
    Factors(Factors),
    Adamw(AdamwStep),
}

/// An update by AdamW: its factors, computed in f64 and rounded once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct AdamwStep {
    rule: [f32; 4],
    grad_factor: f32,
    keep: f32,
    step: f32,
    root: f32,
}

/// `m = keep * m + (of_grad * grad + of_weight * w); w -= of_momentum * m + decay * w`, by factors
/// that follow from norms, computed in f64 and rounded once.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Factors {
    keep: f32,
    of_grad: f32,
    of_weight: f32,
    of_momentum: f32,
    decay: f32,
}

impl Known {
    /// `norm` is that of the gradient as given.
    pub(super) fn new(group: Group, control: Control, norm: f32) -> Self {
        let grad_factor = f64::from(control.grad_factor);
        let factor = f64::from(group.lr_factor);
        Self {
            group,
            control,
            rate: f64::from(control.lr) * factor + f64::from(control.warmup_cut) * (factor - 1.0),
            weight_decay: f64::from(group.weight_decay),
            grad_factor,
            norm: f64::from(norm) * grad_factor,
        }
    }
}

impl Rule {
    /// True if the rule needs the norms of gradients.
    pub fn needs_norms(&self) -> bool {
        matches!(self, Self::Novograd(_) | Self::Lars(_))
    }

    /// True if the rule keeps the root of a second moment for each parameter.
    pub fn has_averages(&self) -> bool {
        matches!(self, Self::Novograd(_))
    }

    /// True if the rule keeps a second moment for each element.
    pub fn has_second_moments(&self) -> bool {
        matches!(self, Self::Adamw(_))
    }

    /// True if the rule counts the updates that it applied.
    pub fn counts_updates(&self) -> bool {
        self.has_averages() || self.has_second_moments()
    }

    /// Work of an element without a master.
    pub(super) fn cost(&self) -> Cost {
        match self {
            Self::Sgd(_) => Cost { flops: 7, bytes: 20 },
            Self::Novograd(_) => Cost { flops: 8, bytes: 20 },
            Self::Lars(_) => Cost { flops: 10, bytes: 24 },
            Self::Adamw(_) => Cost { flops: 14, bytes: 28 },
        }
    }

    /// The update of a parameter, given its weights' norm, its average if the rule keeps one, and
    /// the number of this update, 1 being the first.
    pub(super) fn step(
        &self,
        known: &Known,
        weight_norm: impl FnOnce() -> f64,
        average: Option<&mut f32>,
        t: u32,
    ) -> Step {
        match (*self, average) {
            (Self::Sgd(sgd), _) => Step::Sgd {
                sgd,
                rate: known.control.rate(known.group.lr_factor),
                grad_factor: known.control.grad_factor,
                weight_decay: known.group.weight_decay,
            },
            (Self::Lars(lars), _) => Step::Factors(lars.factors(known, weight_norm())),
            (Self::Adamw(adamw), _) => Step::Adamw(adamw.step(known, t)),
            (Self::Novograd(novograd), Some(average)) => {
                let (factors, root) = novograd.factors(known, *average, t);
                *average = root;
                Step::Factors(factors)
            }
            (Self::Novograd(_), None) => panic!("{self:?} runs only with its averages"),
        }
    }
}

impl Step {
    /// Updates a chunk of a parameter.
    pub(super) fn update(
        &self,
        isa: Isa,
        weights: &mut [f32],
        [momenta, seconds]: [&mut [f32]; 2],
        grads: &[f32],
    ) {
        match *self {
            Self::Sgd { sgd, rate, grad_factor, weight_decay } => {
                let rule = (sgd, rate, grad_factor, weight_decay);
                update_sgd(isa, rule, weights, momenta, grads);
            }
            Self::Factors(factors) => update_by_factors(isa, factors, weights, momenta, grads),
            Self::Adamw(step) => update_by_adamw(isa, step, weights, momenta, seconds, grads),
        }
    }
}

wide! {
    /// Updates a chunk, given rate, factor of the gradient and weight decay.
    fn update_sgd(
        rule: (Sgd, f32, f32, f32),
        weights: &mut [f32],
        momenta: &mut [f32],
        grads: &[f32],
    ) {
        let (Sgd { momentum, nesterov }, rate, grad_factor, weight_decay) = rule;
        for ((w, m), grad) in weights.iter_mut().zip(momenta).zip(grads) {
            let g = grad_factor * grad + weight_decay * *w;
            *m = momentum * *m + g;
            *w -= rate * if nesterov { g + momentum * *m } else { *m };
        }
    }
}

wide! {
    /// Updates a chunk.
    fn update_by_factors(
        factors: Factors,
        weights: &mut [f32],
        momenta: &mut [f32],
        grads: &[f32],
    ) {
        let Factors { keep, of_grad, of_weight, of_momentum, decay } = factors;
        for ((w, m), grad) in weights.iter_mut().zip(momenta).zip(grads) {
            *m = keep * *m + (of_grad * grad + of_weight * *w);
            *w -= of_momentum * *m + decay * *w;
        }
    }
}

wide! {
    /// Updates a chunk.
    fn update_by_adamw(
        step: AdamwStep,
        weights: &mut [f32],
        momenta: &mut [f32],
        seconds: &mut [f32],
        grads: &[f32],
    ) {
        let AdamwStep { rule: [take1, beta2, take2, eps], grad_factor, keep, step, root } = step;
        for (((w, m), v), grad) in weights.iter_mut().zip(momenta).zip(seconds).zip(grads) {
            let g = grad_factor * grad;
            *m += take1 * (g - *m);
            *v = beta2 * *v + take2 * (g * g);
            *w = keep * *w - step * (*m / (v.sqrt() / root + eps));
        }
    }
}

impl Adamw {
    /// The numbers of the rule that an element's update reads, as the kernel does.
    pub(super) fn read(&self) -> [f32; 4] {
        let rest = |beta: f64| (1.0 - beta) as f32;
        [rest(self.beta1), self.beta2 as f32, rest(self.beta2), self.eps]
    }

    fn step(&self, known: &Known, t: u32) -> AdamwStep {
        AdamwStep {
            rule: self.read(),
            grad_factor: known.control.grad_factor,
            keep: (1.0 - known.rate * known.weight_decay) as f32,
            step: (known.rate / (1.0 - power(self.beta1, t))) as f32,
            root: (1.0 - power(self.beta2, t)).sqrt() as f32,
        }
    }
}

impl Lars {
    fn factors(&self, known: &Known, weight_norm: f64) -> Factors {
        let trust = f64::from(self.trust);
        let local = if known.group.adapts && known.norm > 0.0 && weight_norm > 0.0 {
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
    fn factors(&self, known: &Known, average: f32, t: u32) -> (Factors, f32) {
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
pub(super) fn power(base: f64, exponent: u32) -> f64 {
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
