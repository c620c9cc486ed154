//! A run: steps, log lines, evaluations, checkpoints, and the stop at a target.

mod ending;
mod follow;

use std::sync::atomic::Ordering;
use std::time::Instant;

use configs::Config;
use ranks::RanksError;

use super::agreement;
use super::banner::banner;
use super::best::Best;
use super::divergence::Divergence;
use super::journal::Journal;
use super::observer::Event;
use super::options::{Outcome, SessionOptions};
use super::report::{Facts, Report, State};
use super::resume::{self, Recorded, Resumed};
use super::saver::{Saver, due};
use super::trainer::Trainer;
use crate::dataset::{DataSet, Split};
use crate::error::EngineError;
use crate::evaluate::{Evaluation, Evaluator};
use crate::metrics::StepRecord;
use crate::model::{Division, classes_of};
use crate::runtime::ModelState;

use follow::{Evaluated, Evaluating};

/// How a run ends, with the evaluation of its last step if it has one.
type End = (Outcome, Option<Evaluated>);

/// A training run.
#[derive(Debug)]
pub struct Session {
    config: Config,
    options: SessionOptions,
    data: DataSet,
    trainer: Trainer,
    evaluator: Evaluator,
    best: Best,
    saver: Saver,
    /// The evaluation whose verdict the ranks have not shared yet.
    evaluating: Option<Evaluating>,
    journal: Journal,
    divergence: Divergence,
    report: Report,
    /// What the log says of the step that the run resumed after.
    recorded: Option<Recorded>,
    /// Whether the observer knows how the run ends.
    is_decided: bool,
    /// Loss scale of the step before.
    last_scale: Option<f32>,
    /// The first file that should outlive the run and could not be written.
    unwritten: Option<EngineError>,
}

impl Session {
    /// Opens the data, builds the trainer, and restores the last checkpoint if asked to.
    ///
    /// # Errors
    /// A bad config, bad data, or a bad checkpoint; a resumed run whose config or data change what
    /// a step means.
    pub fn new(config: Config, options: SessionOptions) -> Result<Self, EngineError> {
        let (progress, run, team) = (options.progress, options.run.clone(), options.team.clone());
        // Before any data is drawn or prepared for ranks that cannot share a batch.
        agreement::check_config(&team, &config)?;
        let division = division(&config, &options)?;
        // Before any data is drawn or prepared for a config that is refused.
        let mut resumed = match options.resume {
            true => Some(Resumed::open(&config, &options)?),
            false => None,
        };
        let (data, val) = open_data(&config, &options)?;
        if let Some(resumed) = &mut resumed {
            resumed.check_data(&data, &resume::identity_of(&data), &options)?;
        }
        let (mut trainer, evaluator) = prepare(&config, &options, division, &data, val)?;
        let (identity, val_identity) = read(&options, &data, &evaluator)?;
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
        let params = trainer.params().to_vec();
        let config_toml = config.to_toml()?;
        let own_run = team.is_first().then_some(&run);
        if let Some(run) = own_run {
            run.write("config.toml", config_toml.as_bytes())?;
        }
        let window = config.train.log_every_steps as usize;
        let mut journal = Journal::open(own_run, progress, window, trainer.trained())?;
        let facts = Facts {
            config: &config,
            config_toml: &config_toml,
            device: options.backend.name(),
            train: (&data, &identity),
            val: (evaluator.set().data(), &val_identity),
        };
        let report = Report::open(own_run, trainer.steps_done(), &facts, &mut journal);
        let saver = Saver::new(config_toml, &data, identity, overrides, params);
        Ok(Self {
            journal,
            report,
            divergence: Divergence::new(&config),
            evaluator,
            config,
            options,
            data,
            trainer,
            best,
            saver,
            evaluating: None,
            recorded,
            is_decided: false,
            last_scale: None,
            unwritten: None,
        })
    }

    /// Trains to the end, evaluates, and writes `report.json`. A full disk does not keep it from
    /// its scores: [`Session::finish`] tells what could not be written.
    ///
    /// # Errors
    /// Data that cannot be read, non-finite losses; an interrupted run that cannot be saved.
    pub fn run(&mut self) -> Result<(Outcome, Evaluation), EngineError> {
        let options = &self.options;
        let (backend, run) = (&options.backend, &options.run);
        for text in banner(&self.config, &self.data, &self.trainer, backend, run, &options.team) {
            self.journal.say(&text);
        }
        self.begin_report(State::Training)?;
        let ended = self.run_to_the_end();
        if ended.is_err() {
            self.wind_up();
        }
        ended
    }

