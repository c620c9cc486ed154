//! Before the first step, computes the memory that training needs, and the largest batch size that
//! fits.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::config::{Config, Train};
use device::Target;
use graph::exec::device::Prepared;
use graph::plan::ALIGNMENT;

use super::programs::TrainingPrograms;
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::evaluate::DetectionMemory;
use crate::model::{BuiltProgram, Division, RING, is_transient};
use crate::runtime::{Backend, Machine, gib};

/// Minimum number of bytes kept free on a device, for code, captured graphs and NCCL.
const KEPT_FREE: usize = 1 << 30;
/// At least 1 / `KEPT_PART` of a device's memory is kept free.
const KEPT_PART: usize = 50;

/// The memory that training needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryNeed {
    /// Weights, momentum, counters; on the CPU also the memory for writing a checkpoint.
    pub state_bytes: usize,
    /// The shared arena (activations, gradients and scratch of one program at a time), and the
    /// input buffers of all programs, including evaluations.
    pub arena_bytes: usize,
    /// Host memory that a device accesses: input slots, and the ring.
    pub pinned_bytes: usize,
}

impl MemoryNeed {
    /// The total on the CPU or device.
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

/// Bytes of an arena in which each of these programs can run, one at a time.
pub(super) fn arena_bytes(programs: &[Prepared]) -> usize {
    programs.iter().map(|p| p.plan.arena_bytes()).max().unwrap_or(0)
}

/// Bytes that these programs and their evaluations need on the CPU or device.
pub(super) fn needed_bytes(programs: &[Prepared], evaluations: DetectionMemory) -> usize {
    let inputs = programs.iter().map(Prepared::input_bytes);
    // On the CPU each program has its own input buffers; on a device all programs share them.
    let inputs: usize = match programs.first() {
        Some(first) if !first.target.is_cpu() => first.input_places() * inputs.max().unwrap_or(0),
        _ => inputs.sum(),
    };
    let round = |p: &Prepared, desc| p.target.bytes(desc).next_multiple_of(ALIGNMENT);
    let states = programs.iter().flat_map(|p| p.program.states().map(move |(_, t)| (p, t)));
    let states = states.filter(|(_, t)| t.name != RING);
    let states: BTreeMap<_, _> = states.map(|(p, t)| (&t.name, round(p, &t.desc))).collect();
    let state: usize = states.values().sum();
    let arena = arena_bytes(programs).max(evaluations.arena_bytes);
    arena + inputs + state + evaluations.input_bytes + programs.first().map_or(0, checkpoint_bytes)
}

/// Bytes used while writing a checkpoint of a CPU program that updates state: a copy of the state,
/// and the contents of the largest file; 0 for other programs.
pub(crate) fn checkpoint_bytes(prepared: &Prepared) -> usize {
    let program = &prepared.program;
    if !prepared.target.is_cpu() || program.nodes().iter().all(|node| node.updates.is_empty()) {
        return 0;
    }
    let states = program.states().filter(|(_, tensor)| !is_transient(&tensor.name));
    2 * states.map(|(_, tensor)| tensor.desc.cpu_bytes()).sum::<usize>()
}

/// A run whose memory is computed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Counted<'a> {
    pub(super) config: &'a Config,
    pub(super) data: &'a DataSet,
    pub(super) backend: &'a Backend,
    pub(super) division: &'a Division,
    pub(super) evaluations: DetectionMemory,
}

/// Free bytes on the CPU or device, and the part of them to be kept free.
#[derive(Debug, Clone, Copy)]
struct Free {
    bytes: usize,
    kept: usize,
}

