//! Optimizer rules. Each rule has a file here with its config keys, its [`Entry`] and its [`Rule`],
//! a file with its kernels, and a line in the list [`crate::optimizer_rules`].
//!
//! Results of the kernels are bit-identical to the CPU's: both do the same operations in the same
//! order.

pub mod adamw;
mod by_norms;
pub mod lars;
pub mod novograd;
pub mod sgd;

use std::fmt::Debug;

use configs::Check;
use device::StructArg;

use super::control_step::Control;
use crate::Cost;
use crate::isa::Isa;

/// Passes the rules to a macro, with the documentation of `solver.optimizer`: each rule with its
/// documentation and file; first the rules without config keys, then the rules with a table
/// `[solver.FILE]`.
#[macro_export]
macro_rules! optimizer_rules {
    ($with:ident) => {
        $with! {
            /// `"sgd"` (default), `"adamw"`, `"novograd"` or `"lars"`.
            plain {
                /// Stochastic gradient descent with momentum.
                Sgd = sgd,
            }
            tables {
                /// Stochastic gradient descent with moments of layer-wise norms.
                Novograd = novograd,
                /// Layer-wise adaptive rate scaling of SGD with momentum.
                Lars = lars,
                /// Adam with decoupled weight decay.
                Adamw = adamw,
            }
        }
    };
}

/// How parameters are updated.
pub trait Rule: Debug + Send + Sync {
    /// The properties that do not depend on config keys.
    fn entry(&self) -> &'static Entry;

    /// Checks the rule's config keys.
    fn check(&self, _check: &mut Check) {}

    /// True if the learning rate of a weight (or of a bias or norm parameter if `is_weight` is
    /// false) depends on its norms.
    fn adapts(&self, _is_weight: bool) -> bool {
        true
    }

    /// The coefficients of a parameter's update, computed in f64 and rounded once; updates the
    /// parameter's scalar in the rule's state, if the rule has one.
    fn factors(&self, known: &mut Known) -> Factors;

    /// Adds the rule's fields to the argument struct of the kernel that computes the factors. If
    /// the rule counts updates, the caller appends a field that is 1 in the last launch of a step.
    fn factor_fields(&self, fields: StructArg, _momentum: Momentum) -> StructArg {
        fields
    }

    /// Adds the rule's fields to the argument struct of the update kernel.
    fn fields(&self, fields: StructArg, _momentum: Momentum) -> StructArg {
        fields
    }
}

/// The properties of a rule that do not depend on config keys.
#[derive(Debug)]
pub struct Entry {
    /// Name of the rule in MLPerf logs.
    pub mlperf: &'static str,
    /// Config keys of other projects for which `solver.optimizer` is suggested.
    pub synonyms: &'static [&'static str],
    /// The rule reads `solver.momentum`.
    pub has_momentum: bool,
    /// The learning rate scales with the square root of the batch size, not with the batch size.
    pub rate_by_root: bool,
    /// The rule needs the norms of gradients.
    pub needs_norms: bool,
    /// The rule also needs the norms of weights.
    pub needs_weight_norms: bool,
    /// State: name of the tensor `[n]` with a scalar per parameter.
    pub number: Option<&'static str>,
    /// State: name prefix of the second moments, one value per element.
    pub second: Option<&'static str>,
    /// State: name of the update counter.
    pub steps: Option<&'static str>,
    /// Cost per element without a master weight.
    pub cost: Cost,
    /// Updates a chunk of a parameter on the CPU.
    pub update: Update,
    /// The kernel that computes the factors of parameters.
    pub factors: Option<&'static str>,
    /// The update kernel without and with sums for statistics.
    pub kernels: [&'static str; 2],
}

/// Updates a chunk with the given factors. The slices are weights, momenta, second moments (may be
/// empty), and gradients.
pub type Update = fn(Isa, Factors, &mut [f32], &mut [f32], &mut [f32], &[f32]);

/// The coefficients of a parameter's update, in the rule's order.
pub type Factors = [f32; 8];

/// How one parameter is updated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Weight decay, as the rule applies it.
    pub weight_decay: f32,
    /// Multiplies the full learning rate.
    pub lr_factor: f32,
    /// An fp32 master weight is updated, and the weight is its rounded copy.
    pub master: bool,
    /// True for a weight; false for a bias, or the scale or shift of a norm.
    pub is_weight: bool,
}

/// Hyperparameters that several optimizers share: keys of `[solver]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Momentum {
    /// Momentum coefficient.
    pub factor: f32,
    /// Nesterov momentum.
    pub nesterov: bool,
}

/// The values of one parameter that a rule may need.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// How the parameter is updated.
    pub group: Group,
    /// The decisions of `control_step`.
    pub control: Control,
    /// Hyperparameters that several optimizers share.
    pub momentum: Momentum,
    /// Learning rate of the parameter.
    pub rate: f64,
    /// Weight decay of the parameter.
    pub weight_decay: f64,
    /// Scale of gradients.
    pub grad_factor: f64,
    /// Norm of the gradient, unscaled and clipped.
    pub norm: f64,
    /// Norm of the weight.
    pub weight_norm: f64,
    /// The parameter's scalar in the rule's state, before this update.
    pub number: f32,
    /// The number of this update, 1 being the first.
    pub t: u32,
}

impl Known {
    /// The values for a rule without weight norms and state; `norm` is the gradient norm before
    /// `grad_factor`.
    pub(super) fn new(group: Group, control: Control, momentum: Momentum, norm: f32) -> Self {
        let grad_factor = f64::from(control.grad_factor);
        let factor = f64::from(group.lr_factor);
        Self {
            group,
            control,
            momentum,
            rate: f64::from(control.lr) * factor + f64::from(control.warmup_cut) * (factor - 1.0),
            weight_decay: f64::from(group.weight_decay),
            grad_factor,
            norm: f64::from(norm) * grad_factor,
            weight_norm: 0.0,
            number: 0.0,
            t: 0,
        }
    }
}

/// These factors, padded with zeros.
fn padded<const COUNT: usize>(values: [f32; COUNT]) -> Factors {
    std::array::from_fn(|i| values.get(i).copied().unwrap_or(0.0))
}

/// Checks that a moment's decay rate is below 1.
fn below_one(check: &mut Check, key: &str, value: f64) {
    check.require((0.0..1.0).contains(&value), key, || {
        format!("is {value}; it must be at least 0 and below 1")
    });
}

/// `base^exponent` by squaring. The multiplication order of powi is unspecified.
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
