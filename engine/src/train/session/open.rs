//! Starts a session: opens data, builds programs, and restores the last checkpoint of a resumed
//! run.

use crate::config::{Config, Train};

use super::Session;
use crate::dataset::{DataSet, Split, identity_of};
use crate::error::EngineError;
use crate::evaluate::Evaluator;
use crate::model::{Division, classes_of};
use crate::train::after_step;
use crate::train::agreement;
use crate::train::best::Best;
use crate::train::checkpoints::{Checkpoints, SessionFacts};
use crate::train::divergence::Divergence;
use crate::train::feed::batches_per_epoch;
use crate::train::journal::Journal;
use crate::train::observer::Event;
use crate::train::options::SessionOptions;
use crate::train::periods::Periods;
use crate::train::report::{Facts, Report};
use crate::train::resume::Resumed;
use crate::train::trainer::Trainer;
use crate::train::usage::Usage;
use crate::train::validation::ValidationLoss;
use crate::train::verdict::Phase;
use crate::weights::are_scored;

impl Session {
    /// Opens the data, builds the trainer, and restores the last checkpoint if requested.
    ///
    /// # Errors
    /// An invalid config, data set or checkpoint, or, when a run is resumed, a config change that
    /// affects training.
    pub fn new(mut config: Config, options: SessionOptions) -> Result<Self, EngineError> {
        let (progress, run, team) = (options.progress, options.run.clone(), options.team.clone());
        // Checked first, so that no data is generated or prepared for ranks that cannot run
        // together.
        agreement::check_config(&team, &config)?;
        check_scored(&config)?;
        let division = division(&config, &options)?;
        let (resumed, data, val) = resume_on_data(&mut config, &options)?;
        let (mut trainer, evaluator) = prepare(&config, &options, division, &data, val)?;
        let validation = validation(&config, &options, evaluator.as_ref(), &mut trainer)?;
        let (identity, val_identity) = read(&config, &options, &data, evaluator.as_ref())?;
        let mut best = Best::new(&config, &val_identity);
        let (mut overrides, mut recorded) = (Vec::new(), None);
        if let Some(resumed) = resumed {
            resumed.restore(&mut trainer, &config, &options)?;
            recorded = Some(team.share("the evaluations before", || {
                let steps_done = trainer.steps_done();
                if let Some(note) = best.resume(&run, steps_done)? {
                    progress.say(&note);
                }
                resumed.forget_later(&run, &config.train, best.is_exhausted())
            })?);
            overrides = resumed.overrides;
        }
        agreement::check_data(&team, &identity, &val_identity)?;
        if options.resume {
            agreement::check_state(&team, trainer.state())?;
        }
        let config_toml = config.to_toml()?;
        let own_run = team.is_first().then_some(&run);
        own_run.map(|run| run.write("config.toml", config_toml.as_bytes())).transpose()?;
        let window = config.train.log_every_steps as usize;
        let mut journal = Journal::open(own_run, progress, window, trainer.trained())?;
        let facts = Facts {
            config: &config,
            config_toml: &config_toml,
            backend: &options.backend,
            train: (&data, &identity),
            val: evaluator.as_ref().map(|of| (of.set().data(), val_identity.as_str())),
        };
        let report = Report::open(own_run, trainer.steps_done(), &facts, &mut journal);
        let facts = SessionFacts {
            config_toml,
            data_identity: identity,
            exif: data.store.contents().exif(),
            categories: data.categories(),
            keypoints: data.keypoints_of_model(&config),
            overrides,
            params: trainer.params().to_vec(),
            averages: are_scored(&config),
        };
        Ok(Self {
            periods: match evaluator {
                Some(_) => Periods::new(&config.train, trainer.batches_per_epoch()),
                None => Periods::of_checkpoints(&config.train, trainer.batches_per_epoch()),
            },
            divergence: Divergence::new(&config),
            phase: Phase::Idle,
            unwritten: None,
            checkpoints: Checkpoints::new(&run, &config.train, facts),
            journal,
            parts: after_step::parts(&config),
            usage: Usage::new(),
            report,
            recorded,
            best,
            trainer,
            evaluator,
            validation,
            data,
            options,
            config,
        })
    }
}