impl Counted<'_> {
    /// Checks that planned programs and evaluations fit the free memory; allocates nothing.
    ///
    /// # Errors
    /// [`EngineError::Usage`] with the largest batch size that fits; a device error.
    pub(super) fn check_fit(&self, programs: &[Prepared]) -> Result<(), EngineError> {
        let needed = needed_bytes(programs, self.evaluations);
        let Some(Free { bytes, kept }) = self.free()? else { return Ok(()) };
        let usable = bytes.saturating_sub(kept);
        if needed <= usable {
            return Ok(());
        }
        let (batch, division) = (self.config.train.batch_size, self.division);
        let fits_alone = needed_bytes(programs, DetectionMemory::default()) <= usable;
        let of_steps = match division.is_weighted() {
            false => format!("a batch of {batch} images"),
            true => format!("a pass over {} of the {batch} images", division.images),
        };
        let (what, advice) = match self.advice(usable)? {
            Some(advice) => (of_steps, advice),
            None if fits_alone => (
                "a batch of detections".to_string(),
                format!(
                    "lower eval.batch_size = {}, model.detections.per_image = {} or \
                     input.max_size = {}",
                    self.config.eval.batch_size,
                    self.config.model.detections.per_image,
                    self.config.input.max_size
                ),
            ),
            None => (
                of_steps,
                "no smaller batch fits either; use smaller images (input.min_size, \
                 input.max_size) or a smaller model"
                    .to_string(),
            ),
        };
        let shared = match (self.backend, division.local_ranks) {
            (Backend::Cpu, ranks) if ranks > 1 => format!(" for each of its {ranks} ranks"),
            (Backend::Cpu, _) => String::new(),
            (Backend::Device(_), _) => {
                format!(" and keeps {:.2} GiB of it for code and graphs", gib(kept))
            }
        };
        Err(EngineError::Usage(format!(
            "{what} needs {:.2} GiB on {}, which has {:.2} GiB free{shared}: {advice}",
            gib(needed),
            self.backend.describe(),
            gib(bytes),
        )))
    }

    /// The free memory; `None` if the system does not report it.
    fn free(&self) -> Result<Option<Free>, EngineError> {
        let Backend::Device(device) = self.backend else {
            let memory = Machine::here().memory;
            let share = |(_, free)| free as usize / self.division.local_ranks;
            return Ok(memory.map(|memory| Free { bytes: share(memory), kept: 0 }));
        };
        let memory = device.memory().map_err(graph::GraphError::from)?;
        let kept = KEPT_FREE.max(memory.total / KEPT_PART);
        Ok(Some(Free { bytes: memory.free, kept }))
    }

    /// Bytes that a rank needs if `change` is applied to its config.
    fn bytes_with(&self, change: impl Fn(&mut Train)) -> Result<usize, EngineError> {
        let mut config = self.config.clone();
        change(&mut config.train);
        let target = self.backend.target(&config);
        let smaller = Division::new(&config.train, &target, self.division.ranks)?;
        let reduces = self.division.reduces_on_device();
        let division = if reduces { smaller.reducing() } else { smaller };
        let programs = TrainingPrograms::build(&config, self.data, &target, &division)?.built;
        Ok(needed_bytes(&prepare(programs, &target)?, self.evaluations))
    }

    /// Advice on a size that fits into `free` bytes: on the CPU, which runs group by group, first
    /// smaller groups; then smaller batches, down to single images.
    fn advice(&self, free: usize) -> Result<Option<String>, EngineError> {
        let train = &self.config.train;
        let (batch, group) = (train.batch_size, train.images_per_group);
        if let Backend::Cpu = self.backend {
            // Each size is checked, as a step with more groups also needs more state for their
            // sums.
            for smaller in (1..group).rev().filter(|n| group.is_multiple_of(*n)) {
                if self.bytes_with(|train| train.images_per_group = smaller)? <= free {
                    return Ok(Some(format!("train.images_per_group={smaller} would fit")));
                }
            }
        }
        let passes = if let Backend::Cpu = self.backend { 1 } else { train.micro_steps };
        for group in if group > 1 { vec![group, 1] } else { vec![1] } {
            let unit = group * passes * self.division.ranks.count;
            let sizes: Vec<usize> = (1..batch.div_ceil(unit)).map(|n| n * unit).collect();
            let fits = |size: usize| {
                let change = |train: &mut Train| {
                    (train.batch_size, train.images_per_group) = (size, group);
                };
                Ok(self.bytes_with(change)? <= free)
            };
            if let Some(size) = largest(&sizes, &fits)? {
                let of = match group == train.images_per_group {
                    true => String::new(),
                    false => format!(" with train.images_per_group={group}"),
                };
                return Ok(Some(format!("train.batch_size={size}{of} would fit")));
            }
        }
        Ok(None)
    }
}

/// The largest of ascending sizes that fits, by bisection: memory does not decrease with size.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::Split;
    use crate::dataset::tests::micro;

    /// CPU advice: smaller groups first, then smaller batches; none if neither helps.
    #[test]
    fn advised_batch_is_the_largest_that_fits() {
        let set = ["train.batch_size=8", "train.images_per_group=4"];
        let (_folder, config, data) = micro(Split::Train, &set);
        let (backend, evaluations) = (&Backend::Cpu, DetectionMemory::default());
        let division = &Division::single(&config.train, &Target::Cpu);
        let run = Counted { config: &config, data: &data, backend, division, evaluations };
        let bytes = |batch: usize, group: usize| {
            let bytes = run.bytes_with(|train| {
                (train.batch_size, train.images_per_group) = (batch, group);
            });
            bytes.expect("a plan")
        };
        for (free, advice) in [
            (bytes(8, 2), "train.images_per_group=2 would fit"),
            (bytes(8, 2) - 1, "train.images_per_group=1 would fit"),
            (bytes(8, 1) - 1, "train.batch_size=7 with train.images_per_group=1 would fit"),
            (bytes(1, 1), "train.batch_size=1 with train.images_per_group=1 would fit"),
            (bytes(1, 1) - 1, ""),
        ] {
            let told = run.advice(free).expect("plans");
            assert_eq!(told.unwrap_or_default(), advice, "{free}");
        }
    }
}
