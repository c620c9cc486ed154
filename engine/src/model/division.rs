//! Divides a step: its groups of images among ranks, and the groups of a rank among passes.

use std::ops::Range;

use crate::config::Train;
use device::{Ranks, Target};
use ranks::Group;

use super::MicroStep;
use crate::error::EngineError;

/// The passes of each step that one rank runs.
///
/// On the CPU a pass is one group of images, and the gradients of all groups are added in one fixed
/// tree, so weights are bit-identical for any number of ranks. On a device a pass is a micro-step;
/// results for different numbers of ranks agree up to rounding.
#[derive(Debug, Clone)]
pub struct Division {
    /// This rank's number, and the number of ranks.
    pub ranks: Ranks,
    /// Number of passes of each rank in a step.
    pub passes: usize,
    /// Number of images of a pass.
    pub images: usize,
    /// The connection between CPU ranks; by default a single process.
    pub group: Group,
    /// Number of ranks on this machine, including this one.
    pub local_ranks: usize,
    images_per_group: usize,
    on_cpu: bool,
    /// True if gradients are all-reduced even with a single rank.
    reduces_alone: bool,
}

impl Division {
    /// The division of the config's batch for this rank.
    ///
    /// # Errors
    /// [`EngineError::OfAllRanks`] if the ranks cannot get equally many complete groups; the
    /// message lists the possible numbers of ranks.
    pub fn new(train: &Train, target: &Target, ranks: Ranks) -> Result<Self, EngineError> {
        let on_cpu = target.is_cpu();
        let unit = train.images_per_group * if on_cpu { 1 } else { train.micro_steps };
        let units = train.batch_size / unit;
        if !units.is_multiple_of(ranks.count) || train.batch_size < ranks.count * unit {
            return Err(misfit(train, units, ranks.count, on_cpu));
        }
        let images = train.batch_size / ranks.count;
        let passes = if on_cpu { images / train.images_per_group } else { train.micro_steps };
        let images_per_group = train.images_per_group;
        Ok(Self {
            ranks,
            passes,
            images: images / passes,
            group: Group::single(),
            local_ranks: 1,
            images_per_group,
            on_cpu,
            reduces_alone: false,
        })
    }

    /// The division for a step of one process and one pass.
    pub(super) fn whole() -> Self {
        Self {
            ranks: Ranks::SINGLE,
            passes: 1,
            images: 0,
            group: Group::single(),
            local_ranks: 1,
            images_per_group: 1,
            on_cpu: true,
            reduces_alone: false,
        }
    }

    /// The division for a run with one process.
    pub fn single(train: &Train, target: &Target) -> Self {
        match Self::new(train, target, Ranks::SINGLE) {
            Ok(division) => division,
            Err(_) => unreachable!("a batch consists of whole groups and micro-steps"),
        }
    }

    /// A step of one process in `passes` passes; `None` if `passes` does not divide the batch.
    pub fn in_passes(train: &Train, target: &Target, passes: usize) -> Option<Self> {
        let divides = passes > 0 && train.batch_size.is_multiple_of(passes);
        let images = divides.then(|| train.batch_size / passes)?;
        Some(Self { passes, images, ..Self::single(train, target) })
    }

    /// This division with all-reduces even for a single rank, so that its steps contain the same
    /// ops as steps with several ranks. No effect on the CPU.
    pub fn reducing(self) -> Self {
        Self { reduces_alone: !self.on_cpu, ..self }
    }

    /// This division with all ranks' passes run by one process.
    pub fn gathered(&self) -> Self {
        let (ranks, group) = (Ranks::SINGLE, Group::single());
        Self { ranks, passes: self.parts(), group, reduces_alone: false, ..self.clone() }
    }

    /// Number of passes in a step, over all ranks.
    pub fn parts(&self) -> usize {
        self.ranks.count * self.passes
    }

    /// The range of this rank's passes among the passes of all ranks.
    pub fn own(&self) -> Range<usize> {
        let first = self.ranks.rank * self.passes;
        first..first + self.passes
    }

    /// True if the losses of a pass are weighted: a step has several passes, or all-reduces.
    pub fn is_weighted(&self) -> bool {
        self.parts() > 1 || self.reduces_alone
    }

    /// True if the gradients are all-reduced on devices.
    pub fn reduces_on_device(&self) -> bool {
        !self.on_cpu && (self.ranks.count > 1 || self.reduces_alone)
    }

    /// Divisor that turns a step's final gradient sum into the mean for the update.
    pub fn divisor(&self) -> usize {
        // On devices, gradients were already divided by the number of ranks, before the fp16
        // all-reduce.
        if self.on_cpu { self.parts() } else { self.passes }
    }