/// Opens the data and, for a resumed run, the last checkpoint; converts epochs in the config to
/// steps.
///
/// # Errors
/// As for [`open_data`]; a damaged checkpoint, or one whose config or data differ.
fn resume_on_data(
    config: &mut Config,
    options: &SessionOptions,
) -> Result<(Option<Resumed>, DataSet, Option<DataSet>), EngineError> {
    let mut resumed = match options.resume {
        true => Some(Resumed::open(options)?),
        false => None,
    };
    let counts_epochs = config.counts_epochs();
    // Checked early if possible, so that no data is generated or prepared for a config that is
    // rejected.
    if let Some(resumed) = resumed.as_mut().filter(|_| !counts_epochs) {
        resumed.check_config(config, options)?;
    }
    let (data, val) = open_data(config, options)?;
    if counts_epochs {
        config.set_steps(batches_per_epoch(config, &data)?)?;
    }
    if let Some(resumed) = &mut resumed {
        if counts_epochs {
            resumed.check_config(config, options)?;
        }
        resumed.check_data(&data, &identity_of(&data), options)?;
    }
    Ok((resumed, data, val))
}

/// Opens the training data and, if there is any, the validation data.
///
/// # Errors
/// Data that cannot be opened; classes that differ.
fn open_data(
    config: &Config,
    options: &SessionOptions,
) -> Result<(DataSet, Option<DataSet>), EngineError> {
    let (team, progress) = (&options.team, &options.progress);
    team.set_doing(0, "opening its data");
    // A timed run only opens the index: its clock must start before it reads the data.
    let of_split = match options.observer {
        Some(_) => DataSet::open_index,
        None => DataSet::open,
    };
    let open = |split| {
        team.first_of_host_first("the data of a host", || of_split(config, split, progress))
    };
    let data = open(Split::Train)?;
    if !config.has_validation() {
        return Ok((data, None));
    }
    let mut val = open(if config.eval.train_set { Split::Train } else { Split::Val })?;
    match_classes(&data, &mut val)?;
    let names = data.keypoints_of_model(config);
    val.take_keypoints(&names, &data.store.to_string(), progress)?;
    val.warn_of_exif(data.store.contents().exif(), progress);
    Ok((data, Some(val)))
}

/// Plans and captures all programs, and initializes the weights.
///
/// # Errors
/// As for [`Trainer::of_rank`] and [`Evaluator::new`].
fn prepare(
    config: &Config,
    options: &SessionOptions,
    division: Division,
    data: &DataSet,
    val: Option<DataSet>,
) -> Result<(Trainer, Option<Evaluator>), EngineError> {
    let (backend, stop) = (&options.backend, &options.interrupted);
    let mut fresh = config.clone();
    if options.resume {
        // The checkpoint contains all weights, and the initial weights file may no longer exist.
        fresh.model.backbone.weights = None;
        fresh.model.weights = None;
    }
    let sets = (data, val.as_ref());
    let mut trainer = Trainer::with_evaluations(&fresh, sets, backend, division, stop.clone())?;
    let classes = classes_of(trainer.params());
    let evaluator = |val| Evaluator::new(config, val, classes, backend, trainer.state());
    let mut evaluator = val.map(evaluator).transpose()?;
    if let Some(evaluator) = &mut evaluator {
        evaluator.interrupt_by(stop.clone());
        if config.eval.keep_images {
            evaluator.keep_images(backend);
        }
    }
    if options.observer.is_some() {
        trainer.warm_up()?;
        evaluator.as_mut().map_or(Ok(()), |of| of.warm_up(trainer.state()))?;
    }
    if !options.resume {
        agreement::check_state(&options.team, trainer.state())?;
    }
    options.observe(Event::Prepared {
        train_images: data.images.len(),
        val_images: evaluator.as_ref().map_or(0, |of| of.set().images().len()),
        passes: trainer.passes(),
        steps_per_epoch: trainer.batches_per_epoch(),
    })?;
    Ok((trainer, evaluator))
}

