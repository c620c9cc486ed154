//! The memory that training needs, known before the first step, and the largest batch that fits.

use std::collections::BTreeMap;
use std::sync::Arc;

use configs::Config;
use device::Target;
use graph::exec::device::Prepared;
use graph::plan::ALIGNMENT;
use kernels::TensorDesc;

use super::programs::TrainingPrograms;
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::model::BuiltProgram;
use crate::model::RING;
use crate::runtime::{Backend, Machine, gib, planned_bytes};

/// The memory that training needs, known before the first step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Weights, momentum, counters.
    pub state_bytes: usize,
    /// Activations, gradients, scratch, and a device's input buffers. The CPU has one arena per
    /// padded shape, a device one for all.
    pub arena_bytes: usize,
    /// Host memory that a device accesses: the source of input copies, and the ring.
    pub pinned_bytes: usize,
}

impl MemoryNeed {
    /// The total where the programs run.
    pub fn bytes(&self) -> usize {
        self.state_bytes + self.arena_bytes
    }
}

/// Schedules and plans programs for a target.
pub(super) fn prepare(
    built: Vec<BuiltProgram>,
    target: &Target,
) -> Result<Vec<Prepared>, EngineError> {
    let prepare = |b: BuiltProgram| Ok(Prepared::new(Arc::new(b.program), target.clone())?);
    built.into_iter().map(prepare).collect()
}

/// Bytes that a device needs for these programs.
pub(super) fn needed_bytes(programs: &[Prepared]) -> usize {
    let arena = programs.iter().map(|p| p.plan.arena_bytes()).max().unwrap_or(0);
    let inputs = programs.iter().map(Prepared::input_bytes).max().unwrap_or(0);
    let states = programs.iter().flat_map(|p| p.program.states()).filter(|(_, t)| t.name != RING);
    let round = |desc: &TensorDesc| desc.cuda_bytes().next_multiple_of(ALIGNMENT);
    let states: BTreeMap<_, _> = states.map(|(_, t)| (&t.name, round(&t.desc))).collect();
    let state: usize = states.values().sum();
    arena + 3 * inputs + state
}

/// Bytes that the CPU needs for these programs: each has its own arena and inputs; all share the
/// state.
fn cpu_bytes(programs: &[BuiltProgram]) -> Result<usize, EngineError> {
    let mut states = BTreeMap::new();
    let mut bytes = 0;
    for BuiltProgram { program, .. } in programs {
        bytes += planned_bytes(program)?;
        states.extend(program.states().map(|(_, t)| (&t.name, t.desc.cpu_bytes())));
    }
    Ok(bytes + states.values().sum::<usize>())
}

/// Bytes that a batch of `images` images needs in training, where the programs run.
fn bytes_of_batch(
    images: usize,
    config: &Config,
    data: &DataSet,
    backend: &Backend,
) -> Result<usize, EngineError> {
    let target = backend.target();
    let programs = TrainingPrograms::build(config, data, &target, images)?.built;
    match backend {
        Backend::Cpu => cpu_bytes(&programs),
        Backend::Device(_) => Ok(needed_bytes(&prepare(programs, &target)?)),
    }
}

/// Checks that the programs fit the free memory of this machine; allocates nothing.
///
/// # Errors
/// [`EngineError::Usage`] with the largest batch that would fit.
pub(super) fn check_fit_on_cpu(
    programs: &[BuiltProgram],
    config: &Config,
    data: &DataSet,
) -> Result<(), EngineError> {
    let Some((_, free)) = Machine::here().memory else { return Ok(()) };
    check_fit(cpu_bytes(programs)?, free as usize, config, data, &Backend::Cpu)
}

/// Checks that `needed` bytes fit `free` bytes.
///
/// # Errors
/// [`EngineError::Usage`] with the largest batch that would fit.
pub(super) fn check_fit(
    needed: usize,
    free: usize,
    config: &Config,
    data: &DataSet,
    backend: &Backend,
) -> Result<(), EngineError> {
    if needed <= free {
        return Ok(());
    }
    let advice = match largest_batch(free, config, data, backend)? {
        Some(images) => format!("train.batch_size={images} would fit"),
        None => "no smaller one fits either; use more train.micro_steps, smaller images or a \
                 smaller model"
            .into(),
    };
    Err(EngineError::Usage(format!(
        "a batch of {} images needs {:.2} GiB on {}, which has {:.2} GiB free: {advice}",
        config.train.batch_size,
        gib(needed),
        backend.describe(),
        gib(free),
    )))
}

/// The largest batch below the config's that fits `free` bytes. A larger batch never needs less.
fn largest_batch(
    free: usize,
    config: &Config,
    data: &DataSet,
    backend: &Backend,
) -> Result<Option<usize>, EngineError> {
    let group = config.train.images_per_group * config.train.micro_steps;
    let (mut fits, mut too_large) = (0, config.train.batch_size / group);
    while too_large - fits > 1 {
        let middle = fits + (too_large - fits) / 2;
        match bytes_of_batch(middle * group, config, data, backend)? <= free {
            true => fits = middle,
            false => too_large = middle,
        }
    }
    Ok((fits > 0).then_some(fits * group))
}