    /// The kind of the pass that updates parameters; its program contains everything that early
    /// passes contain.
    pub fn updating(&self) -> MicroStep {
        let is_whole = if self.on_cpu { self.parts() == 1 } else { self.passes == 1 };
        if is_whole { MicroStep::Whole } else { MicroStep::Last }
    }

    /// The images of pass `part`, where passes are counted over all ranks; may be empty in the last
    /// batch of an epoch.
    pub fn part<'a, T>(&self, images: &'a [T], part: usize) -> &'a [T] {
        let first = (part * self.images).min(images.len());
        &images[first..(first + self.images).min(images.len())]
    }

    /// The weight of a pass's losses in the step's losses, times the number of passes. A step's
    /// losses are means over its non-empty groups on all ranks.
    pub fn weight(&self, images: usize, images_of_step: usize) -> f32 {
        let groups = |images: usize| images.div_ceil(self.images_per_group);
        (groups(images) * self.parts()) as f32 / groups(images_of_step) as f32
    }
}

fn misfit(train: &Train, units: usize, ranks: usize, on_cpu: bool) -> EngineError {
    let (batch, group) = (train.batch_size, train.images_per_group);
    let fitting: Vec<String> =
        (1..=units).filter(|n| units.is_multiple_of(*n)).map(|n| n.to_string()).collect();
    let micro = match (on_cpu, train.micro_steps) {
        (true, _) | (false, 1) => String::new(),
        (false, steps) => format!(" in {steps} micro-steps"),
    };
    EngineError::OfAllRanks(format!(
        "{ranks} ranks cannot share a batch of {batch} images in whole groups of {group}{micro} \
         (train.batch_size, train.images_per_group): start {} rank{}, take smaller groups, or \
         change the batch",
        fitting.join(", "),
        if fitting.len() == 1 { "" } else { "s" }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use device::Gpu;

    fn train(batch_size: usize, images_per_group: usize, micro_steps: usize) -> Train {
        Train { batch_size, images_per_group, micro_steps, ..Train::default() }
    }

    fn of(train: &Train, target: &Target, rank: usize, count: usize) -> Result<Division, String> {
        Division::new(train, target, Ranks { rank, count }).map_err(|e| e.to_string())
    }

    #[test]
    fn cpu_pass_is_a_group_and_device_pass_is_a_micro_step() {
        let train = train(16, 2, 2);
        let cpu = of(&train, &Target::Cpu, 1, 4).expect("two groups each");
        assert_eq!((cpu.passes, cpu.images, cpu.own(), cpu.divisor()), (2, 2, 2..4, 8));
        let device = of(&train, &Target::Gpu(Gpu::a100()), 1, 4).expect("a group a micro-step");
        assert_eq!((device.passes, device.images, device.divisor()), (2, 2, 2));
        let alone = Division::single(&train, &Target::Gpu(Gpu::a100()));
        assert_eq!((alone.passes, alone.images, alone.updating()), (2, 8, MicroStep::Last));
    }

    #[test]
    fn single_device_rank_all_reduces_if_requested() {
        let train = train(4, 2, 1);
        let device = Division::single(&train, &Target::Gpu(Gpu::a100()));
        assert!(!device.reduces_on_device() && !device.is_weighted());
        let device = device.reducing();
        assert!(device.reduces_on_device() && device.is_weighted());
        assert_eq!((device.updating(), device.divisor()), (MicroStep::Whole, 1));
        assert_eq!([device.weight(4, 4), device.weight(1, 1)], [1.0, 1.0]);
        assert!(!device.gathered().reduces_on_device());
        let cpu = Division::single(&train, &Target::Cpu).reducing();
        assert!(!cpu.reduces_on_device() && cpu.parts() == 2);
    }

    #[test]
    fn rank_count_that_splits_a_group_is_rejected_and_valid_counts_are_listed() {
        let text = of(&train(12, 2, 1), &Target::Cpu, 0, 4).expect_err("three groups for two");
        assert!(text.contains("12 images in whole groups of 2"), "{text}");
        assert!(text.contains("start 1, 2, 3, 6 ranks"), "{text}");
        let text = of(&train(8, 2, 2), &Target::Gpu(Gpu::a100()), 0, 4).expect_err("too many");
        assert!(text.contains("in 2 micro-steps") && text.contains("start 1, 2 ranks"), "{text}");
    }

    #[test]
    fn partial_batch_leaves_later_passes_empty() {
        let division = of(&train(8, 2, 1), &Target::Cpu, 1, 2).expect("two groups each");
        let images = [5, 6, 7];
        let parts: Vec<_> = (0..4).map(|part| division.part(&images, part)).collect();
        assert_eq!(parts, [&images[..2], &images[2..], &[], &[]]);
        let weights: Vec<f32> = parts.iter().map(|p| division.weight(p.len(), 3)).collect();
        assert_eq!(weights, [2.0, 2.0, 0.0, 0.0]);
    }
}