/// Plans the programs of the validation losses, if requested.
///
/// # Errors
/// As for [`ValidationLoss::new`].
fn validation(
    config: &Config,
    options: &SessionOptions,
    evaluator: Option<&Evaluator>,
    trainer: &mut Trainer,
) -> Result<Option<ValidationLoss>, EngineError> {
    let Some(evaluator) = evaluator.filter(|_| config.eval.loss) else { return Ok(None) };
    let classes = classes_of(trainer.params());
    let (backend, state) = (&options.backend, trainer.state());
    ValidationLoss::new(config, evaluator, classes, backend, state).map(Some)
}

/// Reads the ground truth and the identities of both data sets, in parallel. In a timed run this is
/// the first access to the data. Warns about images that occur in both sets.
///
/// # Errors
/// Damaged data; annotations without valid masks.
fn read(
    config: &Config,
    options: &SessionOptions,
    data: &DataSet,
    evaluator: Option<&Evaluator>,
) -> Result<(String, String), EngineError> {
    let Some(set) = evaluator.map(Evaluator::set) else {
        return Ok((identity_of(data), String::new()));
    };
    if options.observer.is_some() {
        let verify = |data: &DataSet| data.store.verify_objects();
        let (train, val) = rayon::join(|| verify(data), || verify(set.data()));
        train.and(val)?;
    }
    let identities = || rayon::join(|| identity_of(data), || identity_of(set.data()));
    let (truth, identities) = rayon::join(|| set.truth().map(|_| ()), identities);
    if !config.is_scored_on_training_data()
        && let Some(text) = set.warn_of_shared(data)
    {
        options.progress.say(&text);
    }
    truth.map(|()| identities)
}

/// This rank's share of each step.
///
/// # Errors
/// A batch that cannot be divided among the ranks.
fn division(config: &Config, options: &SessionOptions) -> Result<Division, EngineError> {
    let (team, target) = (&options.team, options.backend.target(config));
    let mut division = Division::new(&config.train, &target, team.ranks())?;
    division.group = team.group().clone();
    division.local_ranks = team.local_ranks();
    Ok(division)
}

/// Rejects keys that end a run by its scores if there is no validation data.
fn check_scored(config: &Config) -> Result<(), EngineError> {
    let (train, data) = (&config.train, &config.data);
    // A config without training data is rejected elsewhere.
    let trains = data.train_store.is_some() || data.train_annotations.is_some();
    let trains = trains || !data.train.is_empty();
    let (key, none) = match train {
        _ if !trains || config.has_validation() => return Ok(()),
        Train { patience: 1.., .. } => ("train.patience", "0"),
        Train { target_box: Some(_), .. } => ("train.target_box", "none"),
        Train { target_mask: Some(_), .. } => ("train.target_mask", "none"),
        Train { target_keypoint: Some(_), .. } => ("train.target_keypoint", "none"),
        _ => return Ok(()),
    };
    Err(EngineError::Usage(format!(
        "{key} ends a run by its scores, but there is no validation data: set data.val_store, \
         data.val_images and data.val_annotations, or data.val_fraction, or unset {key} (--set \
         {key}={none})"
    )))
}

/// Maps the validation data to the classes of the training data; the validation data may lack some
/// classes.
fn match_classes(train: &DataSet, val: &mut DataSet) -> Result<(), EngineError> {
    if train.categories() == val.categories() || val.take_classes(&train.categories()) {
        return Ok(());
    }
    Err(EngineError::Usage(format!(
        "{} has categories that {} lacks: set data.val_store, or data.val_images and \
         data.val_annotations, to data whose categories all occur in the training data",
        val.store, train.store
    )))
}
