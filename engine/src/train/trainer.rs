//! The trainer: one planned program a padded shape, sharing the state; one batch a step.

use std::sync::Arc;
use std::time::Instant;

use configs::{Config, WarmupRule};
use graph::{CpuExecutor, StateSet};

use super::feed::{Feed, fill_inputs};
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::metrics::StepRecord;
use crate::model::{ImageSize, Inject, LOSS_NAMES, ModelSpec, Param, training_program};
use crate::weights::{LoadReport, fold, initial_state, load_weights};

/// Makes training steps.
#[derive(Debug)]
pub struct Trainer {
    executors: Vec<CpuExecutor>,
    state: StateSet,
    params: Vec<Param>,
    loaded: Option<LoadReport>,
    losses: Vec<&'static str>,
    feed: Feed,
    batches: u64,
    last_step: Instant,
}

/// What training needs in memory, known before the first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Weights, momentum, counters.
    pub state_bytes: usize,
    /// Activations, gradients and scratch, of the largest padded shape.
    pub arena_bytes: usize,
    /// Arenas of all shapes: the CPU device keeps one each.
    pub all_arenas_bytes: usize,
}

impl Trainer {
    /// Builds and plans the programs, initialises the state, and starts loading.
    ///
    /// # Errors
    /// A config that describes no program, or weights that cannot be loaded.
    pub fn new(config: &Config, data: &DataSet) -> Result<Self, EngineError> {
        refuse_unsupported(config)?;
        let mut executors = Vec::new();
        let mut built = None;
        for shape in &data.shapes {
            let spec = ModelSpec {
                config,
                num_classes: num_classes(config, data)?,
                images: config.train.batch_size,
                padded: ImageSize { height: shape.height, width: shape.width },
                slot: data.slot_shape(),
                inject: Inject::default(),
            };
            let program = training_program(&spec)?;
            let (state, _) = built.get_or_insert_with(|| {
                let eps = config.model.backbone.norm_eps;
                let seed = config.train.seed;
                let mut state = initial_state(&program.program, &program.params, seed, eps);
                set_scale(&mut state, config.solver.initial_loss_scale);
                (state, program.params)
            });
            executors.push(CpuExecutor::new(Arc::new(program.program), state)?);
        }
        let Some((mut state, params)) = built else {
            return Err(EngineError::Usage("the training set holds no image".into()));
        };
        let mut loaded = None;
        if let Some(path) = &config.model.backbone.weights {
            loaded = Some(load_weights(path.as_ref(), &params, &mut state)?);
            fold(&mut state, &params, config.model.backbone.norm_eps);
        }
        let kept = |name: &&str| executors[0].program().find(name).is_some();
        let losses = LOSS_NAMES.into_iter().filter(kept).collect();
        let feed = Feed::new(config, data)?;
        let last_step = Instant::now();
        Ok(Self { executors, state, params, loaded, losses, feed, batches: 0, last_step })
    }

    /// Makes the next step.
    ///
    /// # Errors
    /// An image that cannot be read.
    pub fn step(&mut self) -> Result<StepRecord, EngineError> {
        let batch = self.feed.next(self.batches)?;
        let executor = &mut self.executors[batch.shape];
        fill_inputs(executor, &batch)?;
        let state = &mut self.state;
        // Inside the pool, so that an op's parallel loops start without a hand-over of threads.
        rayon::scope(|_| executor.run(state));
        self.batches += 1;
        let record = self.record(batch.shape, batch.epoch, batch.num_images, batch.waited_seconds);
        self.feed.recycle(batch);
        record
    }

    fn record(
        &mut self,
        shape: usize,
        epoch: u64,
        images: usize,
        data_seconds: f64,
    ) -> Result<StepRecord, EngineError> {
        let executor = &self.executors[shape];
        let losses = self
            .losses
            .iter()
            .map(|name| Ok((*name, executor.f32(name)?[0])))
            .collect::<Result<Vec<_>, EngineError>>()?;
        let control = executor.f32("control")?;
        let norms = executor.f32("grad_norms")?;
        let (lr, loss_scale) = (control[0], control[3]);
        let now = Instant::now();
        let step_seconds = now.duration_since(self.last_step).as_secs_f64();
        self.last_step = now;
        Ok(StepRecord {
            step: self.batches,
            epoch,
            loss: losses.iter().map(|(_, value)| value).sum(),
            losses,
            lr,
            loss_scale,
            grad_norm: norms[norms.len() - 1] / loss_scale,
            applied: control[2] != 0.0,
            images,
            step_seconds,
            data_seconds,
        })
    }

    /// Starts the clock of the next step anew, after something that is not part of it.
    pub fn restart_clock(&mut self) {
        self.last_step = Instant::now();
    }

    /// Batches an epoch.
    pub fn batches_per_epoch(&self) -> u64 {
        self.feed.batches_per_epoch()
    }

    /// Batches consumed.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Goes on after `batches` batches, with a state restored by the caller.
    pub fn resume_at(&mut self, batches: u64) {
        self.batches = batches;
    }

    /// All state.
    pub fn state(&self) -> &StateSet {
        &self.state
    }

    /// All state, to restore.
    pub fn state_mut(&mut self) -> &mut StateSet {
        &mut self.state
    }

    /// Parameters of the model.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// What became of the weights that the config names.
    pub fn loaded(&self) -> Option<&LoadReport> {
        self.loaded.as_ref()
    }

    /// The planned programs, one a padded shape.
    pub fn executors(&self) -> &[CpuExecutor] {
        &self.executors
    }

    /// The planned programs, to reset their timers.
    pub fn executors_mut(&mut self) -> &mut [CpuExecutor] {
        &mut self.executors
    }

    /// What the run needs in memory.
    pub fn memory(&self) -> MemoryNeed {
        let arenas = || self.executors.iter().map(|e| e.plan().arena_bytes());
        MemoryNeed {
            state_bytes: self.state.bytes(),
            arena_bytes: arenas().max().unwrap_or(0),
            all_arenas_bytes: arenas().sum(),
        }
    }
}

/// Foreground classes: the config's, or the data's.
///
/// # Errors
/// [`EngineError::Usage`] if the config gives fewer than the data has.
pub(super) fn num_classes(config: &Config, data: &DataSet) -> Result<usize, EngineError> {
    match (config.model.num_classes, data.num_classes()) {
        (0, found) => Ok(found),
        (given, found) if given >= found => Ok(given),
        (given, found) => Err(EngineError::Usage(format!(
            "model.num_classes is {given}, but the data has {found} classes: set it to 0 to take \
             the data's"
        ))),
    }
}

fn set_scale(state: &mut StateSet, scale: f32) {
    if let Some(t) = state.get_mut("loss_scale") {
        t.as_f32_mut()[0] = scale;
    }
}

/// Names what the config asks for and this version does not do yet.
fn refuse_unsupported(config: &Config) -> Result<(), EngineError> {
    let solver = &config.solver;
    let refused = [
        (solver.warmup_rule == WarmupRule::SharedDelta, "solver.warmup_rule = \"shared_delta\""),
        (solver.first_schedule_step != 0, "solver.first_schedule_step other than 0"),
    ];
    match refused.iter().find(|(asked, _)| *asked) {
        Some((_, what)) => {
            Err(EngineError::Usage(format!("{what} is not supported yet; remove it")))
        }
        None => Ok(()),
    }
}