    /// Trains, saves the last step, evaluates it unless that is done, and reports.
    fn run_to_the_end(&mut self) -> Result<(Outcome, Evaluation), EngineError> {
        let (mut outcome, mut last) = self.train()?;
        let is_saved = self
            .options
            .team
            .share("whether there is a checkpoint", || Ok(self.last_checkpoint().is_some()))?;
        if self.divergence.is_sound() {
            self.save_last(outcome)?;
        } else if outcome != Outcome::Interrupted || !is_saved {
            return Err(self.diverged());
        } else {
            self.say_unsaved();
        }
        if outcome != Outcome::Interrupted && last.is_none() {
            self.begin_evaluation(None, Instant::now())?;
            last = self.settle()?;
        }
        let Some(evaluated) = last.filter(|_| outcome != Outcome::Interrupted) else {
            self.decided(false)?;
            self.log_outcome(Outcome::Interrupted);
            self.begin_report(State::Ended(Outcome::Interrupted))?;
            self.report.finish(&mut self.journal);
            return Ok((Outcome::Interrupted, Evaluation::none()));
        };
        if outcome == Outcome::Done && evaluated.verdict.is_target_reached {
            outcome = Outcome::TargetReached;
        }
        self.decided(outcome == Outcome::TargetReached)?;
        self.log_outcome(outcome);
        let reported = self.write_report(State::Ended(outcome));
        if let Some(classes) = self.report.class_table() {
            self.journal.say(classes);
        }
        self.journal.say(&self.report.totals.describe());
        self.keep_fault(reported)?;
        Ok((outcome, evaluated.evaluation))
    }

    /// Says and logs a warning.
    pub fn warn(&mut self, text: &str) {
        self.journal.say(&format!("warning: {text}"));
    }

    /// Ends the session.
    ///
    /// # Errors
    /// The first file that could not be written at the end: [`EngineError::Unsaved`] or
    /// [`EngineError::Io`].
    pub fn finish(self) -> Result<(), EngineError> {
        self.unwritten.map_or(Ok(()), Err)
    }

    fn log_outcome(&self, outcome: Outcome) {
        let (steps_done, of) = (self.trainer.steps_done(), self.config.train.steps);
        tracing::info!(steps_done, of, "stops: {}", outcome.reason());
    }

    /// The evaluator and the trained state, for pictures of detections.
    pub fn evaluator(&mut self) -> (&mut Evaluator, &mut ModelState) {
        (&mut self.evaluator, self.trainer.state())
    }

    /// Runs steps until the run ends. Returns the evaluation too, if the last step had one.
    fn train(&mut self) -> Result<End, EngineError> {
        let total = self.config.train.steps;
        let bar = self.options.progress.bar("training", total);
        let mut ended = (Outcome::Done, None);
        let resumed_at = self.trainer.steps_done();
        if resumed_at < total
            && let Some(end) = self.evaluate_first(resumed_at)?
        {
            return Ok(end);
        }
        self.trainer.restart_clock();
        while self.trainer.steps_done() < total {
            let step = self.step(&bar)?;
            self.look_after_threads()?;
            if self.divergence.is_lost() {
                // An evaluation before may have ended the run.
                ended = self.settled()?.ok_or_else(|| self.diverged())?;
                break;
            }
            // Finish all steps in flight, so that a checkpoint is of a whole step.
            if self.stops_here() && self.trainer.in_flight() == 0 {
                ended = (Outcome::Interrupted, None);
                break;
            }
            if step == total || self.trainer.in_flight() > 0 {
                continue;
            }
            // What is not saved is not scored: its score would name a checkpoint that is not there.
            let evaluates = self.evaluation_due(step) && self.divergence.is_sound();
            if (evaluates || self.save_is_due(step))
                && let Some(end) = bar.suspend(|| self.follow(evaluates))?
            {
                ended = end;
                break;
            }
        }
        bar.finish_and_clear();
        Ok(self.settled()?.unwrap_or(ended))
    }

