//! Lengths that can be given in steps or in epochs, and the conversion to steps once the length of
//! an epoch is known.

use configs::ConfigError;

use super::Config;

/// Keys in steps, each with its equivalent in epochs.
pub(super) const FORMS: [[&str; 2]; 3] = [
    ["train.steps", "train.epochs"],
    ["solver.warmup_steps", "solver.warmup_epochs"],
    ["solver.milestones", "solver.milestone_epochs"],
];

impl Config {
    /// True if a length is given in epochs: [`Config::set_steps`] then converts it to steps.
    pub fn counts_epochs(&self) -> bool {
        let (train, solver) = (&self.train, &self.solver);
        train.epochs.or(solver.warmup_epochs).is_some() || !solver.milestone_epochs.is_empty()
    }

    /// Converts all lengths in epochs to steps, for epochs of `steps_per_epoch` steps. A second
    /// call changes nothing.
    ///
    /// # Errors
    /// [`ConfigError::Invalid`] if both forms of a length are given and differ, or if the warm-up
    /// would not end before the run.
    pub fn set_steps(&mut self, steps_per_epoch: u64) -> Result<(), ConfigError> {
        let refuse = |key: &str, problem| {
            Err(ConfigError::Invalid { file: "config".into(), key: key.into(), problem })
        };
        let in_steps = |epochs: f64| ((epochs * steps_per_epoch as f64).round() as u64).max(1);
        let (train, solver) = (&mut self.train, &mut self.solver);
        if let Some(epochs) = train.epochs {
            let steps = in_steps(epochs);
            if ![0, steps].contains(&train.steps) {
                return refuse(
                    "train.epochs",
                    format!(
                        "is {epochs}, which is {steps} steps of {steps_per_epoch}, but train.steps \
                         is {}; remove either",
                        train.steps
                    ),
                );
            }
            train.steps = steps;
        }
        if !solver.milestone_epochs.is_empty() {
            let steps: Vec<u64> = solver.milestone_epochs.iter().map(|at| in_steps(*at)).collect();
            if !solver.milestones.is_empty() && solver.milestones != steps {
                return refuse(
                    "solver.milestone_epochs",
                    format!(
                        "is {:?}, which is {steps:?} in steps of {steps_per_epoch}, but \
                         solver.milestones is {:?}; remove either",
                        solver.milestone_epochs, solver.milestones
                    ),
                );
            }
            solver.milestones = steps;
        }
        if let Some(epochs) = solver.warmup_epochs {
            // Rounded down, with a tolerance for rounding errors.
            let steps = (epochs * steps_per_epoch as f64 + 1e-6) as u64;
            let most = if solver.warmup_steps == 0 { steps } else { solver.warmup_steps };
            solver.warmup_steps = steps.min(most);
        }
        if !self.warmup_ends() {
            let key = match self.solver.warmup_epochs {
                Some(_) => "solver.warmup_epochs",
                None => "solver.warmup_steps",
            };
            return refuse(
                key,
                format!(
                    "is a warm-up of {} steps, but the run has {}, so the learning rate never \
                     reaches solver.learning_rate; shorten the warm-up, or train longer",
                    self.solver.warmup_steps, self.train.steps
                ),
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(preset: &str, set: &[&str]) -> Config {
        let set: Vec<String> = set.iter().map(ToString::to_string).collect();
        Config::load(preset, &set).expect("a config")
    }

    fn in_steps(preset: &str, set: &[&str]) -> Result<(u64, u64, Vec<u64>), String> {
        let mut config = load(preset, set);
        config.set_steps(35).map_err(|fault| fault.to_string())?;
        let once = config.clone();
        // Like the config that a run saves, this text contains both forms.
        let text = config.to_toml().expect("it is written");
        let mut again = Config::from_toml("run", &text).expect("it is read");
        again.set_steps(35).map_err(|fault| fault.to_string())?;
        assert_eq!(again, once);
        Ok((config.train.steps, config.solver.warmup_steps, config.solver.milestones))
    }

    #[test]
    fn epochs_are_converted_to_steps() {
        let set =
            ["train.epochs=36", "solver.warmup_epochs=1.5", "solver.milestone_epochs=[24,33]"];
        assert_eq!(in_steps("micro", &set), Ok((1260, 52, vec![840, 1155])));
        assert_eq!(
            in_steps("tiny", &["train.epochs=0.001", "solver.warmup_steps=0"]).expect("steps").0,
            1
        );
        // If the warm-up is given in both forms, the shorter applies.
        for (steps, warmup) in [(20, 20), (200, 35)] {
            let steps = format!("solver.warmup_steps={steps}");
            let set = ["train.epochs=36", "solver.warmup_epochs=1", &steps];
            assert_eq!(in_steps("micro", &set).map(|found| found.1), Ok(warmup));
        }
    }

    /// The warm-up of a preset is also shortened if an override shortens the run in epochs.
    #[test]
    fn override_in_epochs_replaces_steps_and_vice_versa() {
        assert_eq!(in_steps("tiny", &["train.epochs=2"]), Ok((70, 35, vec![])));
        assert_eq!(in_steps("tiny", &["train.epochs=100"]).map(|found| found.1), Ok(1000));
        let found = in_steps("torchvision_r50", &["solver.milestone_epochs=[1]", "train.epochs=2"]);
        assert_eq!(found.expect("steps").2, [35]);
        let mut run = load("micro", &["train.epochs=3"]);
        run.set_steps(35).expect("steps");
        assert_eq!((run.train.epochs, run.train.steps), (Some(3.0), 105));
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config.toml");
        std::fs::write(&path, run.to_toml().expect("text")).expect("written");
        let load =
            |set: &str| Config::load_as_written(&path, &[set.to_string()]).expect("a config");
        let (longer, _) = load("train.steps=140");
        assert_eq!((longer.train.epochs, longer.train.steps), (None, 140));
        let (mut longer, _) = load("train.epochs=4");
        longer.set_steps(35).expect("steps");
        assert_eq!(longer.train.steps, 140);
    }

    #[test]
    fn conflicting_epochs_and_steps_are_rejected() {
        for (set, words) in [
            (
                &["train.epochs=3", "train.steps=100"][..],
                "`train.epochs` is 3, which is 105 steps of 35, but train.steps is 100; remove",
            ),
            (
                &["solver.milestones=[5]", "solver.milestone_epochs=[1]", "train.steps=99"],
                "`solver.milestone_epochs` is [1.0], which is [35] in steps of 35",
            ),
            (
                &["train.epochs=3", "solver.warmup_epochs=3"],
                "`solver.warmup_epochs` is a warm-up of 105 steps, but the run has 105",
            ),
        ] {
            let fault = in_steps("micro", set).expect_err(words);
            assert!(fault.contains(words), "{fault}");
        }
    }
}
