//! Batches for the trainer: the image order, and the prefetching loader, which fills the memory
//! that a step reads its inputs from.

use std::sync::Arc;

use configs::Config;
use dali::DaliError;
use dali::loader::{self, ImageRows, Loader, SlotLayout};
use dali::order::Order;
use dali::store::Store;

use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::model::step_layout;
use crate::runtime::{Backend, Slot, SlotMemory};

/// Slots that the loader fills ahead of the step.
const SLOTS_AHEAD: usize = 3;
/// Slots of steps in flight: the device may still be copying from them.
const SLOTS_IN_FLIGHT: usize = 2;
/// Decoding threads beside steps on the CPU, which use all cores.
const THREADS_BESIDE_CPU: usize = 1;
/// Maximum number of decoding threads for a device.
const MAX_THREADS: usize = 8;
/// Cores left to the training loop and the driver.
const RESERVED_CORES: usize = 2;

/// A batch, as input of a step.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) shape: usize,
    /// Whether it is the last micro-step of its step.
    pub(super) last: bool,
    pub(super) epoch: u64,
    pub(super) num_images: usize,
    /// Share of its losses in those of the step, times the number of micro-steps.
    pub(super) weight: f32,
    pub(super) waited_seconds: f64,
    pub(super) slot: Slot,
    /// The loader that the slot belongs to.
    loader: u64,
}

/// Delivers the images of each micro-step, in the order determined by seed and epoch.
#[derive(Debug)]
pub(super) struct Feed {
    data: DataSet,
    order: Order,
    batch_size: usize,
    /// Images per micro-step.
    micro_batch: usize,
    micro_steps: usize,
    images_per_group: usize,
    seed: u64,
    /// Number of decoding threads.
    threads: usize,
    backend: Backend,
    layout: Arc<SlotLayout>,
    /// Slots for the first loader: running out of memory shows before training.
    slots: Vec<Slot>,
    running: Option<Running>,
    /// Loaders started.
    loaders: u64,
}

#[derive(Debug)]
struct Running {
    loader: Loader<SlotMemory>,
    next_micro: u64,
}

impl Feed {
    pub(super) fn new(
        config: &Config,
        data: &DataSet,
        backend: &Backend,
    ) -> Result<Self, EngineError> {
        let batch_size = config.train.batch_size;
        let seed = config.train.seed;
        let order = Order::new(&data.sizes, &data.shapes, batch_size, seed)?;
        let (micro_steps, micro_batch) = (config.train.micro_steps, config.train.micro_batch());
        let threads = match backend {
            Backend::Cpu => THREADS_BESIDE_CPU,
            Backend::Device(_) => {
                let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
                cores.saturating_sub(RESERVED_CORES).clamp(1, MAX_THREADS)
            }
        };
        let layout = Arc::new(step_layout(config, data.slot_shape())?);
        let mut feed = Self {
            data: data.clone(),
            order,
            batch_size,
            micro_batch,
            micro_steps,
            images_per_group: config.train.images_per_group,
            seed,
            threads,
            backend: backend.clone(),
            layout,
            slots: vec![],
            running: None,
            loaders: 0,
        };
        feed.slots = feed.new_slots()?;
        Ok(feed)
    }

    /// Pinned bytes of all slots; 0 on the CPU.
    pub(super) fn pinned_bytes(&self) -> usize {
        match self.backend {
            Backend::Cpu => 0,
            Backend::Device(_) => self.num_slots() * self.layout.bytes(),
        }
    }

    fn num_slots(&self) -> usize {
        match self.backend {
            Backend::Cpu => SLOTS_AHEAD,
            Backend::Device(_) => SLOTS_AHEAD + SLOTS_IN_FLIGHT,
        }
    }

    fn new_slots(&self) -> Result<Vec<Slot>, EngineError> {
        (0..self.num_slots()).map(|_| self.backend.slot(&self.layout)).collect()
    }

    pub(super) fn batches_per_epoch(&self) -> u64 {
        self.order.batches_per_epoch() as u64
    }

    /// Ids of the images of a step, counted from 0.
    pub(super) fn image_ids(&self, step: u64) -> Vec<u64> {
        let images = self.order.batch(step).images;
        images.iter().map(|i| self.data.store.image(self.data.images[*i]).image_id).collect()
    }

