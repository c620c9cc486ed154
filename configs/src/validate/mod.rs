//! Range and consistency checks: each error names its key and the fix.

mod effects;
mod limits;
mod model;
mod optimizers;
mod run;
mod sizes;

use std::fmt::Display;

use crate::{Augment, Config, ConfigError, LossWeights, Model, Rpn, Solver, Train};

impl Config {
    /// Checks that every value makes sense, by itself and with the others.
    ///
    /// [`Config::load`] already does this; call it for a config built or changed in code.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for the first fault.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self.find_invalid() {
            Some((key, problem)) => {
                Err(ConfigError::Invalid { file: "config".into(), key, problem })
            }
            None => Ok(()),
        }
    }

    /// The config with the default of each key that only training reads and checks compare with
    /// others.
    pub(crate) fn to_detect(&self) -> Self {
        let mut config = Self {
            solver: Solver::default(),
            loss_weights: LossWeights::default(),
            train: Train::default(),
            ..self.clone()
        };
        config.input.augment = Augment::default();
        config.eval.loss = false;
        let Model { backbone, rpn, roi, .. } = &mut config.model;
        (backbone.weights, backbone.frozen_stages) = (None, 0);
        (rpn.pre_nms_top_n_train, rpn.post_nms_top_n_train) = (1, 1);
        (rpn.fg_iou, rpn.bg_iou) = (Rpn::default().fg_iou, 0.0);
        (roi.batch_size_per_image, roi.fg_iou, roi.bg_iou) = (1, 1.0, 0.0);
        (config.model.weights, config.model.finetune) = (None, false);
        config
    }

    /// The dotted key and the fault of the first invalid value.
    pub(crate) fn find_invalid(&self) -> Option<(String, String)> {
        let mut check = Check { found: None };
        model::check(self, &mut check);
        run::check(self, &mut check);
        optimizers::check(self, &mut check);
        limits::check(self, &mut check);
        if check.found.is_none() {
            sizes::check(self, &mut check);
        }
        check.found
    }
}

/// Collects the first fault.
struct Check {
    found: Option<(String, String)>,
}

impl Check {
    /// `problem` completes the sentence that begins with the key.
    fn require(&mut self, holds: bool, key: &str, problem: impl FnOnce() -> String) {
        if !holds && self.found.is_none() {
            self.found = Some((key.to_string(), problem()));
        }
    }

    /// At least 1.
    fn at_least_one(&mut self, key: &str, value: usize) {
        self.require(value >= 1, key, || "is 0; it must be at least 1".into());
    }

    /// A list of at least one item, each at least 1.
    fn counts(&mut self, key: &str, values: &[usize]) {
        self.require(!values.is_empty(), key, || "is empty; give at least one number".into());
        self.require(!values.contains(&0), key, || {
            format!("is {values:?}; each number must be at least 1")
        });
    }

    /// From 0 to 1, inclusive.
    fn fraction(&mut self, key: &str, value: impl Into<f64> + Display + Copy) {
        let inside = (0.0..=1.0).contains(&value.into());
        self.require(inside, key, || format!("is {value}; it must lie between 0 and 1"));
    }

    /// Above 0 and finite.
    fn positive(&mut self, key: &str, value: impl Into<f64> + Display + Copy) {
        let holds = value.into() > 0.0 && value.into().is_finite();
        self.require(holds, key, || format!("is {value}; it must be greater than 0"));
    }

    /// 0 or above, and finite.
    fn not_negative(&mut self, key: &str, value: impl Into<f64> + Display + Copy) {
        let holds = value.into() >= 0.0 && value.into().is_finite();
        self.require(holds, key, || format!("is {value}; it must not be negative"));
    }

    /// A non-empty string.
    fn text(&mut self, key: &str, value: &str) {
        self.require(!value.trim().is_empty(), key, || "is empty; give a name or remove it".into());
    }
}
