//! Runs the detection pass on images, with one planned program per padded shape.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::config::Config;
use dali::order::PaddedShape;
use device::{DevicePtr, Target};
use graph::exec::device::Prepared;
use graph::exec::{Look, Seen};
use graph::finite::FirstNonFinite;
use graph::{CpuExecutor, NodeId, Program};
use kernels::view::View;

use super::image::Image;
use super::postprocess::{ImageDetections, Outputs, Source};
use crate::error::EngineError;
use crate::model::{ModelSpec, Part, SlotShape, detection_layout, detection_program};
use crate::runtime::{Backend, Executor, Inputs, ModelState, Slot, copy_inputs, output_bytes};

/// Seconds spent in each stage of running one batch.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Stages {
    /// Writing images and sizes into the slot, from which the program reads them (on a device,
    /// after a copy).
    pub fill: f64,
    /// Running the program until the host knows that it has completed: resizing, network, boxes,
    /// mask probabilities. On a device this includes the copy of the inputs.
    pub program: f64,
    /// Reading the results back to the host.
    pub read: f64,
    /// Scaling boxes to the images' sizes; pasting, thresholding and run-length encoding masks.
    pub paste: f64,
}

/// The model's outputs for a batch, as read from the device: boxes in network pixels, and for each
/// box the mask probabilities, 28x28 in most models.
#[derive(Debug)]
pub(super) struct RawDetections {
    outputs: Outputs,
    sources: Vec<Source>,
}

impl RawDetections {
    /// The objects of each image: boxes in image pixels, and run-length encoded masks.
    pub(super) fn objects(&self, config: &Config) -> Vec<ImageDetections> {
        self.outputs.split(config, &self.sources)
    }
}

/// Runs the detection pass.
#[derive(Debug)]
pub struct Detector {
    config: Config,
    shapes: Vec<PaddedShape>,
    classes: usize,
    batch_size: usize,
    backend: Backend,
    planned: Vec<Option<Planned>>,
    interrupted: Arc<AtomicBool>,
}

/// The program of a padded shape, and its input slot.
#[derive(Debug)]
struct Planned {
    executor: Executor,
    slot: Slot,
}

impl Detector {
    /// A detector for batches of `batch_size` images with these padded shapes. An image may have
    /// `pixels` bytes of source pixels; a larger image triggers a new plan. On a device all
    /// programs are planned here, so that a lack of memory is detected before training; on the CPU
    /// only the first is planned here, the others on first use.
    ///
    /// # Errors
    /// A config that describes no valid program, the state of a different model, or a device error.
    pub fn new(
        config: &Config,
        shapes: &[PaddedShape],
        classes: usize,
        (batch_size, pixels): (usize, usize),
        backend: &Backend,
        state: &mut ModelState,
    ) -> Result<Self, EngineError> {
        let mut detector = Self {
            config: config.clone(),
            shapes: shapes.to_vec(),
            classes,
            batch_size: batch_size.max(1),
            backend: backend.clone(),
            planned: shapes.iter().map(|_| None).collect(),
            interrupted: Arc::default(),
        };
        let now = match backend {
            Backend::Cpu => shapes.len().min(1),
            Backend::Device(_) => shapes.len(),
        };
        for (shape, padded) in shapes[..now].iter().enumerate() {
            detector.plan(shape, room(pixels, padded), state)?;
        }
        Ok(detector)
    }

    /// Runs end early with [`EngineError::Interrupted`] once this flag is set.
    pub fn interrupt_by(&mut self, flag: Arc<AtomicBool>) {
        self.interrupted = flag;
    }

