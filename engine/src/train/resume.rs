//! Resumes a run from its checkpoint; changes that affect training require the user's consent.

use std::path::PathBuf;

use crate::config::{Config, Difference, ResumeRule, Schedule, Train, schema};
use serde::{Deserialize, Serialize};

use super::options::SessionOptions;
use super::scores::recorded_targets_reached;
use super::trainer::{Trainer, initial_loss_scale, set_scale};
use crate::checkpoint::{self, Override};
use crate::classes::{describe_classes, stored_classes};
use crate::dataset::{DataSet, is_same_data};
use crate::error::EngineError;
use crate::metrics::forget_after;
use crate::run_dir::RunDir;

/// Key for changed training data in messages.
const DATA: &str = "training data";

/// The checkpoint that a run resumes from.
#[derive(Debug)]
pub(super) struct Resumed {
    path: PathBuf,
    /// The config stored in the checkpoint.
    config: Config,
    steps_done: u64,
    /// Identity of the run's training data, if it is stored.
    data: Option<String>,
    categories: Vec<(String, u64)>,
    /// True if the checkpoint's loss scale was for a different precision.
    rescales: bool,
    /// All accepted changes, of earlier sessions and of this one.
    pub(super) overrides: Vec<Override>,
}

impl Resumed {
    /// Opens the run's last checkpoint.
    ///
    /// # Errors
    /// A damaged checkpoint.
    pub(super) fn open(options: &SessionOptions) -> Result<Self, EngineError> {
        let path = checkpoint::last(options.run.path())?;
        let (meta, saved) = checkpoint::open(&path)?;
        let config = Config::from_toml(&path.join("config.toml").display().to_string(), &saved)?;
        Ok(Self {
            path,
            config,
            steps_done: meta.steps_done,
            overrides: meta.overrides,
            data: meta.data,
            categories: meta.categories,
            rescales: false,
        })
    }

    /// Compares the checkpoint's config with `config`, whose epochs are already converted to steps;
    /// prints the differences.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if `train.steps` is less than the steps already done, or for changes
    /// that affect training and are not accepted.
    pub(super) fn check_config(
        &mut self,
        config: &Config,
        options: &SessionOptions,
    ) -> Result<(), EngineError> {
        let (steps, done) = (config.train.steps, self.steps_done);
        if steps < done {
            return Err(EngineError::Usage(format!(
                "train.steps is {steps}, but {} is already at step {done}: give at least {done}",
                self.path.display()
            )));
        }
        self.rescales = self.config.train.precision != config.train.precision;
        let found = differences(&self.config, config, self.categories.len())?;
        self.accept(&found, options)
    }

    /// Compares the checkpoint with the training data, whose identity is `identity`.
    ///
    /// # Errors
    /// [`EngineError::Checkpoint`] if the classes differ; [`EngineError::Usage`] for any other
    /// change that is not accepted.
    pub(super) fn check_data(
        &mut self,
        data: &DataSet,
        identity: &str,
        options: &SessionOptions,
    ) -> Result<(), EngineError> {
        let theirs = stored_classes(&data.categories());
        if self.categories != theirs {
            let ours = &self.categories;
            let reason = format!(
                "it was trained on {}; {} has {}: resume with the data it was trained on",
                describe_classes(ours),
                data.store,
                describe_classes(&theirs)
            );
            return Err(EngineError::Checkpoint { path: self.path.clone(), reason });
        }
        let Some(before) = self.data.as_ref().filter(|before| !is_same_data(before, identity))
        else {
            return Ok(());
        };
        // An identity may consist of several hashes, such as an additional hash of the keypoints;
        // each is shortened.
        let short = |identity: &str| {
            let hashes = identity.split(['+', ':']);
            let short = hashes.map(|hash| hash.chars().take(12).collect::<String>());
            short.collect::<Vec<_>>().join("+")
        };
        let (key, from, to) = (DATA.to_string(), short(before), short(identity));
        self.accept(&[(Difference { key, from, to }, false)], options)
    }

    /// Prints the differences, and records those that affect training as accepted.
    ///
    /// # Errors
    /// [`EngineError::Usage`] for changes that are not accepted.
    fn accept(
        &mut self,
        found: &[(Difference, bool)],
        options: &SessionOptions,
    ) -> Result<(), EngineError> {
        let accepted = accept(found, self.steps_done, options.accept_changes)?;
        for (change, _) in found {
            options.progress.say(&format!("changed since the checkpoint: {change}"));
        }
        self.overrides.extend(accepted);
        Ok(())
    }

    /// Restores the state from the checkpoint.
    ///
    /// # Errors
    /// A state that does not match the model.
    pub(super) fn restore(
        &self,
        trainer: &mut Trainer,
        config: &Config,
        options: &SessionOptions,
    ) -> Result<(), EngineError> {
        let Self { path, steps_done, .. } = self;
        trainer.state().change(|state| {
            checkpoint::restore(path, state)?;
            if self.rescales {
                set_scale(state, initial_loss_scale(config, &options.backend));
            }
            Ok(())
        })?;
        trainer.resume_at(*steps_done);
        options.progress.say(&format!("resuming after step {steps_done} from {}", path.display()));
        Ok(())
    }

    /// Removes later steps from the run's `metrics.jsonl`, and returns its record of the last step
    /// done. Also removes the evaluation of that step, which is then repeated, if it is step
    /// `train.steps`, or if the evaluation ends the run: it meets the targets, or patience
    /// `is_exhausted`.
    ///
    /// # Errors
    /// Files that cannot be written.
    pub(super) fn forget_later(
        &self,
        run: &RunDir,
        train: &Train,
        is_exhausted: bool,
    ) -> Result<Recorded, EngineError> {
        let mut found = Recorded::Nothing;
        forget_after(&run.join("metrics.jsonl"), self.steps_done, |evaluation| {
            let ends = is_exhausted || recorded_targets_reached(train, evaluation);
            found = if ends { Recorded::Ending } else { Recorded::Evaluation };
            ends || self.steps_done >= train.steps
        })?;
        Ok(found)
    }
}

