//! The trainer: runs steps with planned programs that share their state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::config::{Config, LogOf, LogRule, ModelKind};
use device::Precision;
use graph::capture::CapturedGraph;
use graph::exec::device::Prepared;
use graph::{CpuExecutor, DeviceExecutor, StateSet};

use super::collect::Collected;
use super::feed::{Batch, Feed};
use super::memory::{Counted, MemoryNeed, arena_bytes, checkpoint_bytes, needed_bytes, prepare};
use super::programs::{StepPrograms, TrainingPrograms};
use super::start;
use super::steps::{CpuSteps, DeviceSteps, Steps, Submit};
use super::validation::ValidationLoss;
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::evaluate::{DetectionMemory, Evaluator};
use crate::metrics::StepRecord;
use crate::model::{
    Division, LOGGED_ACTIVATION, LOGGED_GRADIENT, Param, RingLayout, classes_of, further_arrays,
    step_layout,
};
use crate::names::matches;
use crate::runtime::{Backend, ModelState, gemm_settings};
use crate::weights::{LoadReport, initial_state, start_averages};

/// Runs training steps.
#[derive(Debug)]
pub struct Trainer {
    steps: Box<dyn Steps>,
    state: ModelState,
    params: Vec<Param>,
    loaded: Option<LoadReport>,
    feed: Feed,
    division: Division,
    /// Memory that the run's evaluations need.
    evaluations: DetectionMemory,
    /// Bytes used while a checkpoint is written.
    checkpoint_bytes: usize,
    kind: ModelKind,
    /// Weight of each loss, in the order of the losses in records.
    loss_weights: Vec<f32>,
    /// Set by a signal handler if this rank should stop; steps inform the other ranks.
    stop: Arc<AtomicBool>,
    /// True if this rank decided to stop and requests the other ranks to stop.
    asks_to_stop: bool,
    /// The step after which all ranks stop, if they have agreed on one.
    stop_after: Option<u64>,
    /// Number of steps done, including those before the run was resumed; steps in flight are not
    /// counted.
    steps_done: u64,
    /// Steps in flight, oldest first.
    begun: VecDeque<StepStart>,
    /// The error that prevented a step from starting; returned after the results of earlier steps.
    failed: Option<EngineError>,
    last_step: Instant,
}

/// Values of a step's record that are known when the step begins.
#[derive(Debug)]
struct StepStart {
    epoch: u64,
    images: usize,
    data_seconds: f64,
}

impl Trainer {
    /// Builds and plans the programs, and initializes the state.
    ///
    /// # Errors
    /// A config that describes no valid program, weights that cannot be loaded, or a device that
    /// fails or has too little memory.
    pub fn new(config: &Config, data: &DataSet, backend: &Backend) -> Result<Self, EngineError> {
        let division = Division::single(&config.train, &backend.target(config));
        Self::of_rank(config, data, backend, division, Arc::default())
    }

    /// The trainer of one of several ranks. If `stop` is set on any rank, all ranks agree on a step
    /// after which they stop.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn of_rank(
        config: &Config,
        data: &DataSet,
        backend: &Backend,
        division: Division,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, EngineError> {
        Self::with_evaluations(config, (data, None), backend, division, stop)
    }

    /// Like [`Self::of_rank`], with memory for evaluations on the second data set.
    ///
    /// # Errors
    /// As for [`Self::new`].
    pub fn with_evaluations(
        config: &Config,
        (data, val): (&DataSet, Option<&DataSet>),
        backend: &Backend,
        division: Division,
        stop: Arc<AtomicBool>,
    ) -> Result<Self, EngineError> {
        let target = backend.target(config);
        let TrainingPrograms { mut built, shapes } =
            TrainingPrograms::build(config, data, &target, &division)?;
        let Some(first) = built.first_mut() else {
            return Err(EngineError::Usage("the training set contains no images".into()));
        };
        let params = std::mem::take(&mut first.params);
        let (losses, ring) = (first.losses.clone(), first.ring.clone());
        let loss_weights = first.loss_weights.clone();
        let evaluations = match val {
            Some(val) => {
                let classes = classes_of(&params);
                let mut memory = Evaluator::memory(config, val, classes, backend)?;
                if config.eval.loss {
                    memory.add(ValidationLoss::memory(config, val, classes, backend)?);
                }
                memory
            }
            None => DetectionMemory::default(),
        };
        let programs = Planned { programs: prepare(built, &target)?, shapes, losses, ring };
        let counted = Counted { config, data, backend, division: &division, evaluations };
        counted.check_fit(&programs.programs)?;
        let checkpoint_bytes = checkpoint_bytes(&programs.programs[0]);
        let (first, eps) = (&programs.programs[0].program, config.model.backbone.norm_eps);
        let mut state = initial_state(first, &params, config.train.seed, eps);
        set_scale(&mut state, initial_loss_scale(config, backend));
        let loaded = start::load(
            config,
            (&data.categories(), &data.keypoints_of_model(config)),
            &params,
            &mut state,
        )?;
        start_averages(&mut state);
        let (steps, state) = programs.make_steps(state, counted)?;
        let feed = Feed::new(config, data, backend, &division)?;
        Ok(Self {
            steps,
            state,
            params,
            loaded,
            feed,
            division,
            evaluations,
            checkpoint_bytes,
            kind: config.model.kind,
            loss_weights,
            stop,
            asks_to_stop: false,
            stop_after: None,
            steps_done: 0,
            begun: VecDeque::new(),
            failed: None,
            last_step: Instant::now(),
        })
    }

