//! Checks of `model.freeze` and `[[solver.groups]]` against the parameters of the model.

use configs::ConfigError;

use super::net::Net;
use crate::error::EngineError;
use crate::names::misfit;

/// Refuses a pattern that fits no parameter, and patterns that leave nothing to train.
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
    if net.params().iter().any(|param| param.trained.is_some()) {
        return Ok(());
    }
    let problem = format!("is {freeze:?}, which leaves nothing to train; remove a pattern");
    Err(invalid("model.freeze".into(), problem))
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