/// The record in `metrics.jsonl` of the step after which a run resumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Recorded {
    /// The step was not evaluated, or its evaluation was interrupted.
    Nothing,
    /// The step was evaluated.
    Evaluation,
    /// The step was evaluated, and the result ends the run under the current config.
    Ending,
}

/// The differences between the checkpoint's config and the current one; a flag is true if the
/// change does not affect training. `classes` is the checkpoint's number of classes.
///
/// # Errors
/// [`EngineError::Usage`] for a change of a key that is only read when a run begins, or that
/// determines the optimizer's state.
fn differences(
    saved: &Config,
    config: &Config,
    classes: usize,
) -> Result<Vec<(Difference, bool)>, EngineError> {
    let found = saved.differences(config)?;
    let resume =
        |change: &Difference| schema().key(&change.key).map_or(ResumeRule::Step, |key| key.resume);
    for change in &found {
        let why = match resume(change) {
            ResumeRule::Start => {
                "a resumed run starts from the checkpoint's weights; undo this change, or begin a \
                 new run"
            }
            ResumeRule::State => {
                "the checkpoint has the optimizer's state for the old value; undo this change, or \
                 begin a new run from the checkpoint's weights (model.weights)"
            }
            _ => continue,
        };
        return Err(EngineError::Usage(format!("{change}: {why}")));
    }
    let is_free = |change: &Difference| match resume(change) {
        ResumeRule::Free => true,
        // In a multistep schedule, the learning rate of a step does not depend on the total number
        // of steps.
        ResumeRule::Length => config.solver.schedule == Schedule::Multistep,
        ResumeRule::Classes => saved.model.classes_or(classes) == config.model.classes_or(classes),
        // If synthetic data was replaced by files or vice versa, these keys do not matter: the
        // identities of the data are compared instead.
        ResumeRule::Drawing => saved.data.synthetic.is_some() != config.data.synthetic.is_some(),
        ResumeRule::Step | ResumeRule::Start | ResumeRule::State => false,
    };
    Ok(found.iter().map(|change| (change.clone(), is_free(change))).collect())
}

/// The differences that affect training, as [`Override`]s that apply after step `steps_done`.
///
/// # Errors
/// [`EngineError::Usage`] lists them, unless they are `accepted`.
fn accept(
    differences: &[(Difference, bool)],
    steps_done: u64,
    accepted: bool,
) -> Result<Vec<Override>, EngineError> {
    let changes = differences.iter().filter(|(_, free)| !free).map(|(change, _)| change);
    let changes: Vec<&Difference> = changes.collect();
    if !changes.is_empty() && !accepted {
        let list: Vec<String> = changes.iter().map(ToString::to_string).collect();
        return Err(EngineError::Usage(format!(
            "these changes affect training ({}): undo them, or accept them \
             with --override",
            list.join(", ")
        )));
    }
    let sealed =
        |change: &&Difference| Override { after_step: steps_done, change: (*change).clone() };
    Ok(changes.iter().map(sealed).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(overrides: &[&str]) -> Config {
        let overrides: Vec<String> = overrides.iter().map(ToString::to_string).collect();
        Config::load("quickstart", &overrides).expect("a preset")
    }

    fn refused(overrides: &[&str]) -> bool {
        let base = ["solver.schedule=multistep"];
        let config = load(&[&base, overrides].concat());
        let found = differences(&load(&base), &config, 4).expect("differences");
        assert_eq!(found.is_empty(), overrides.is_empty(), "{overrides:?}");
        accept(&found, 5, false).is_err()
    }

    #[test]
    fn keys_without_effect_on_steps_may_change_on_resume() {
        assert!(!refused(&[]));
        assert!(!refused(&["train.steps=99999", "train.name=x", "eval.batch_size=3"]));
        assert!(!refused(&["train.checkpoint_every_steps=7", "data.synthetic.dir=elsewhere"]));
        assert!(!refused(&["model.num_classes=4"]), "as many as there are");
        assert!(!refused(&["data.synthetic=none", "data.train_store=a"]), "data has an identity");
    }

    #[test]
    fn keys_that_change_steps_are_rejected_on_resume() {
        for change in [
            "train.seed=1",
            "train.batch_size=32",
            "train.precision=tf32",
            "solver.learning_rate=0.5",
            "model.kind=faster_rcnn",
            "model.fpn.channels=32",
            "model.num_classes=5",
            "input.flip_probability=0.1",
            "data.synthetic.seed=3",
            "solver.milestones=[5]",
            "solver.novograd.beta2=0.5",
            "loss_weights.mask=2",
        ] {
            assert!(refused(&[change]), "{change}");
        }
        assert!(refused(&["solver.schedule=cosine", "train.steps=99999"]));
    }

    #[test]
    fn config_change_that_affects_optimizer_state_is_rejected_on_resume() {
        for (set, change) in [
            ("solver.optimizer=lars", "solver.optimizer: \"sgd\" -> \"lars\": "),
            ("model.freeze=['backbone.*']", "model.freeze: [] -> [\"backbone.*\"]: "),
        ] {
            let error = differences(&load(&[]), &load(&[set]), 4);
            let error = error.expect_err("refused").to_string();
            assert!(error.starts_with(change) && error.contains("optimizer's state"), "{error}");
            assert!(error.contains("model.weights"), "{error}");
        }
    }
}