    /// Runs the next step and returns its record. On a device, later steps may be in flight
    /// afterwards, but none after step `until`, so that actions after that step see exactly its
    /// state.
    ///
    /// # Errors
    /// An image that cannot be read (returned after the records of all earlier steps), or a device
    /// error. After an error no more steps can run.
    pub fn step(&mut self, until: u64) -> Result<StepRecord, EngineError> {
        let until = until.max(self.steps_done + u64::from(self.begun.is_empty()));
        while self.begun.len() < self.steps.depth() && self.failed.is_none() {
            let next = self.steps_done + self.begun.len() as u64;
            if next >= until {
                break;
            }
            match self.begin(next, None) {
                Ok(begun) => self.begun.push_back(begun),
                Err(e) => self.failed = Some(e),
            }
        }
        let Some(begun) = self.begun.pop_front() else {
            return Err(self.failed.take().unwrap_or_else(|| unreachable!("one was begun")));
        };
        let measured = self.steps.measure()?;
        self.steps_done += 1;
        if measured.stop && self.stop_after.is_none() {
            // Other ranks may have begun up to `depth - 1` more steps.
            self.stop_after = Some(self.steps_done + self.steps.depth() as u64 - 1);
        }
        let now = Instant::now();
        let step_seconds = now.duration_since(self.last_step).as_secs_f64();
        self.last_step = now;
        Ok(StepRecord {
            step: self.steps_done,
            epoch: begun.epoch,
            loss: weighted_sum(&self.loss_weights, &measured.losses),
            losses: measured.losses,
            lr: measured.lr,
            loss_scale: measured.loss_scale,
            grad_norm: measured.grad_norm,
            applied: measured.applied,
            images: begun.images,
            step_seconds,
            data_seconds: begun.data_seconds,
            parameters: measured.parameters,
            accuracies: (self.kind.family().shares)(&measured.counts),
            system: vec![],
        })
    }

    /// Runs the next step on a device to completion; `submit` submits each micro-step instead of
    /// the graph launch, to inspect or time it. The step trains as usual.
    ///
    /// Panics while steps are in flight.
    ///
    /// # Errors
    /// As for [`Self::step`]; [`EngineError::Usage`] on the CPU.
    pub fn step_by(&mut self, submit: &mut Submit<'_>) -> Result<StepRecord, EngineError> {
        assert!(self.begun.is_empty(), "steps are in flight");
        let begun = self.begin(self.steps_done, Some(submit))?;
        self.begun.push_back(begun);
        self.step(self.steps_done + 1)
    }

    /// Runs every program of a device once on an empty batch, so that the first step loads no code;
    /// then restores the state. Does nothing on the CPU.
    ///
    /// # Errors
    /// Device errors.
    pub(super) fn warm_up(&mut self) -> Result<(), EngineError> {
        assert!(self.begun.is_empty(), "steps are in flight");
        if self.steps.device_executor().is_none() {
            return Ok(());
        }
        let before = self.state.fetch()?.clone();
        self.steps.warm_up(&self.feed.empty_slot()?)?;
        self.state.change(|now| {
            *now = before;
            Ok(())
        })
    }

