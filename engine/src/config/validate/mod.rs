//! Range and consistency checks: each error names its key and the fix.

mod effects;
mod optimizers;
mod run;
mod sizes;

use configs::Check;

pub(crate) use effects::Idle;
pub(crate) use sizes::Tensor;

use crate::config::{Augment, Config, ConfigError, LossWeights, Solver, Train, schema};

impl Config {
    /// Checks each value, and combinations of values.
    ///
    /// [`Config::load`] already does this; call it for a config built or changed in code.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for the first error.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self.find_invalid() {
            Some((key, problem)) => {
                Err(ConfigError::Invalid { file: "config".into(), key, problem })
            }
            None => Ok(()),
        }
    }

    /// A copy for checks before detection: keys that only training reads have their defaults, so
    /// that they cannot fail a check.
    pub(crate) fn to_detect(&self) -> Self {
        let mut config = Self {
            solver: Solver::default(),
            loss_weights: LossWeights::default(),
            train: Train::default(),
            ..self.clone()
        };
        config.input.augment = Augment::default();
        config.eval.loss = false;
        let model = &mut config.model;
        (model.backbone.weights, model.backbone.frozen_stages) = (None, 0);
        (model.kind.family().to_detect)(model);
        (model.weights, model.finetune) = (None, false);
        config
    }

    /// The dotted key of the first invalid value, and the error.
    pub(crate) fn find_invalid(&self) -> Option<(String, String)> {
        let mut check = Check::default();
        crate::model::keys::check(self, &mut check);
        run::check(self, &mut check);
        optimizers::check(self, &mut check);
        check.limits(self, schema());
        if check.found.is_none() {
            sizes::check(self, &mut check);
        }
        check.found
    }
}
