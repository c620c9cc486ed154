//! The trainer: one planned program a padded shape, sharing the state; one batch a step.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use configs::{Config, WarmupRule};
use graph::capture::CapturedGraph;
use graph::exec::device::Prepared;
use graph::plan::ALIGNMENT;
use graph::{CpuExecutor, DeviceExecutor, StateSet};
use kernels::TensorDesc;

use super::feed::Feed;
use super::steps::{CpuSteps, DeviceSteps, Steps, Submit};
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::metrics::StepRecord;
use crate::model::{
    BuiltProgram, ImageSize, Inject, MicroStep, ModelSpec, Param, training_layout, training_program,
};
use crate::runtime::{Backend, ModelState, RING};
use crate::weights::{LoadReport, fold, initial_state, load_weights};

/// Makes training steps.
#[derive(Debug)]
pub struct Trainer {
    steps: Box<dyn Steps>,
    state: ModelState,
    params: Vec<Param>,
    loaded: Option<LoadReport>,
    feed: Feed,
    micro_steps: u64,
    /// Batches whose steps were measured.
    batches: u64,
    /// Steps begun and not measured yet, oldest first.
    begun: VecDeque<Begun>,
    /// Why no further step could be begun: told when those before it have been.
    failed: Option<EngineError>,
    last_step: Instant,
}

/// What is known of a step when it begins.
#[derive(Debug)]
struct Begun {
    epoch: u64,
    images: usize,
    data_seconds: f64,
}

/// What training needs in memory, known before the first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Weights, momentum, counters.
    pub state_bytes: usize,
    /// Activations, gradients, scratch, and a device's input buffers. The CPU keeps an arena for
    /// each padded shape, a device one for all.
    pub arena_bytes: usize,
    /// Host memory that a device reaches: the loader's slots, which are copied to its input
    /// buffers, and its ring.
    pub pinned_bytes: usize,
}

impl MemoryNeed {
    /// All of it where the programs run.
    pub fn bytes(&self) -> usize {
        self.state_bytes + self.arena_bytes
    }
}

impl Trainer {
    /// Builds and plans the programs, initialises the state, and starts loading.
    ///
    /// # Errors
    /// A config that describes no program, weights that cannot be loaded, or a device that fails
    /// or has too little memory.
    pub fn new(config: &Config, data: &DataSet, backend: &Backend) -> Result<Self, EngineError> {
        refuse_unsupported(config)?;
        let mut built = build_all(config, data, backend, config.train.batch_size)?;
        let Some(first) = built.first_mut() else {
            return Err(EngineError::Usage("the training set holds no image".into()));
        };
        let params = std::mem::take(&mut first.params);
        let eps = config.model.backbone.norm_eps;
        let mut state = initial_state(&first.program, &params, config.train.seed, eps);
        set_scale(&mut state, config.solver.initial_loss_scale);
        let mut loaded = None;
        if let Some(path) = &config.model.backbone.weights {
            loaded = Some(load_weights(path.as_ref(), &params, &mut state)?);
            fold(&mut state, &params, eps);
        }
        let (steps, state) = make_steps(built, state, backend, config, data)?;
        let feed = Feed::new(config, data, backend)?;
        Ok(Self {
            steps,
            state,
            params,
            loaded,
            feed,
            micro_steps: config.train.micro_steps as u64,
            batches: 0,
            begun: VecDeque::new(),
            failed: None,
            last_step: Instant::now(),
        })
    }