    /// Starts all passes of a step; through `submit`, if given.
    fn begin(
        &mut self,
        step: u64,
        mut submit: Option<&mut Submit<'_>>,
    ) -> Result<StepStart, EngineError> {
        let mut begun = StepStart { epoch: 0, images: 0, data_seconds: 0.0 };
        let passes = self.division.passes as u64;
        for pass in step * passes..(step + 1) * passes {
            let stop = self.asks_to_stop || self.stop.load(Ordering::Relaxed);
            let batch = self.feed.next(pass, stop)?;
            begun.epoch = batch.epoch;
            begun.images = batch.images_of_step;
            begun.data_seconds += batch.waited_seconds;
            let free = match &mut submit {
                None => self.steps.begin(batch, &mut self.state)?,
                Some(submit) => self.steps.begin_by(batch, submit)?,
            };
            if let Some(batch) = free {
                self.feed.recycle(batch);
            }
        }
        Ok(begun)
    }

    /// Loads the batches of step `step` again, and calls `visit` with the batch of each pass of all
    /// ranks. Steps are counted from 0.
    ///
    /// # Errors
    /// An image that cannot be read; errors of `visit`.
    pub(super) fn batch_again(
        &mut self,
        config: &Config,
        step: u64,
        visit: &mut dyn FnMut(&Batch) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let all = self.division.gathered();
        let mut feed = Feed::new(config, self.feed.data(), &Backend::Cpu, &all)?;
        let passes = all.passes as u64;
        for pass in step * passes..(step + 1) * passes {
            let batch = feed.next(pass, false)?;
            let visited = visit(&batch);
            feed.recycle(batch);
            visited?;
        }
        Ok(())
    }

    /// Ids of the images of step `step`, counted from 0.
    pub(super) fn image_ids(&self, step: u64) -> Vec<u64> {
        self.feed.image_ids(step)
    }

    /// Number of passes of this rank in a step.
    pub fn passes(&self) -> usize {
        self.division.passes
    }

    /// Requests all ranks to stop; the next step that begins carries the request.
    pub(super) fn ask_to_stop(&mut self) {
        self.asks_to_stop = true;
    }

    /// The step after which all ranks stop; `None` if no rank was requested to stop.
    pub fn stop_after(&self) -> Option<u64> {
        self.stop_after
    }

    /// Steps in flight.
    pub fn in_flight(&self) -> usize {
        self.begun.len()
    }

    /// Restarts the step clock, after work that does not belong to the next step.
    pub fn restart_clock(&mut self) {
        self.last_step = Instant::now();
    }

    /// Number of prefetched batches.
    pub(super) fn batches_ready(&self) -> usize {
        self.feed.ready()
    }

    /// Batches per epoch.
    pub fn batches_per_epoch(&self) -> u64 {
        self.feed.batches_per_epoch()
    }

    /// Images per epoch, counting copies of repeated images.
    pub fn images_per_epoch(&self) -> usize {
        self.feed.images_per_epoch()
    }

    /// Number of steps done, including those before the run was resumed.
    pub fn steps_done(&self) -> u64 {
        self.steps_done
    }

    /// Sets the number of steps done; the caller has restored the state.
    pub fn resume_at(&mut self, steps_done: u64) {
        assert!(self.begun.is_empty(), "steps are in flight");
        self.steps_done = steps_done;
    }

    /// The model's state.
    ///
    /// Panics while steps are in flight, as an update of the state may be incomplete.
    pub fn state(&mut self) -> &mut ModelState {
        assert!(self.begun.is_empty(), "steps are in flight");
        &mut self.state
    }

    /// Collects the statistics that a `[[train.log]]` rule selects, after the last step, whose loss
    /// scale was `loss_scale`.
    ///
    /// Panics while steps are in flight.
    ///
    /// # Errors
    /// Device errors.
    pub(super) fn collect(
        &mut self,
        rule: &LogRule,
        loss_scale: f32,
    ) -> Result<Collected, EngineError> {
        assert!(self.begun.is_empty(), "steps are in flight");
        let pattern = rule.tensors.as_str();
        let (tensors, scale) = match rule.of {
            LogOf::Weights => {
                let state = self.state.fetch()?;
                let names = self.params.iter().map(|param| &param.name);
                let fit = names.filter(|name| matches(pattern, name));
                let of = |name: &String| Some((name.clone(), state.get(name)?.as_f32().to_vec()));
                (fit.filter_map(of).collect(), 1.0)
            }
            LogOf::Gradients => {
                let scale = f64::from(loss_scale) * self.division.divisor() as f64;
                (self.steps.kept(LOGGED_GRADIENT, pattern)?, 1.0 / scale)
            }
            LogOf::Activations => (self.steps.kept(LOGGED_ACTIVATION, pattern)?, 1.0),
        };
        Ok(Collected::of(rule, &tensors, scale))
    }