    /// Returns [`EngineError::Interrupted`] if the flag given to [`Self::interrupt_by`] is set.
    pub(super) fn check_interrupt(&self) -> Result<(), EngineError> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(EngineError::Interrupted);
        }
        Ok(())
    }

    /// Images per run.
    pub fn batch_size(&self) -> usize {
        self.batch_size
    }

    /// Detects objects in up to `batch_size` images that fit padded shape `shape`.
    ///
    /// # Errors
    /// A config that describes no valid program; [`EngineError::Interrupted`].
    pub fn run(
        &mut self,
        shape: usize,
        images: &[Image],
        state: &mut ModelState,
    ) -> Result<Vec<ImageDetections>, EngineError> {
        Ok(self.run_timed(shape, images, state)?.0)
    }

    /// Like [`Self::run`], but also returns the time of each stage. The times exclude planning,
    /// which happens before the first run of a shape and again for larger source images.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub fn run_timed(
        &mut self,
        shape: usize,
        images: &[Image],
        state: &mut ModelState,
    ) -> Result<(Vec<ImageDetections>, Stages), EngineError> {
        let (raw, mut stages) = self.run_raw(shape, images, None, state)?;
        let started = Instant::now();
        let found = raw.objects(&self.config);
        stages.paste = started.elapsed().as_secs_f64();
        Ok((found, stages))
    }

    /// Runs the model on a batch, without pasting masks. On a device, a copy of the inputs stays in
    /// the memory `keep`, which has at least [`Self::buffer_bytes`] bytes.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub(super) fn run_raw(
        &mut self,
        shape: usize,
        images: &[Image],
        keep: Option<DevicePtr>,
        state: &mut ModelState,
    ) -> Result<(RawDetections, Stages), EngineError> {
        assert!(images.len() <= self.batch_size, "{} images in a batch", images.len());
        let pixels = images.iter().map(|i| i.rgb.len()).max().unwrap_or(0);
        self.check_interrupt()?;
        self.plan(shape, pixels, state)?;
        let Some(Planned { executor, slot }) = &mut self.planned[shape] else {
            unreachable!("planned above")
        };
        let mut last = Instant::now();
        let mut lap = || {
            let started = std::mem::replace(&mut last, Instant::now());
            last.duration_since(started).as_secs_f64()
        };
        let sources: Vec<Source> = images.iter().map(Source::from).collect();
        fill(slot, &self.config, images, &sources)?;
        let fill = lap();
        executor.run(Inputs::Slot { slot, keep }, state, &self.interrupted)?;
        let program = lap();
        let outputs = Outputs::read(&self.config, executor)?;
        let raw = RawDetections { outputs, sources };
        Ok((raw, Stages { fill, program, read: lap(), paste: 0.0 }))
    }

    /// Like [`Self::run_raw`], for a batch whose inputs were kept on the device at `kept`.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub(super) fn run_kept(
        &mut self,
        shape: usize,
        sources: Vec<Source>,
        kept: DevicePtr,
        state: &mut ModelState,
    ) -> Result<RawDetections, EngineError> {
        self.check_interrupt()?;
        let Some(Planned { executor, .. }) = &mut self.planned[shape] else {
            unreachable!("it ran on this batch before")
        };
        executor.run(Inputs::Kept(kept), state, &self.interrupted)?;
        Ok(RawDetections { outputs: Outputs::read(&self.config, executor)?, sources })
    }

    /// Runs each program of a device once on an empty batch, so that its code is loaded; does
    /// nothing on the CPU.
    ///
    /// # Errors
    /// Device errors.
    pub(super) fn warm_up(&mut self, state: &mut ModelState) -> Result<(), EngineError> {
        for Planned { executor, slot } in self.planned.iter_mut().flatten() {
            if let Executor::Device(_) = executor {
                slot.clear();
                executor.run(Inputs::Slot { slot, keep: None }, state, &self.interrupted)?;
            }
        }
        Ok(())
    }

    /// The config.
    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of a shape's input slot, including padding between arrays.
    pub(super) fn buffer_bytes(&self, shape: usize) -> usize {
        let slot = self.planned[shape].as_ref().map(|planned| &planned.slot);
        slot.map_or(0, |slot| slot.memory().as_ref().len())
    }

    /// Bytes of a batch's inputs, without padding between arrays.
    pub fn input_bytes(&self, shape: usize) -> usize {
        let slot = self.planned[shape].as_ref().map(|planned| &planned.slot);
        slot.map_or(0, |slot| slot.arrays().map(|(_, bytes)| bytes.len()).sum())
    }

    /// A warning if nothing was found in an image because the model computes non-finite values. To
    /// find these values, runs the model again on the CPU in f32, which takes several times as
    /// long.
    ///
    /// # Errors
    /// As for [`Self::run`].
    pub fn why_nothing(
        &self,
        shape: usize,
        image: &Image,
        state: &mut ModelState,
    ) -> Result<Option<String>, EngineError> {
        self.check_interrupt()?;
        let spec = self.spec(shape, 1, image.rgb.len(), Target::Cpu);
        let program = Arc::new(detection_program(&spec)?.program);
        let mut slot = Backend::Cpu.slot(&Arc::new(detection_layout(1, spec.slot)?))?;
        fill(&mut slot, &self.config, std::slice::from_ref(image), &[image.into()])?;
        let arena = state.cpu_arena().clone();
        let mut state = state.fetch()?.clone();
        let prepared = Prepared::new(program, Target::Cpu)?;
        let mut executor = CpuExecutor::in_arena(prepared, &state, &arena)?;
        copy_inputs(&mut executor, &slot)?;
        let mut read = Read::default();
        rayon::scope(|_| executor.run_watched(&mut state, &mut read));
        Ok(read.0.found().map(|first| {
            format!(
                "warning: nothing was found, because the model computes values that are not \
                 finite: `{}`, {} of {} values, the first is {}; its weights are unusable",
                first.tensor, first.count, first.len, first.value
            )
        }))
    }

    fn spec(&self, shape: usize, images: usize, pixels: usize, target: Target) -> ModelSpec<'_> {
        spec(&self.config, self.shapes[shape], self.classes, (images, pixels), target)
    }

    /// Plans a shape's program, or replans it for larger source images.
    fn plan(
        &mut self,
        shape: usize,
        pixels: usize,
        state: &mut ModelState,
    ) -> Result<(), EngineError> {
        if let Some(Planned { slot, .. }) = &self.planned[shape]
            && slot.view::<u8>("pixels")?.len() >= self.batch_size * pixels
        {
            return Ok(());
        }
        let target = self.backend.target(&self.config);
        let spec = self.spec(shape, self.batch_size, pixels, target);
        let program = detection_program(&spec)?.program;
        let layout = Arc::new(detection_layout(spec.images, spec.slot)?);
        // Frees the memory of the previous, smaller plan first.
        self.planned[shape] = None;
        let executor = Executor::new(program, &layout, &self.backend, state)?;
        let slot = self.backend.slot(&layout)?;
        self.planned[shape] = Some(Planned { executor, slot });
        Ok(())
    }
}