    /// The images of micro-step `micro` (from 0, counted over all steps). Expected in order; a jump
    /// restarts the loader.
    pub(super) fn next(&mut self, micro: u64) -> Result<Batch, EngineError> {
        let plan = self.order.batch(micro / self.micro_steps as u64);
        let part_of_step = micro % self.micro_steps as u64;
        let num_images = part(&plan.images, self.micro_batch, part_of_step).len();
        let last = part_of_step + 1 == self.micro_steps as u64;
        if self.running.as_ref().is_none_or(|r| r.next_micro != micro) {
            // First return the slots of the previous one.
            self.running = None;
            self.running = Some(Running { loader: self.start(micro)?, next_micro: micro });
        }
        let Some(running) = &mut self.running else { unreachable!("started above") };
        let Some(mut filled) = running.loader.next()? else {
            unreachable!("the loader's sequence of batches has no end")
        };
        running.next_micro += 1;
        let weight = micro_weight(
            num_images.div_ceil(self.images_per_group),
            plan.images.len().div_ceil(self.images_per_group),
            self.micro_steps,
        );
        if self.micro_steps > 1 {
            filled.slot.view_mut("micro_weight")?[0] = weight;
        }
        Ok(Batch {
            shape: plan.shape,
            last,
            epoch: plan.epoch,
            num_images,
            weight,
            waited_seconds: filled.waited_seconds,
            slot: filled.slot,
            loader: self.loaders,
        })
    }

    /// Returns a batch's slot to its loader; a slot of an earlier loader is dropped.
    pub(super) fn recycle(&mut self, batch: Batch) {
        if let Some(running) = self.running.as_mut().filter(|_| batch.loader == self.loaders) {
            running.loader.recycle(batch.slot);
        }
    }

    fn start(&mut self, micro: u64) -> Result<Loader<SlotMemory>, EngineError> {
        let slots = match std::mem::take(&mut self.slots) {
            slots if slots.is_empty() => self.new_slots()?,
            slots => slots,
        };
        self.loaders += 1;
        // The loader's thread walks the order independently, ahead of the steps.
        let order = Order::new(&self.data.sizes, &self.data.shapes, self.batch_size, self.seed)?;
        let images = self.data.images.clone();
        let (size, parts) = (self.micro_batch, self.micro_steps as u64);
        let batches = (micro..).map(move |micro| {
            let batch = order.batch(micro / parts);
            let indices = part(&batch.images, size, micro % parts);
            let indices = indices.iter().map(|i| images[*i]).collect();
            loader::Batch { indices, epoch: batch.epoch as u32 }
        });
        let store = self.data.store.clone();
        let filler = fill_rows(&self.data);
        Ok(Loader::new(store, batches, slots, self.threads, Box::new(filler))?)
    }
}

/// Fills the array that the loader does not know, each image's network size, and turns labels of
/// the store into classes of the model.
fn fill_rows(
    data: &DataSet,
) -> impl Fn(&Store, usize, &mut ImageRows<'_>) -> Result<(), DaliError> + use<> {
    let mut sizes = vec![[0; 2]; data.store.len()];
    for (&image, &(height, width)) in data.images.iter().zip(&data.sizes) {
        sizes[image] = [height as i32, width as i32];
    }
    let class_of_label = data.class_of_label();
    let is_same = class_of_label.iter().zip(0..).all(|(class, label)| *class == label);
    move |_, image, rows| {
        if !is_same {
            let classes: &mut [i32] = rows.row_mut("gt_classes")?;
            classes.iter_mut().for_each(|label| *label = class_of_label[*label as usize]);
        }
        rows.row_mut("network_sizes")?.copy_from_slice(&sizes[image]);
        Ok(())
    }
}

/// What the losses of a micro-step weigh, times the number of micro-steps: a step is the mean over
/// its groups that hold images, wherever they run.
fn micro_weight(groups: usize, groups_of_step: usize, micro_steps: usize) -> f32 {
    (groups * micro_steps) as f32 / groups_of_step as f32
}

/// The images of a step that belong to its micro-step `micro` (from 0): none if the last batch of
/// an epoch is too short.
fn part(images: &[usize], size: usize, micro: u64) -> &[usize] {
    let first = (micro as usize * size).min(images.len());
    &images[first..(first + size).min(images.len())]
}
