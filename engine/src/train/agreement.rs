//! Checks that program, config, data and weights are equal on all ranks.

use crate::config::Config;
use graph::StateSet;
use kernels::compiled::kernels;
use sha2::{Digest, Sha256};

use crate::dataset::{DataSet, identity_of};
use crate::error::EngineError;
use crate::model::is_transient;
use crate::provenance::commit;
use crate::runtime::ModelState;
use crate::team::Team;

/// Compares program, kernels and config with rank 0's.
///
/// # Errors
/// [`EngineError::OfAllRanks`] names a rank that differs, and the difference.
pub fn check_config(team: &Team, config: &Config) -> Result<(), EngineError> {
    if team.is_alone() {
        return Ok(());
    }
    team.set_doing(0, "comparing program and config");
    let manifest = kernels().manifest().sources.iter();
    let kernels = manifest.map(|source| format!("{source:?}")).collect::<String>();
    let mut facts = vec![
        ("version", env!("CARGO_PKG_VERSION").to_string()),
        ("commit", commit().unwrap_or("unknown").to_string()),
        ("kernels", hex::encode(Sha256::digest(kernels))),
    ];
    let keys = config.values()?;
    facts.extend(keys.iter().map(|(key, value)| (key.as_str(), value.clone())));
    team.agree(&facts)
}

/// Compares the identities of both data sets with rank 0's.
///
/// # Errors
/// As for [`check_config`].
pub(super) fn check_data(
    team: &Team,
    training_data: &str,
    validation_data: &str,
) -> Result<(), EngineError> {
    team.set_doing(0, "comparing the data");
    team.agree(&[
        ("training data", training_data.to_string()),
        ("validation data", validation_data.to_string()),
    ])
}

/// Compares weights and optimizer state with rank 0's.
///
/// # Errors
/// As for [`check_config`]; device errors.
pub(super) fn check_state(team: &Team, state: &mut ModelState) -> Result<(), EngineError> {
    if team.is_alone() {
        return Ok(());
    }
    team.set_doing(0, "comparing the weights");
    team.agree(&[("weights and optimizer state", hash_of(&state.fetch()?.without(is_transient)))])
}

/// Compares one data set and the weights with rank 0's.
///
/// # Errors
/// As for [`check_config`]; device errors.
pub fn check_model(team: &Team, data: &DataSet, state: &mut ModelState) -> Result<(), EngineError> {
    if team.is_alone() {
        return Ok(());
    }
    check_state(team, state)?;
    team.agree(&[("data", identity_of(data))])
}

/// SHA-256 of all names and values.
fn hash_of(state: &StateSet) -> String {
    let mut hash = Sha256::new();
    for (name, tensor) in state.iter() {
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name.as_bytes());
        hash.update((tensor.bytes().len() as u64).to_le_bytes());
        hash.update(tensor.bytes());
    }
    hex::encode(hash.finalize())
}
