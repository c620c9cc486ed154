//! Checks of `model.freeze` and `[[solver.groups]]` against the parameters of the model.

use configs::{ConfigError, ParameterGroup, Solver};

use super::net::Net;
use super::optimizer::group_of;
use super::params::Param;
use crate::error::EngineError;
use crate::names::{matches, misfit};

/// Refuses a pattern that fits no parameter, and patterns or rates that leave nothing to train.
///
/// # Errors
/// [`ConfigError::Invalid`] with the fault and the mend.
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
        let problem = "trains nothing, as every lr_factor is 0; give one above 0";
        return Err(invalid("solver.groups".into(), problem.into()));
    }
    let problem = format!("is {freeze:?}, which leaves nothing to train; remove a pattern");
    Err(invalid("model.freeze".into(), problem))
}

/// A sentence for each group that decides nothing: its parameters are frozen, or later groups give
/// each of them the same values.
pub(crate) fn idle_groups(solver: &Solver, params: &[Param]) -> Vec<String> {
    let mut sentences = Vec::new();
    for (i, group) in solver.groups.iter().enumerate() {
        let fits = |group: &ParameterGroup, param: &Param| matches(&group.r#match, &param.name);
        let own = params.iter().filter(|param| param.trained.is_some() && fits(group, param));
        let (own, later): (Vec<&Param>, _) = (own.collect(), &solver.groups[i + 1..]);
        let is_idle = |value: fn(&ParameterGroup) -> Option<f64>| {
            let decides = |group: &&ParameterGroup| value(group).is_some();
            let is_decided = |p: &&Param| later.iter().filter(decides).any(|group| fits(group, p));
            value(group).is_none() || own.iter().all(is_decided)
        };
        if is_idle(|group| group.lr_factor) && is_idle(|group| group.weight_decay) {
            let by = later.iter().filter(|group| own.iter().any(|param| fits(group, param)));
            let by: Vec<_> = by.map(|group| format!("\"{}\"", group.r#match)).collect();
            let why = match own.is_empty() {
                true => "its parameters are frozen".to_string(),
                false => format!("later groups fit all its parameters: {}", by.join(", ")),
            };
            let pattern = &group.r#match;
            sentences.push(format!("solver.groups[{i}] (\"{pattern}\") has no effect: {why}"));
        }
    }
    sentences
}

/// Refuses a pattern that fits no parameter; `key` is the pattern's place in the config.
///
/// # Errors
/// [`ConfigError::Invalid`].
fn check_pattern(key: &str, pattern: &str, net: &Net<'_>) -> Result<(), EngineError> {
    let names: Vec<&str> = net.params().iter().map(|param| param.name.as_str()).collect();
    misfit(pattern, "parameter", &names).map_or(Ok(()), |problem| Err(invalid(key.into(), problem)))
}

/// The error of a key of the config.
pub(super) fn invalid(key: String, problem: String) -> EngineError {
    ConfigError::Invalid { file: "config".into(), key, problem }.into()
}
