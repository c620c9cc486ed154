//! The tensors that `[[train.log]]` reads after a step.

use std::collections::BTreeSet;

use crate::config::LogOf;
use graph::TensorId;
use kernels::DType;

use super::net::Net;
use super::optimizer::Trained;
use super::patterns::invalid;
use crate::error::EngineError;
use crate::names::{matches, misfit};

/// Prefix of the output with a parameter's gradient, multiplied by the loss scale and
/// [`super::Division::divisor`].
pub(crate) const LOGGED_GRADIENT: &str = "logged/gradient/";
/// Prefix of an output with an activation.
pub(crate) const LOGGED_ACTIVATION: &str = "logged/activation/";
/// Prefix of an output with the number of rows in use of the activation of that name.
pub(crate) const LOGGED_COUNT: &str = "logged/count/";

/// Makes the requested gradients (if this pass has the step's gradients) and activations output
/// tensors. Call it after the fusions: an output tensor prevents fusions, which would change the
/// rounding.
///
/// # Errors
/// A pattern that matches no tensor.
pub(super) fn keep(
    net: &mut Net<'_>,
    trained: &[Trained],
    grads: Option<&[TensorId]>,
) -> Result<(), EngineError> {
    let rules = &net.spec.config.train.log;
    let made: BTreeSet<TensorId> =
        net.program.nodes().iter().flat_map(|node| node.outputs.iter().copied()).collect();
    let is_read = |(_, id): &&(String, TensorId)| {
        made.contains(id) && net.program.desc(*id).role.cpu_dtype() == DType::F32
    };
    let activations: Vec<_> = net.observed.iter().filter(is_read).cloned().collect();
    for (i, rule) in rules.iter().enumerate() {
        let (kind, names): (_, Vec<&str>) = match rule.of {
            LogOf::Weights => ("weight", net.params().iter().map(|p| p.name.as_str()).collect()),
            LogOf::Gradients => ("gradient", trained.iter().map(|t| t.name.as_str()).collect()),
            LogOf::Activations => {
                ("activation", activations.iter().map(|(name, _)| name.as_str()).collect())
            }
        };
        if let Some(problem) = misfit(&rule.tensors, kind, &names) {
            return Err(invalid(format!("train.log[{i}].tensors"), problem));
        }
    }
    let asked = |of: LogOf, name: &str| {
        rules.iter().any(|rule| rule.of == of && matches(&rule.tensors, name))
    };
    for (t, grad) in trained.iter().zip(grads.into_iter().flatten()) {
        if asked(LogOf::Gradients, &t.name) {
            net.program.keep(&format!("{LOGGED_GRADIENT}{}", t.name), *grad);
        }
    }
    for (name, id) in &activations {
        if asked(LogOf::Activations, name) {
            net.program.keep(&format!("{LOGGED_ACTIVATION}{name}"), *id);
            if let Some(count) = net.program.count_of(*id) {
                net.program.keep(&format!("{LOGGED_COUNT}{name}"), count);
            }
        }
    }
    Ok(())
}
