//! The memory that training needs, known before the first step, and the largest batch that fits.

use std::collections::BTreeMap;
use std::sync::Arc;

use configs::{Config, Train};
use device::Target;
use graph::exec::device::Prepared;
use graph::plan::ALIGNMENT;

use super::programs::TrainingPrograms;
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::model::{BuiltProgram, Division, RING};
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
    let round = |p: &Prepared, desc| p.target.bytes(desc).next_multiple_of(ALIGNMENT);
    let states = programs.iter().flat_map(|p| p.program.states().map(move |(_, t)| (p, t)));
    let states = states.filter(|(_, t)| t.name != RING);
    let states: BTreeMap<_, _> = states.map(|(p, t)| (&t.name, round(p, &t.desc))).collect();
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

/// Bytes that a rank needs in training with this config, where the programs run.
fn bytes_of(
    config: &Config,
    data: &DataSet,
    backend: &Backend,
    division: &Division,
) -> Result<usize, EngineError> {
    let target = backend.target(config);
    let Division { ranks, exchange, .. } = division;
    let smaller = Division::new(&config.train, &target, *ranks, exchange.clone())?;
    let division = if division.reduces_on_device() { smaller.reducing() } else { smaller };
    let programs = TrainingPrograms::build(config, data, &target, &division)?.built;
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
    division: &Division,
) -> Result<(), EngineError> {
    let Some((_, free)) = Machine::here().memory else { return Ok(()) };
    let share = free as usize / division.local_ranks;
    check_fit(cpu_bytes(programs)?, share, config, data, &Backend::Cpu, division)
}

/// Checks that `needed` bytes fit `free` bytes.
///
/// # Errors
/// [`EngineError::Usage`] with what would fit.
pub(super) fn check_fit(
    needed: usize,
    free: usize,
    config: &Config,
    data: &DataSet,
    backend: &Backend,
    division: &Division,
) -> Result<(), EngineError> {
    if needed <= free {
        return Ok(());
    }
    let advice = advice(free, config, data, backend, division)?;
    let what = match division.is_weighted() {
        false => format!("a batch of {}", config.train.batch_size),
        true => format!("a pass over {} of the {}", division.images, config.train.batch_size),
    };
    let shared = match division.local_ranks {
        1 => String::new(),
        ranks => format!(" for each of its {ranks} ranks"),
    };
    Err(EngineError::Usage(format!(
        "{what} images needs {:.2} GiB on {}, which has {:.2} GiB free{shared}: {advice}",
        gib(needed),
        backend.describe(),
        gib(free),
    )))
}

/// What would fit: a smaller batch, or on the CPU, which runs group by group, smaller groups.
fn advice(
    free: usize,
    config: &Config,
    data: &DataSet,
    backend: &Backend,
    division: &Division,
) -> Result<String, EngineError> {
    let train = &config.train;
    let unit = train.images_per_group * train.micro_steps * division.ranks.count;
    let with = |change: &dyn Fn(&mut Train)| {
        let mut config = config.clone();
        change(&mut config.train);
        config
    };
    let smaller = |n: usize| match backend {
        Backend::Cpu => with(&|train| train.images_per_group = n),
        Backend::Device(_) => with(&|train| train.batch_size = n),
    };
    let sizes: Vec<usize> = match backend {
        Backend::Cpu => {
            let groups =
                (1..train.images_per_group).filter(|n| train.images_per_group.is_multiple_of(*n));
            groups.collect()
        }
        Backend::Device(_) => (1..train.batch_size / unit).map(|n| n * unit).collect(),
    };
    let key = match backend {
        Backend::Cpu => "train.images_per_group",
        Backend::Device(_) => "train.batch_size",
    };
    let fits = |n: usize| Ok(bytes_of(&smaller(n), data, backend, division)? <= free);
    Ok(match largest(&sizes, &fits)? {
        Some(size) => format!("{key}={size} would fit"),
        None => "no smaller one fits either; use more train.micro_steps on a GPU, smaller images \
                 or a smaller model"
            .into(),
    })
}

/// The largest of ascending sizes that fits. A larger one never needs less.
fn largest(
    sizes: &[usize],
    fits: &dyn Fn(usize) -> Result<bool, EngineError>,
) -> Result<Option<usize>, EngineError> {
    let (mut below, mut above) = (0, sizes.len());
    while below < above {
        let middle = below + (above - below) / 2;
        match fits(sizes[middle])? {
            true => below = middle + 1,
            false => above = middle,
        }
    }
    Ok(below.checked_sub(1).map(|i| sizes[i]))
}
