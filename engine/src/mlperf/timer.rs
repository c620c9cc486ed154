//! Times a run: events in the order of MLPerf's rules, from clearing the cache to `run_stop`.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use configs::{Config, Optimizer, Schedule, WarmupRule};
use serde_json::{Value, json};

use super::cache::Cleared;
use super::format::BENCHMARK;
use super::writer::{Kind, LogWriter};
use crate::error::EngineError;
use crate::evaluate::Evaluation;
use crate::train::{Event, Observer};

/// Longest initialization; the clock starts then at the latest.
const INIT: Duration = Duration::from_secs(30 * 60);

/// The submitter and the system.
#[derive(Debug, Clone)]
pub struct Submission {
    /// The submitter.
    pub org: String,
    /// The system's name, as in its description.
    pub system: String,
    /// Its availability: `onprem`, `cloud`, `preview` or `research`.
    pub status: String,
    /// True if it keeps the rules of the closed division.
    pub is_closed: bool,
}

impl Submission {
    /// `closed` or `open`.
    pub fn division(&self) -> &'static str {
        if self.is_closed { "closed" } else { "open" }
    }

    /// The log of run `number` in the folder `out`.
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
    /// Begins the log of a run of `config` at `path`, before anything of it is built.
    ///
    /// # Errors
    /// A log that exists or cannot be written.
    pub fn begin(
        path: &Path,
        submission: &Submission,
        cleared: Cleared,
        config: &Config,
    ) -> Result<Self, EngineError> {
        let mut log = LogWriter::create(path)?;
        log.fact("cache_clear", cleared != Cleared::Nothing)?;
        log.fact("submission_benchmark", BENCHMARK)?;
        log.fact("submission_org", submission.org.as_str())?;
        log.fact("submission_division", submission.division())?;
        log.fact("submission_status", submission.status.as_str())?;
        log.fact("submission_platform", submission.system.as_str())?;
        log.event(Kind::Start, "init_start", Value::Null, json!({}))?;
        log.fact("seed", config.train.seed)?;
        let began = Instant::now();
        Ok(Self { log, config: config.clone(), began, has_started: false, has_stopped: false })
    }

    /// Writes lines for the log's reader.
    ///
    /// # Errors
    /// A line that cannot be written.
    pub fn note(&mut self, text: &str) -> Result<(), EngineError> {
        self.log.text(text)
    }

    /// The run ended with a fault. If its clock never ran, there was no run, and its log goes.
    ///
    /// # Errors
    /// A line that cannot be written, or a log that cannot be removed.
    pub fn abort(&mut self) -> Result<(), EngineError> {
        match self.has_started {
            true => self.stop(false),
            false => self.log.discard(),
        }
    }

    /// Hyper-parameters, then the clock starts.
    fn start(&mut self, passes: usize, images: [usize; 2]) -> Result<(), EngineError> {
        let (log, config) = (&mut self.log, &self.config);
        let (solver, train) = (&config.solver, &config.train);
        log.fact("global_batch_size", train.batch_size)?;
        log.fact("gradient_accumulation_steps", passes)?;
        log.fact("opt_name", optimizer(solver.optimizer))?;
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
        log.fact("max_image_size", config.input.max_size)?;
        let took = self.began.elapsed();
        if took > INIT {
            log.text(&format!(
                "initialization took {:.0} s; beyond {} s it counts as part of the run",
                took.as_secs_f64(),
                INIT.as_secs()
            ))?;
        }
        log.event(Kind::End, "init_stop", Value::Null, json!({}))?;
        log.event(Kind::Start, "run_start", Value::Null, json!({}))?;
        self.has_started = true;
        let [train_samples, eval_samples] = images;
        log.fact("train_samples", train_samples)?;
        log.fact("eval_samples", eval_samples)
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
            // Undefined is -1, which no target is.
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
                self.start(passes, [train_images, val_images])
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

/// A run ends with an epoch, as its images are counted by epochs.
fn check_epochs(steps: u64, steps_per_epoch: u64) -> Result<(), EngineError> {
    if steps.is_multiple_of(steps_per_epoch) {
        return Ok(());
    }
    Err(EngineError::Usage(format!(
        "train.steps is {steps}, and an epoch has {steps_per_epoch} steps: a timed run is of whole \
         epochs; set train.steps={}",
        steps.next_multiple_of(steps_per_epoch)
    )))
}

/// Its name in the rules.
fn optimizer(optimizer: Optimizer) -> &'static str {
    match optimizer {
        Optimizer::Sgd => "sgd_with_momentum",
        Optimizer::Novograd => "novograd",
        Optimizer::Lars => "lars",
        Optimizer::Adamw => "adamw",
    }
}

/// The rate's growth per step of the warm-up (the reference's factor), or the share of the full
/// rate that it begins with.
fn warmup_factor(config: &Config) -> f64 {
    let solver = &config.solver;
    match solver.warmup_rule {
        WarmupRule::SharedDelta if solver.warmup_steps > 0 => {
            solver.learning_rate * (1.0 - solver.warmup_factor) / solver.warmup_steps as f64
        }
        _ => solver.warmup_factor,
    }
}