    /// Parameters of the model.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// Names of the trained parameters, in order.
    pub fn trained(&self) -> Vec<String> {
        let trained = self.params.iter().filter(|param| param.trained.is_some());
        trained.map(|param| param.name.clone()).collect()
    }

    /// Report on the loaded weights file, tensor by tensor; `None` if the config selects none.
    pub fn loaded(&self) -> Option<&LoadReport> {
        self.loaded.as_ref()
    }

    /// The CPU's executors, for timing single nodes: one per padded shape, or two if a step has
    /// several passes; empty on a device.
    pub fn cpu_executors(&mut self) -> &mut [CpuExecutor] {
        self.steps.cpu_executors()
    }

    /// A device's captured graphs: one per padded shape, or two with micro-steps; empty on the CPU.
    pub fn graphs(&self) -> &[CapturedGraph] {
        self.steps.graphs()
    }

    /// The device's executor, with one program per padded shape, or two with micro-steps; `None` on
    /// the CPU.
    pub fn device_executor(&mut self) -> Option<&mut DeviceExecutor> {
        self.steps.device_executor()
    }

    /// The memory that the run needs.
    pub fn memory(&self) -> MemoryNeed {
        MemoryNeed {
            state_bytes: self.state.bytes() + self.checkpoint_bytes,
            arena_bytes: self.steps.bytes() + self.evaluations.input_bytes,
            pinned_bytes: self.steps.pinned_bytes() + self.feed.pinned_bytes(),
        }
    }
}

/// The planned programs of a run.
struct Planned {
    programs: Vec<Prepared>,
    shapes: Vec<StepPrograms>,
    losses: Vec<&'static str>,
    /// Layout of the ring, on a device only.
    ring: Option<RingLayout>,
}

impl Planned {
    /// Creates the state on the CPU or device, and the runner of the programs, whose arena is
    /// shared with evaluations.
    fn make_steps(
        self,
        state: StateSet,
        run: Counted<'_>,
    ) -> Result<(Box<dyn Steps>, ModelState), EngineError> {
        let Self { programs, shapes, losses, ring } = self;
        let Counted { config, data, backend, division, evaluations } = run;
        let arena = arena_bytes(&programs).max(evaluations.arena_bytes);
        let Backend::Device(device) = backend else {
            let mut state = ModelState::host(state, gemm_settings(config)?);
            state.cpu_arena().reserve(arena)?;
            let asked = &config.train;
            let steps = CpuSteps::new(programs, shapes, losses, division, asked, &mut state)?;
            return Ok((Box::new(steps), state));
        };
        let Some(layout) = ring else { panic!("a program for a device has a ring") };
        let all: Vec<_> = programs.iter().map(|p| p.program.as_ref()).collect();
        let precision = config.train.precision;
        let mut state = ModelState::on_device(state, device.clone(), precision, &all)?;
        state.arena(device, arena)?;
        let needed = needed_bytes(&programs, evaluations) - evaluations.input_bytes;
        let slot = step_layout(&further_arrays(config), division, data.slot_shape())?;
        let device = device.clone();
        let steps =
            DeviceSteps::new(device, programs, shapes, division, layout, &slot, &mut state)?;
        assert_eq!(steps.bytes() + state.bytes(), needed, "the need was counted wrongly");
        Ok((Box::new(steps), state))
    }
}

/// The loss that training minimizes. Multiplying by a weight of 1 is exact.
fn weighted_sum(weights: &[f32], losses: &[(&'static str, f32)]) -> f32 {
    losses.iter().zip(weights).map(|((_, value), weight)| weight * value).sum()
}

/// The initial loss scale; 1 with f32 gradients on a GPU, which need none.
pub(super) fn initial_loss_scale(config: &Config, backend: &Backend) -> f32 {
    match backend.target(config).gpu().map(|gpu| gpu.precision) {
        Some(Precision::Tf32 | Precision::Fp32) => 1.0,
        Some(Precision::Fp16) | None => config.solver.initial_loss_scale,
    }
}

pub(super) fn set_scale(state: &mut StateSet, scale: f32) {
    if let Some(t) = state.get_mut("loss_scale") {
        t.as_f32_mut()[0] = scale;
    }
}

#[cfg(test)]
mod tests;
