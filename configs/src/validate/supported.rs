//! Values that the schema knows for its references but training does not support yet.

use crate::{Config, ConfigError, WarmupRule};

impl Config {
    /// Checks that training can do what the config asks for.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] for the first unsupported value.
    pub fn check_supported(&self) -> Result<(), ConfigError> {
        let solver = &self.solver;
        let shared_delta = solver.warmup_rule == WarmupRule::SharedDelta;
        let refused = [
            (shared_delta, "solver.warmup_rule", "is \"shared_delta\""),
            (solver.first_schedule_step != 0, "solver.first_schedule_step", "is not 0"),
        ];
        match refused.into_iter().find(|(asked, ..)| *asked) {
            Some((_, key, what)) => Err(ConfigError::Invalid {
                file: "config".into(),
                key: key.into(),
                problem: format!("{what}, which is not supported yet; remove it"),
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Config;

    #[test]
    fn what_training_does_not_do_yet_is_refused_by_key() {
        Config::default().check_supported().expect("defaults are supported");
        for (set, key) in [
            ("solver.warmup_rule=shared_delta", "solver.warmup_rule"),
            ("solver.first_schedule_step=1", "solver.first_schedule_step"),
        ] {
            let config = Config::load("micro", &[set.to_string()]).expect("a valid value");
            let error = config.check_supported().expect_err(key).to_string();
            assert!(error.contains(key) && error.contains("not supported yet"), "{error}");
        }
    }
}
