//! Times a run: logs its events in the order that MLPerf's rules require, from clearing the caches
//! to `run_stop`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::config::{Config, Schedule, WarmupRule};
use serde_json::{Value, json};

use super::cache::Cleared;
use super::format::BENCHMARK;
use super::writer::{Kind, LogWriter};
use crate::error::EngineError;
use crate::evaluate::Evaluation;
use crate::train::{Event, Observer};

/// Maximum initialization time, after which the clock starts in any case. The official checker
/// requires less than 30 minutes.
const INIT: Duration = Duration::from_millis(30 * 60_000 - 10);

/// The submitter and the system.
#[derive(Debug, Clone, Default)]
pub struct Submission {
    /// The submitter.
    pub org: String,
    /// The system's name, as in the system description.
    pub system: String,
    /// Availability of the system: `onprem`, `cloud`, `preview` or `research`.
    pub status: String,
    /// True if the submission follows the rules of the closed division.
    pub is_closed: bool,
}

impl Submission {
    /// `closed` or `open`.
    pub fn division(&self) -> &'static str {
        if self.is_closed { "closed" } else { "open" }
    }

    /// Path of the log of run `number` in the folder `out`.
    pub fn result(&self, out: &Path, number: usize) -> PathBuf {
        let system = out.join("results").join(&self.system);
        system.join(BENCHMARK).join(format!("result_{number}.txt"))
    }
}

/// Times one run.
#[derive(Debug)]
pub struct Timer {
    log: LogWriter,
    config: Config,
    began: Instant,
    has_started: bool,
    has_stopped: bool,
}

impl Timer {
    /// Begins the log of a run of `config` at `path`. Call it after clearing the caches (`cleared`:
    /// the cleared caches of each host) and before any other part of the run.
    ///
    /// # Errors
    /// A log that already exists, or cannot be written.
    pub fn begin(
        path: &Path,
        submission: &Submission,
        cleared: &[(String, Cleared)],
        config: &Config,
    ) -> Result<Self, EngineError> {
        let mut log = LogWriter::create(path)?;
        let is_cleared = cleared.iter().all(|(_, what)| *what == Cleared::Machine);
        let hosts = cleared.iter().map(|(host, what)| format!("{host}: {}", what.describe()));
        let hosts = json!({"hosts": hosts.collect::<Vec<_>>()});
        log.event(Kind::Point, "cache_clear", is_cleared.into(), hosts)?;
        log.fact("submission_benchmark", BENCHMARK)?;
        log.fact("submission_org", submission.org.as_str())?;
        log.fact("submission_division", submission.division())?;
        log.fact("submission_status", submission.status.as_str())?;
        log.fact("submission_platform", submission.system.as_str())?;
        log.event(Kind::Start, "init_start", Value::Null, json!({}))?;
        // The official checker requires a source location for the seed.
        let place = json!({"file": file!(), "lineno": line!()});
        log.event(Kind::Point, "seed", config.train.seed.into(), place)?;
        write_parameters(&mut log, config)?;
        let began = Instant::now();
        Ok(Self { log, config: config.clone(), began, has_started: false, has_stopped: false })
    }

    /// Writes text for human readers of the log.
    ///
    /// # Errors
    /// A line that cannot be written.
    pub fn note(&mut self, text: &str) -> Result<(), EngineError> {
        self.log.text(text)
    }

    /// Call it when the run failed. Logs an aborted run; if its clock never started, removes the
    /// log instead.
    ///
    /// # Errors
    /// A line that cannot be written, or a log that cannot be removed.
    pub fn abort(&mut self) -> Result<(), EngineError> {
        if !self.has_started {
            if self.began.elapsed() < INIT {
                return self.log.discard();
            }
            self.start_clock()?;
        }
        self.stop(false)
    }

    /// Starts the clock now or, if the initialization exceeded its limit, retroactively at that
    /// limit.
    fn start_clock(&mut self) -> Result<(), EngineError> {
        let late = self.began.elapsed().saturating_sub(INIT);
        if !late.is_zero() {
            let late = late.as_secs();
            self.log
                .text(&format!("initialization exceeds 30 minutes: clock began {late} s ago"))?;
        }
        self.log.event_ago(late, Kind::End, "init_stop", Value::Null, json!({}))?;
        self.log.event_ago(late, Kind::Start, "run_start", Value::Null, json!({}))?;
        self.has_started = true;
        Ok(())
    }

    fn interval(&mut self, kind: Kind, key: &str, epoch: u64) -> Result<(), EngineError> {
        self.log.event(kind, key, Value::Null, json!({"epoch_num": epoch}))
    }

    fn scored(
        &mut self,
        epoch: u64,
        evaluation: &Evaluation,
        waited_seconds: f64,
    ) -> Result<(), EngineError> {
        let mut value = json!({});
        for (name, summary) in evaluation.summaries() {
            // An undefined AP is -1, which reaches no target.
            value[name.to_uppercase()] = summary.ap().into();
        }
        let metadata = json!({"epoch_num": epoch});
        self.log.event(Kind::Point, "eval_accuracy", value, metadata.clone())?;
        let waited = json!({"eval_waited_seconds": waited_seconds});
        self.log.event(Kind::Point, "tracked_stats", waited, metadata)
    }