/// Memory that the detection passes on a data set need in addition to the state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DetectionMemory {
    /// Size of the largest arena: the programs share it, as only one runs at a time.
    pub arena_bytes: usize,
    /// Input buffers of all padded shapes, on the CPU also output buffers.
    pub input_bytes: usize,
}

impl DetectionMemory {
    /// Adds the memory of additional passes of the evaluation.
    pub(crate) fn add(&mut self, other: Self) {
        self.arena_bytes = self.arena_bytes.max(other.arena_bytes);
        self.input_bytes += other.input_bytes;
    }

    /// Computes the memory of a [`Detector`] with these arguments, without allocating it.
    ///
    /// # Errors
    /// A config that describes no valid program.
    pub fn plan(
        config: &Config,
        shapes: &[PaddedShape],
        classes: usize,
        (batch_size, pixels): (usize, usize),
        backend: &Backend,
    ) -> Result<Self, EngineError> {
        let mut memory = Self::default();
        for padded in shapes {
            let (target, size) =
                (backend.target(config), (batch_size.max(1), room(pixels, padded)));
            let spec = spec(config, *padded, classes, size, target.clone());
            let prepared = Prepared::new(Arc::new(detection_program(&spec)?.program), target)?;
            memory.arena_bytes = memory.arena_bytes.max(prepared.plan.arena_bytes());
            memory.input_bytes += prepared.input_places() * prepared.input_bytes();
            if prepared.target.is_cpu() {
                memory.input_bytes += output_bytes(&prepared);
            }
        }
        Ok(memory)
    }
}

/// Specification of the detection pass on `images` images of a padded shape, each with up to
/// `pixels` bytes of source pixels.
fn spec(
    config: &Config,
    padded: PaddedShape,
    num_classes: usize,
    (images, pixels): (usize, usize),
    target: Target,
) -> ModelSpec<'_> {
    ModelSpec {
        config,
        num_classes,
        images,
        padded: padded.into(),
        slot: SlotShape { pixels, objects: 1, parts: 1, coords: 1, runs: 1 },
        target,
        part: Part::whole(),
        observe: false,
    }
}

/// Number of bytes to reserve for an image's source pixels: at least those of its padded shape.
fn room(pixels: usize, padded: &PaddedShape) -> usize {
    pixels.max(3 * padded.area())
}

/// Finds the first non-finite value in the inputs of nodes. Outputs are ignored, since an output
/// that nothing reads is not written.
#[derive(Debug, Default)]
struct Read(FirstNonFinite);

impl Look for Read {
    fn wants(&mut self, program: &Program, node: NodeId) -> bool {
        self.0.wants(program, node)
    }

    fn see(&mut self, program: &Program, seen: Seen) {
        self.0.see(program, Seen { outputs: vec![], after: vec![], ..seen });
    }
}

/// Writes images, views and network sizes into the slot.
fn fill(
    slot: &mut Slot,
    config: &Config,
    images: &[Image],
    sources: &[Source],
) -> Result<(), EngineError> {
    slot.clear();
    slot.view_mut("num_images")?[0] = images.len() as i32;
    for ((image, source), mut rows) in images.iter().zip(sources).zip(slot.images_mut()) {
        rows.row_mut("pixels")?[..image.rgb.len()].copy_from_slice(&image.rgb);
        let (height, width) = source.network_size(config);
        let network = [height as i32, width as i32];
        let view = View::whole([image.height as i32, image.width as i32], network);
        rows.row_mut("views")?.copy_from_slice(view.row());
        rows.row_mut("network_sizes")?.copy_from_slice(&network);
    }
    Ok(())
}
