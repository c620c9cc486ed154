//! Checks `model.freeze` and `[[solver.groups]]` against the model's parameters.

use crate::config::{ConfigError, Solver};

use super::net::Net;
use super::optimizer::group_of;
use super::params::Param;
use crate::error::EngineError;
use crate::names::misfit;

/// Rejects a pattern that matches no parameter, and patterns or rates that leave nothing to train.
///
/// # Errors
/// [`ConfigError::Invalid`] with the problem and the fix.
pub(super) fn check(net: &Net<'_>) -> Result<(), EngineError> {
    let (freeze, groups) = (&net.spec.config.model.freeze, &net.spec.config.solver.groups);
    for (i, pattern) in freeze.iter().enumerate() {
        check_pattern(&format!("model.freeze[{i}]"), pattern, net)?;
    }
    for (i, group) in groups.iter().enumerate() {
        check_pattern(&format!("solver.groups[{i}].match"), &group.r#match, net)?;
    }
    let mut trained = net.params().iter().filter(|param| param.trained.is_some()).peekable();
    if trained.peek().is_some() {
        let solver = &net.spec.config.solver;
        let factor = |param: &Param| group_of(solver, &param.name, param.kind).lr_factor;
        if trained.any(|param| factor(param) * solver.learning_rate as f32 > 0.0) {
            return Ok(());
        }
        let problem = "trains nothing, as no lr_factor gives a rate above 0; give a higher one";
        return Err(invalid("solver.groups".into(), problem.into()));
    }
    let problem = format!("is {freeze:?}, which leaves nothing to train; remove a pattern");
    Err(invalid("model.freeze".into(), problem))
}

/// A message for each entry of `solver.groups` that changes no settings of a trained parameter.
pub(crate) fn idle_groups(solver: &Solver, params: &[Param]) -> Vec<String> {
    let is_idle = |i: &usize| {
        let mut without = solver.clone();
        without.groups.remove(*i);
        let values = |solver, param: &Param| group_of(solver, &param.name, param.kind);
        let mut trained = params.iter().filter(|param| param.trained.is_some());
        trained.all(|param| values(solver, param) == values(&without, param))
    };
    let sentence = |i: usize| {
        format!(
            "solver.groups[{i}] (\"{}\") has no effect: its parameters are frozen, or have the \
             same lr_factor and weight_decay without it",
            solver.groups[i].r#match
        )
    };
    (0..solver.groups.len()).filter(is_idle).map(sentence).collect()
}

/// Rejects a pattern that matches no parameter; `key` is the pattern's key in the config.
///
/// # Errors
/// [`ConfigError::Invalid`].
fn check_pattern(key: &str, pattern: &str, net: &Net<'_>) -> Result<(), EngineError> {
    let names: Vec<&str> = net.params().iter().map(|param| param.name.as_str()).collect();
    misfit(pattern, "parameter", &names).map_or(Ok(()), |problem| Err(invalid(key.into(), problem)))
}

/// The error for a config key.
pub(super) fn invalid(key: String, problem: String) -> EngineError {
    ConfigError::Invalid { file: "config".into(), key, problem }.into()
}