    /// Evaluates `step`, which the run resumes after, if that is owed or ended the run. Returns how
    /// the run ends, if it does.
    fn evaluate_first(&mut self, step: u64) -> Result<Option<End>, EngineError> {
        match self.recorded.take() {
            Some(Recorded::Nothing) if self.evaluation_due(step) => self.evaluate_again(),
            None | Some(Recorded::Nothing | Recorded::Evaluation) => Ok(None),
            Some(Recorded::Ending) => {
                self.journal.say(&format!(
                    "step {step} ended the run and is evaluated again: to train on, give other \
                     targets (--target) or a longer train.patience"
                ));
                let end = self.evaluate_again()?;
                if end.is_some() { Ok(end) } else { self.settled() }
            }
        }
    }

    /// Runs the next step, records it, and returns its number.
    fn step(&mut self, bar: &indicatif::ProgressBar) -> Result<u64, EngineError> {
        let done = self.trainer.steps_done();
        self.options.team.set_doing(done + 1, "training");
        let (epoch, first) = (done / self.batches_per_epoch(), done % self.batches_per_epoch());
        if first == 0 {
            self.options.observe(Event::EpochBegins(epoch + 1))?;
        }
        let was_to_stop = self.trainer.stop_after().is_some();
        let record = self.trainer.step(self.next_stop())?;
        let step = record.step;
        if let Some(lost) = self.options.team.group().lost() {
            // What the step has summed may be anything.
            return Err(RanksError::Lost(Box::new(lost)).into());
        }
        if !was_to_stop {
            self.say_who_stops();
        }
        self.divergence.record(&record);
        self.log_loss_scale(&record);
        self.report.totals.add(&record);
        self.journal.step(record);
        self.log(step, bar);
        bar.set_position(step);
        if step % self.batches_per_epoch() == 0 {
            self.options.observe(Event::EpochEnds(epoch + 1))?;
        }
        Ok(step)
    }

    /// Says that another rank was asked to stop; one that was asked itself has said so.
    fn say_who_stops(&mut self) {
        let is_asked = self.options.interrupted.load(Ordering::Relaxed) || self.ends_late();
        if let Some(last) = self.trainer.stop_after()
            && !is_asked
        {
            self.journal.say(&format!(
                "another rank was asked to stop: all stop after step {last} and a checkpoint"
            ));
        }
    }

    /// Whether the run ends after the steps in flight: one process as soon as it is asked to,
    /// several after the step that they have agreed on.
    fn stops_here(&self) -> bool {
        match self.options.team.is_alone() {
            true => self.options.interrupted.load(Ordering::Relaxed) || self.ends_late(),
            false => {
                self.trainer.stop_after().is_some_and(|last| self.trainer.steps_done() >= last)
            }
        }
    }

    fn batches_per_epoch(&self) -> u64 {
        self.trainer.batches_per_epoch()
    }

    /// Logs a skipped step, and a change of the loss scale.
    fn log_loss_scale(&mut self, record: &StepRecord) {
        let (step, loss_scale) = (record.step, record.loss_scale);
        if !record.applied {
            tracing::info!(step, loss_scale, "skipped a step: its gradients overflow");
        }
        let before = self.last_scale.replace(loss_scale);
        if before.is_some_and(|before| before != loss_scale) {
            tracing::info!(step, from = before, to = loss_scale, "changed the loss scale");
        }
    }

    /// The first step that is followed by something other than a step.
    fn next_stop(&self) -> u64 {
        let now = self.trainer.steps_done();
        let train = &self.config.train;
        if self.stops_here() || self.save_is_overdue() {
            return now;
        }
        let epochs = |every: u64| self.batches_per_epoch().saturating_mul(every);
        let periods = [
            train.eval_every_steps,
            epochs(train.eval_every_epochs),
            train.checkpoint_every_steps,
            epochs(train.checkpoint_every_epochs),
        ];
        let next = |every: &u64| (now / every).saturating_add(1).saturating_mul(*every);
        let stops = periods.iter().filter(|every| **every > 0).map(next);
        let agreed = self.trainer.stop_after().unwrap_or(train.steps);
        stops.min().unwrap_or(train.steps).min(train.steps).min(agreed)
    }

    fn log(&mut self, step: u64, bar: &indicatif::ProgressBar) {
        let train = &self.config.train;
        if step == train.steps || due(train.log_every_steps, step) {
            let memory = self.trainer.memory();
            bar.suspend(|| self.journal.log(train.steps, memory.bytes()));
        }
    }