    /// The record of the next step. Others are begun ahead of it, as the device allows, but none
    /// beyond step `until`: what is to happen after that step finds the state as it left it.
    ///
    /// # Errors
    /// An image that cannot be read, told after all steps before it; a fault of the device. No step
    /// can follow either.
    pub fn step(&mut self, until: u64) -> Result<StepRecord, EngineError> {
        let until = until.max(self.batches + u64::from(self.begun.is_empty()));
        while self.begun.len() < self.steps.depth() && self.failed.is_none() {
            let next = self.batches + self.begun.len() as u64;
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
        self.batches += 1;
        let now = Instant::now();
        let step_seconds = now.duration_since(self.last_step).as_secs_f64();
        self.last_step = now;
        Ok(StepRecord {
            step: self.batches,
            epoch: begun.epoch,
            loss: measured.losses.iter().map(|(_, value)| value).sum(),
            losses: measured.losses,
            lr: measured.lr,
            loss_scale: measured.loss_scale,
            grad_norm: measured.grad_norm,
            applied: measured.applied,
            images: begun.images,
            step_seconds,
            data_seconds: begun.data_seconds,
        })
    }

    /// Makes the next step on a device with each of its micro-steps given by `submit` in place of
    /// the graph's launch, and ends it: to look at it, or to time it. It is a step of training
    /// like any other.
    ///
    /// Panics while steps are in flight.
    ///
    /// # Errors
    /// As [`Self::step`]; [`EngineError::Usage`] on the CPU.
    pub fn step_by(&mut self, submit: &mut Submit<'_>) -> Result<StepRecord, EngineError> {
        assert!(self.begun.is_empty(), "steps are in flight");
        let begun = self.begin(self.batches, Some(submit))?;
        self.begun.push_back(begun);
        self.step(self.batches + 1)
    }

    /// Begins all micro-steps of a step, in a way of the caller's if there is one.
    fn begin(
        &mut self,
        step: u64,
        mut submit: Option<&mut Submit<'_>>,
    ) -> Result<Begun, EngineError> {
        let mut begun = Begun { epoch: 0, images: 0, data_seconds: 0.0 };
        for micro in step * self.micro_steps..(step + 1) * self.micro_steps {
            let batch = self.feed.next(micro)?;
            begun.epoch = batch.epoch;
            begun.images += batch.num_images;
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

    /// Steps begun and not measured yet.
    pub fn in_flight(&self) -> usize {
        self.begun.len()
    }

    /// Starts the clock of the next step anew, after something that is not part of it.
    pub fn restart_clock(&mut self) {
        self.last_step = Instant::now();
    }

    /// Batches an epoch.
    pub fn batches_per_epoch(&self) -> u64 {
        self.feed.batches_per_epoch()
    }

    /// Batches consumed, by steps that were measured.
    pub fn batches(&self) -> u64 {
        self.batches
    }

    /// Goes on after `batches` batches, with a state restored by the caller.
    pub fn resume_at(&mut self, batches: u64) {
        assert!(self.begun.is_empty(), "steps are in flight");
        self.batches = batches;
    }

    /// All state.
    ///
    /// Panics while steps are in flight: it would be neither the one nor the other's.
    pub fn state(&mut self) -> &mut ModelState {
        assert!(self.begun.is_empty(), "steps are in flight");
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

    /// The CPU's planned programs, one a padded shape, whose nodes are timed one by one; none on a
    /// device.
    pub fn cpu_executors(&mut self) -> &mut [CpuExecutor] {
        self.steps.cpu_executors()
    }

    /// A device's captured graphs, one a padded shape (with micro-steps, two); none on the CPU.
    pub fn graphs(&self) -> &[CapturedGraph] {
        self.steps.graphs()
    }

    /// What runs the programs on a device, one a padded shape (with micro-steps, two); none on the
    /// CPU.
    pub fn device_executor(&mut self) -> Option<&mut DeviceExecutor> {
        self.steps.device_executor()
    }

    /// What the run needs in memory.
    pub fn memory(&self) -> MemoryNeed {
        MemoryNeed {
            state_bytes: self.state.bytes(),
            arena_bytes: self.steps.bytes(),
            pinned_bytes: self.steps.pinned_bytes() + self.feed.pinned_bytes(),
        }
    }
}

/// The training programs of steps of `images` images: one a padded shape, and with micro-steps
/// another for the early ones of each.
fn build_all(
    config: &Config,
    data: &DataSet,
    backend: &Backend,
    images: usize,
) -> Result<Vec<BuiltProgram>, EngineError> {
    let parts: &[MicroStep] = match config.train.micro_steps {
        1 => &[MicroStep::Whole],
        _ => &[MicroStep::Last, MicroStep::Early],
    };
    let mut built = Vec::new();
    for micro in parts {
        for shape in &data.shapes {
            let spec = ModelSpec {
                config,
                num_classes: num_classes(config, data)?,
                images: images / config.train.micro_steps,
                padded: ImageSize { height: shape.height, width: shape.width },
                slot: data.slot_shape(),
                device: backend.kind(),
                micro: *micro,
                inject: Inject::default(),
            };
            built.push(training_program(&spec)?);
        }
    }
    Ok(built)
}

fn make_steps(
    built: Vec<BuiltProgram>,
    state: StateSet,
    backend: &Backend,
    config: &Config,
    data: &DataSet,
) -> Result<(Box<dyn Steps>, ModelState), EngineError> {
    let Backend::Device(device) = backend else {
        let programs = built.into_iter().map(|b| b.program).collect();
        let steps = CpuSteps::new(programs, data.shapes.len(), &state)?;
        return Ok((Box::new(steps), ModelState::host(state)));
    };
    let Some(layout) = built.first().and_then(|b| b.ring.clone()) else {
        panic!("a program for a device has a ring")
    };
    let prepared = built
        .into_iter()
        .map(|b| Ok(Prepared::new(Arc::new(b.program))?))
        .collect::<Result<Vec<_>, EngineError>>()?;
    fits(&prepared, device.memory().map_err(graph::GraphError::from)?.free, config, data, backend)?;
    let programs: Vec<_> = prepared.iter().map(|p| p.program.as_ref()).collect();
    let mut state = ModelState::on_device(state, device.clone(), &programs)?;
    let counts = (data.shapes.len(), config.train.micro_steps);
    let wanted = need(&prepared);
    let images = config.train.batch_size / config.train.micro_steps;
    let slot = training_layout(images, data.slot_shape())?;
    let steps = DeviceSteps::new(device.clone(), prepared, counts, layout, &slot, &mut state)?;
    assert_eq!(steps.bytes() + state.bytes(), wanted, "the need was counted wrongly");
    Ok((Box::new(steps), state))
}

/// Bytes that a device needs for these programs.
fn need(programs: &[Prepared]) -> usize {
    let arena = programs.iter().map(|p| p.plan.arena_bytes()).max().unwrap_or(0);
    let inputs = programs.iter().map(Prepared::input_bytes).max().unwrap_or(0);
    let states = programs.iter().flat_map(|p| p.program.states()).filter(|(_, t)| t.name != RING);
    let round = |desc: &TensorDesc| desc.cuda_bytes().next_multiple_of(ALIGNMENT);
    let states: BTreeMap<_, _> = states.map(|(_, t)| (&t.name, round(&t.desc))).collect();
    let state: usize = states.values().sum();
    arena + 3 * inputs + state
}

/// That the programs fit `free` bytes; if not, the error says which batch would.
fn fits(
    programs: &[Prepared],
    free: usize,
    config: &Config,
    data: &DataSet,
    backend: &Backend,
) -> Result<(), EngineError> {
    let wanted = need(programs);
    if wanted <= free {
        return Ok(());
    }
    let gib = |bytes: usize| bytes as f64 / (1u64 << 30) as f64;
    let group = config.train.images_per_group * config.train.micro_steps;
    let mut fitting = None;
    for images in (1..config.train.batch_size / group).rev().map(|groups| groups * group) {
        let smaller = build_all(config, data, backend, images)?;
        let smaller = smaller.into_iter().map(|b| Ok(Prepared::new(Arc::new(b.program))?));
        if need(&smaller.collect::<Result<Vec<_>, EngineError>>()?) <= free {
            fitting = Some(images);
            break;
        }
    }
    let advice = match fitting {
        Some(images) => format!("train.batch_size={images} would fit"),
        None => "no smaller one fits either; use more train.micro_steps or smaller images".into(),
    };
    Err(EngineError::Usage(format!(
        "a batch of {} images needs {:.2} GiB on {}, which has {:.2} GiB free: {advice}",
        config.train.batch_size,
        gib(wanted),
        backend.describe(),
        gib(free),
    )))
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

#[cfg(test)]
mod tests;
