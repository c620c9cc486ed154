//! The trainer: one planned program per padded shape, with shared state; one batch per step.

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
    /// Memory that the evaluations of the run take.
    evaluations: DetectionMemory,
    /// Bytes used while a checkpoint is written.
    checkpoint_bytes: usize,
    kind: ModelKind,
    /// One weight per loss, in the order of the records.
    loss_weights: Vec<f32>,
    /// Set when this rank is requested to stop, to inform the others.
    stop: Arc<AtomicBool>,
    /// True if this rank itself decided to stop, and asks the others to stop too.
    asks_to_stop: bool,
    /// The step after which all ranks stop, once they have agreed.
    stop_after: Option<u64>,
    /// Steps measured.
    steps_done: u64,
    /// Steps in flight, oldest first.
    begun: VecDeque<StepStart>,
    /// Why no further step could begin: reported after the earlier steps.
    failed: Option<EngineError>,
    last_step: Instant,
}

/// Information about a step that is known when it begins.
#[derive(Debug)]
struct StepStart {
    epoch: u64,
    images: usize,
    data_seconds: f64,
}

impl Trainer {
    /// Builds and plans the programs, initializes the state, and starts loading.
    ///
    /// # Errors
    /// A config that describes no valid program, weights that cannot be loaded, or a device that
    /// fails or has too little memory.
    pub fn new(config: &Config, data: &DataSet, backend: &Backend) -> Result<Self, EngineError> {
        let division = Division::single(&config.train, &backend.target(config));
        Self::of_rank(config, data, backend, division, Arc::default())
    }

    /// The trainer of one of several ranks. A step agrees with the others on whether any was
    /// requested to `stop`.
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

    /// [`Self::of_rank`] with memory for evaluations of the second data set.
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

    /// The record of the next step. More steps are submitted ahead of it, as the device allows, but
    /// none beyond step `until`: actions after that step see exactly its state.
    ///
    /// # Errors
    /// An image that cannot be read, reported after all earlier steps, or a device error. In both
    /// cases no step can follow.
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
            // Other ranks may have already begun that many more steps.
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

    /// Runs the next step on a device to completion, with each micro-step submitted by `submit`
    /// instead of the graph launch, to inspect or time it. It is a training step like any other.
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

    /// Runs every program once on an empty batch, so that nothing is loaded during the first step;
    /// then restores the state. The CPU has nothing to load.
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

    /// Starts all passes of a step, through the caller's `submit` if there is one.
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

    /// The batches of all ranks of step `step`, counted from 0, again: `visit` gets the batches of
    /// each pass.
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

    /// Passes of this rank in a step.
    pub fn passes(&self) -> usize {
        self.division.passes
    }

    /// Requests all ranks to stop, with the next step that begins.
    pub(super) fn ask_to_stop(&mut self) {
        self.asks_to_stop = true;
    }

    /// The step after which all ranks stop, since one of them was requested to; `None` if none was.
    pub fn stop_after(&self) -> Option<u64> {
        self.stop_after
    }

    /// Steps in flight.
    pub fn in_flight(&self) -> usize {
        self.begun.len()
    }

    /// Restarts the clock of the next step, after work that is not part of it.
    pub fn restart_clock(&mut self) {
        self.last_step = Instant::now();
    }

    /// Batches ready for a step.
    pub(super) fn batches_ready(&self) -> usize {
        self.feed.ready()
    }

    /// Batches per epoch.
    pub fn batches_per_epoch(&self) -> u64 {
        self.feed.batches_per_epoch()
    }

    /// Images per epoch, including the copies of repeated images.
    pub fn images_per_epoch(&self) -> usize {
        self.feed.images_per_epoch()
    }

    /// Steps done, including those before a resumption.
    pub fn steps_done(&self) -> u64 {
        self.steps_done
    }

    /// Continues after `steps_done` steps, with a state restored by the caller.
    pub fn resume_at(&mut self, steps_done: u64) {
        assert!(self.begun.is_empty(), "steps are in flight");
        self.steps_done = steps_done;
    }

    /// All state.
    ///
    /// Panics while steps are in flight: the state would be mid-update.
    pub fn state(&mut self) -> &mut ModelState {
        assert!(self.begun.is_empty(), "steps are in flight");
        &mut self.state
    }

    /// The statistics of a rule after the last step, whose loss scale was `loss_scale`.
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

    /// Names of the parameters that are trained, in their order.
    pub fn trained(&self) -> Vec<String> {
        let trained = self.params.iter().filter(|param| param.trained.is_some());
        trained.map(|param| param.name.clone()).collect()
    }

    /// The report of loading the weights selected in the config, by tensor.
    pub fn loaded(&self) -> Option<&LoadReport> {
        self.loaded.as_ref()
    }

    /// The CPU's planned programs, one per padded shape, whose nodes can be timed one by one; empty
    /// on a device.
    pub fn cpu_executors(&mut self) -> &mut [CpuExecutor] {
        self.steps.cpu_executors()
    }

    /// A device's captured graphs, one per padded shape (with micro-steps, two); empty on the CPU.
    pub fn graphs(&self) -> &[CapturedGraph] {
        self.steps.graphs()
    }

    /// The device's executor, with one program per padded shape (with micro-steps, two); `None` on
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
    /// Only on a device.
    ring: Option<RingLayout>,
}

impl Planned {
    /// Creates the object that runs the programs, with the state on the CPU or device, in an arena
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

/// The loss that training minimizes. A weight of 1 does not change the value.
fn weighted_sum(weights: &[f32], losses: &[(&'static str, f32)]) -> f32 {
    losses.iter().zip(weights).map(|((_, value), weight)| weight * value).sum()
}

/// With f32 gradients on a GPU, no scale is needed.
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
