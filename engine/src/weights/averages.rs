//! Moving averages of the trained parameters, which are part of the state.

use crate::config::{Config, EvalWeights};
use graph::StateSet;

use crate::model::AVERAGE;

/// True if a run with this config evaluates the moving averages instead of the parameters.
pub(crate) fn are_scored(config: &Config) -> bool {
    config.train.ema_decay.is_some() && config.eval.weights == EvalWeights::Ema
}

/// Initializes each average with the value of its parameter.
pub(crate) fn start_averages(state: &mut StateSet) {
    for (name, average) in names(state) {
        let values = state.get(&name).map(|parameter| parameter.data.clone());
        if let (Some(values), Some(average)) = (values, state.get_mut(&average)) {
            average.data = values;
        }
    }
}

/// Swaps each parameter with its average; a second call restores both.
pub(crate) fn swap_averages(state: &mut StateSet) {
    for (name, average) in names(state) {
        let Some(values) = state.get(&average).map(|average| average.data.clone()) else {
            continue;
        };
        let Some(parameter) = state.get_mut(&name) else { continue };
        let trained = std::mem::replace(&mut parameter.data, values);
        if let Some(average) = state.get_mut(&average) {
            average.data = trained;
        }
    }
}

/// Names of the parameters that have averages, each with the name of its average.
fn names(state: &StateSet) -> Vec<(String, String)> {
    let all = state.iter().map(|(name, _)| name);
    let named = |name: &str| Some((name.strip_prefix(AVERAGE)?.to_string(), name.to_string()));
    all.filter_map(named).collect()
}