    fn stop(&mut self, is_target_reached: bool) -> Result<(), EngineError> {
        if std::mem::replace(&mut self.has_stopped, true) {
            return Ok(());
        }
        let status = if is_target_reached { "success" } else { "aborted" };
        self.log.event(Kind::End, "run_stop", Value::Null, json!({"status": status}))
    }
}

impl Observer for Timer {
    fn see(&mut self, event: &Event<'_>) -> Result<(), EngineError> {
        match *event {
            Event::Prepared { train_images, val_images, passes, steps_per_epoch } => {
                check_epochs(self.config.train.steps, steps_per_epoch)?;
                // Logged before the events below, as its time may be in the past, and a log is in
                // order of time.
                self.start_clock()?;
                self.log.fact("gradient_accumulation_steps", passes)?;
                self.log.fact("train_samples", train_images)?;
                self.log.fact("eval_samples", val_images)
            }
            Event::EpochBegins(epoch) => self.interval(Kind::Start, "epoch_start", epoch),
            Event::EpochEnds(epoch) => self.interval(Kind::End, "epoch_stop", epoch),
            Event::DetectionBegins(epoch) => self.interval(Kind::Start, "eval_start", epoch),
            Event::DetectionEnds(epoch) => self.interval(Kind::End, "eval_stop", epoch),
            Event::Scored { epoch, evaluation, waited_seconds } => {
                self.scored(epoch, evaluation, waited_seconds)
            }
            Event::Decided { is_target_reached } => self.stop(is_target_reached),
        }
    }
}

/// Writes the hyperparameters.
fn write_parameters(log: &mut LogWriter, config: &Config) -> Result<(), EngineError> {
    let (solver, train) = (&config.solver, &config.train);
    log.fact("global_batch_size", train.batch_size)?;
    log.fact("opt_name", solver.optimizer.entry().mlperf)?;
    log.fact("opt_base_learning_rate", solver.learning_rate)?;
    log.fact("opt_learning_rate_warmup_steps", solver.warmup_steps)?;
    log.fact("opt_learning_rate_warmup_factor", warmup_factor(config))?;
    log.fact("opt_learning_rate_decay_factor", solver.gamma)?;
    let decays: &[u64] = match solver.schedule {
        Schedule::Multistep => &solver.milestones,
        Schedule::Cosine => &[],
    };
    log.fact("opt_learning_rate_decay_steps", decays)?;
    log.fact("num_image_candidates", config.model.rpn.post_nms_top_n_train)?;
    log.fact("min_image_size", config.input.min_size)?;
    log.fact("max_image_size", config.input.max_size)
}

/// A timed run must end at the end of an epoch, since its images are counted in epochs.
fn check_epochs(steps: u64, steps_per_epoch: u64) -> Result<(), EngineError> {
    if steps.is_multiple_of(steps_per_epoch) {
        return Ok(());
    }
    Err(EngineError::Usage(format!(
        "train.steps is {steps}, but an epoch has {steps_per_epoch} steps: a timed run must have \
         whole epochs; set train.steps={}",
        steps.next_multiple_of(steps_per_epoch)
    )))
}

/// The increase of the learning rate per warm-up step, as in the reference; for other warm-up
/// rules, the fraction of the full rate at the start of the warm-up.
fn warmup_factor(config: &Config) -> f64 {
    let solver = &config.solver;
    match solver.warmup_rule {
        WarmupRule::SharedDelta if solver.warmup_steps > 0 => {
            solver.learning_rate * (1.0 - solver.warmup_factor) / solver.warmup_steps as f64
        }
        _ => solver.warmup_factor,
    }
}

#[cfg(test)]
mod tests {
    use super::super::log::{RunLog, Status};
    use super::*;

    /// The minutes in the log of a run on two hosts whose initialization takes `minutes`. The run
    /// fails before the initialization is complete if `fails`, else it is aborted right after it.
    fn counted_after(minutes: u64, fails: bool) -> Option<f64> {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("result_0.txt");
        let config = Config::load("mlperf_8", &[]).expect("a preset");
        let hosts = [("a".to_string(), Cleared::Machine), ("b".to_string(), Cleared::Stores)];
        let mut timer =
            Timer::begin(&path, &Submission::default(), &hosts, &config).expect("a log");
        timer.began -= Duration::from_secs(60 * minutes);
        let (train_images, val_images) = (8, 8);
        let prepared = Event::Prepared { train_images, val_images, passes: 1, steps_per_epoch: 1 };
        if !fails {
            timer.see(&prepared).expect("room");
        }
        timer.abort().expect("room");
        let text = std::fs::read_to_string(&path).ok()?;
        assert!(text.contains("a: the page cache was cleared"), "{text}");
        let log = RunLog::read(&path).expect("a log");
        assert_eq!((log.status, log.clears_caches), (Status::Aborted, false));
        Some(log.minutes.round())
    }

    #[test]
    fn initialization_beyond_30_minutes_counts_as_run_time() {
        assert_eq!(counted_after(29, true), None, "there was no run");
        assert_eq!(counted_after(29, false), Some(0.0));
        assert_eq!([false, true].map(|fails| counted_after(40, fails)), [Some(10.0); 2]);
    }
}
