//! The rules of optimizers. A rule is a file here with its table of keys, its [`Entry`] and its
//! [`Rule`], beside it its kernels, and a line in the list [`crate::optimizer_rules`].
//!
//! Kernels compute the same as the CPU, operation by operation, so the bits are equal.

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

/// Hands the rules to a macro, with the documentation of `solver.optimizer`: each rule with its own
/// and its file; first those without a table of keys, then those whose table is `[solver.FILE]`.
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
    /// The facts that do not depend on its keys.
    fn entry(&self) -> &'static Entry;

    /// Checks its keys.
    fn check(&self, _check: &mut Check) {}

    /// True if the rate of a weight, or of another parameter, follows its norms.
    fn adapts(&self, _is_weight: bool) -> bool {
        true
    }

    /// The numbers of a parameter's update, computed in f64 and rounded once; changes the
    /// parameter's number among the rule's state, if it has one.
    fn factors(&self, known: &mut Known) -> Factors;

    /// Adds the fields of the kernel that computes the factors; where updates are counted, one
    /// follows that says if the launch is the last of a step.
    fn factor_fields(&self, fields: StructArg, _momentum: Momentum) -> StructArg {
        fields
    }

    /// Adds the fields of the kernel that updates.
    fn fields(&self, fields: StructArg, _momentum: Momentum) -> StructArg {
        fields
    }
}

/// The facts about a rule that do not depend on its keys.
#[derive(Debug)]
pub struct Entry {
    /// Its name by MLPerf's rules.
    pub mlperf: &'static str,
    /// Names of keys that mean it in other projects.
    pub synonyms: &'static [&'static str],
    /// It reads `solver.momentum`.
    pub has_momentum: bool,
    /// The learning rate follows the root of the batch, not the batch.
    pub rate_by_root: bool,
    /// It needs the norms of gradients.
    pub needs_norms: bool,
    /// It needs the norms of weights, too.
    pub needs_weight_norms: bool,
    /// State: the name of a number of each parameter, a tensor `[n]`.
    pub number: Option<&'static str>,
    /// State: the prefix of a second moment of each element.
    pub second: Option<&'static str>,
    /// State: the name of the count of updates.
    pub steps: Option<&'static str>,
    /// Work of an element without a master.
    pub cost: Cost,
    /// Updates a chunk of a parameter on the CPU.
    pub update: Update,
    /// The kernel that computes the factors of parameters.
    pub factors: Option<&'static str>,
    /// The kernel that updates, without and with sums for statistics.
    pub kernels: [&'static str; 2],
}

/// Updates a chunk by factors: weights, momenta, second moments (empty without), gradients.
pub type Update = fn(Isa, Factors, &mut [f32], &mut [f32], &mut [f32], &[f32]);

/// The numbers of a parameter's update, in an order of the rule's.
pub type Factors = [f32; 8];

/// How one parameter is updated.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Group {
    /// Weight decay, as the rule applies it.
    pub weight_decay: f32,
    /// The factor of the full learning rate.
    pub lr_factor: f32,
    /// An fp32 master is updated, of which the weight is a rounded copy.
    pub master: bool,
    /// A weight; no bias, and no scale or shift of a norm.
    pub is_weight: bool,
}

/// Keys of `[solver]` that several rules read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Momentum {
    /// Part of the last update that is kept.
    pub factor: f32,
    /// Nesterov's look-ahead.
    pub nesterov: bool,
}

/// The values of one parameter that a rule may need.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    /// Its group.
    pub group: Group,
    /// The control of the step.
    pub control: Control,
    /// The keys that rules share.
    pub momentum: Momentum,
    /// Learning rate of the parameter.
    pub rate: f64,
    /// Weight decay of the parameter.
    pub weight_decay: f64,
    /// The factor of gradients.
    pub grad_factor: f64,
    /// Norm of the gradient, unscaled and clipped.
    pub norm: f64,
    /// Norm of the weight.
    pub weight_norm: f64,
    /// The parameter's number among the rule's state.
    pub number: f32,
    /// The number of this update, 1 being the first.
    pub t: u32,
}

impl Known {
    /// The values of a rule that needs no norms and keeps nothing; `norm` is that of the gradient
    /// as given.
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

/// These factors, and zeros.
fn padded<const COUNT: usize>(values: [f32; COUNT]) -> Factors {
    std::array::from_fn(|i| values.get(i).copied().unwrap_or(0.0))
}

/// Checks the part of a moment that a step keeps.
fn below_one(check: &mut Check, key: &str, value: f64) {
    check.require((0.0..1.0).contains(&value), key, || {
        format!("is {value}; it must be at least 0 and below 1")
    });
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