    fn evaluation_due(&self, step: u64) -> bool {
        let train = &self.config.train;
        let per_epochs = self.batches_per_epoch().saturating_mul(train.eval_every_epochs);
        due(train.eval_every_steps, step) || due(per_epochs, step)
    }
}

/// Opens the training data, and the data that the run is evaluated on.
///
/// # Errors
/// Data that cannot be opened; different classes.
fn open_data(config: &Config, options: &SessionOptions) -> Result<(DataSet, DataSet), EngineError> {
    let (team, progress) = (&options.team, &options.progress);
    team.set_doing(0, "opening its data");
    // A clock that runs from the first look at the data begins later.
    let of_split = match options.observer {
        Some(_) => DataSet::open_index,
        None => DataSet::open,
    };
    let open = |split| {
        team.first_of_host_first("the data of a host", || of_split(config, split, progress))
    };
    let data = open(Split::Train)?;
    let val = open(if config.eval.train_set { Split::Train } else { Split::Val })?;
    check_categories(&data, &val)?;
    Ok((data, val))
}

/// Plans and captures all programs, and gives the model its first weights.
///
/// # Errors
/// As for [`Trainer::of_rank`] and [`Evaluator::new`].
fn prepare(
    config: &Config,
    options: &SessionOptions,
    division: Division,
    data: &DataSet,
    val: DataSet,
) -> Result<(Trainer, Evaluator), EngineError> {
    let (backend, stop) = (&options.backend, &options.interrupted);
    let mut fresh = config.clone();
    if options.resume {
        // The checkpoint has all weights; the file that the run started from may be gone.
        fresh.model.backbone.weights = None;
        fresh.model.weights = None;
    }
    let sets = (data, Some(&val));
    let mut trainer = Trainer::with_evaluations(&fresh, sets, backend, division, stop.clone())?;
    let classes = classes_of(trainer.params());
    let mut evaluator = Evaluator::new(config, val, classes, backend, trainer.state())?;
    evaluator.interrupt_by(stop.clone());
    if config.eval.keep_images {
        evaluator.keep_images(backend);
    }
    if options.observer.is_some() {
        trainer.warm_up()?;
        evaluator.warm_up(trainer.state())?;
    }
    if !options.resume {
        agreement::check_state(&options.team, trainer.state())?;
    }
    options.observe(Event::Prepared {
        train_images: data.images.len(),
        val_images: evaluator.set().images().len(),
        passes: trainer.passes(),
        steps_per_epoch: trainer.batches_per_epoch(),
    })?;
    Ok((trainer, evaluator))
}

/// Reads the data itself, for the first time if the run is timed: what it is evaluated against,
/// and the identities of both data sets, side by side.
///
/// # Errors
/// Damaged data; annotations that are no masks.
fn read(
    options: &SessionOptions,
    data: &DataSet,
    evaluator: &Evaluator,
) -> Result<(String, String), EngineError> {
    let set = evaluator.set();
    if options.observer.is_some() {
        let verify = |data: &DataSet| data.store.verify_masks();
        let (train, val) = rayon::join(|| verify(data), || verify(set.data()));
        train.and(val)?;
    }
    let identities =
        || rayon::join(|| resume::identity_of(data), || resume::identity_of(set.data()));
    let (truth, identities) = rayon::join(|| set.truth().map(|_| ()), identities);
    truth.map(|()| identities)
}

/// This rank's part of each step.
///
/// # Errors
/// Ranks that cannot share a batch.
fn division(config: &Config, options: &SessionOptions) -> Result<Division, EngineError> {
    let (team, target) = (&options.team, options.backend.target(config));
    let mut division = Division::new(&config.train, &target, team.ranks(), team.exchange())?;
    division.local_ranks = team.local_ranks();
    Ok(division)
}

fn check_categories(train: &DataSet, val: &DataSet) -> Result<(), EngineError> {
    if train.categories() == val.categories() {
        return Ok(());
    }
    Err(EngineError::Usage(format!(
        "{} and {} name different classes: set data.val_store, or data.val_images and \
         data.val_annotations, to data with the categories of the training data",
        train.store.path().display(),
        val.store.path().display()
    )))
}
