//! Batches for the trainer: the order of images, the prefetching loader, and the copy of a filled
//! slot into a program's inputs.

use configs::Config;
use dali::loader::{self, Loader, OwnedSlot};
use dali::order::Order;

use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::runtime::Backend;

/// Slots that the loader fills ahead of the step.
const SLOTS: usize = 3;
/// Threads that decode beside steps on the CPU, which use all cores.
const THREADS_BESIDE_CPU: usize = 1;
/// Most threads that decode for a device.
const MAX_THREADS: usize = 8;
/// Cores left to the training loop and the driver.
const RESERVED_CORES: usize = 2;

/// A batch ready to be copied into a program's inputs.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) shape: usize,
    /// The last micro-step of its step.
    pub(super) last: bool,
    pub(super) epoch: u64,
    pub(super) num_images: usize,
    pub(super) waited_seconds: f64,
    slot: OwnedSlot,
    network_sizes: Vec<i32>,
}

/// Delivers the images of each micro-step, in the order that seed and epoch fix.
#[derive(Debug)]
pub(super) struct Feed {
    data: DataSet,
    order: Order,
    batch_size: usize,
    /// Images of a micro-step.
    micro_batch: usize,
    micro_steps: usize,
    seed: u64,
    /// Threads that decode.
    threads: usize,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    loader: Loader,
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
        let data = data.clone();
        Ok(Self { data, order, batch_size, micro_batch, micro_steps, seed, threads, running: None })
    }

    pub(super) fn batches_per_epoch(&self) -> u64 {
        self.order.batches_per_epoch() as u64
    }

    /// The images of micro-step `micro` (from 0, counted through all steps). They are expected in
    /// order; a jump starts the loader anew.
    pub(super) fn next(&mut self, micro: u64) -> Result<Batch, EngineError> {
        let plan = self.order.batch(micro / self.micro_steps as u64);
        let part_of_step = micro % self.micro_steps as u64;
        let images = part(&plan.images, self.micro_batch, part_of_step);
        let last = part_of_step + 1 == self.micro_steps as u64;
        if self.running.as_ref().is_none_or(|r| r.next_micro != micro) {
            self.running = Some(Running { loader: self.start(micro)?, next_micro: micro });
        }
        let Some(running) = &mut self.running else { unreachable!("started above") };
        let Some(filled) = running.loader.next()? else {
            unreachable!("the loader's sequence of batches has no end")
        };
        running.next_micro += 1;
        let mut network_sizes = vec![1; 2 * self.micro_batch];
        for (pair, &image) in network_sizes.chunks_exact_mut(2).zip(images) {
            let (height, width) = self.data.sizes[image];
            pair.copy_from_slice(&[height as i32, width as i32]);
        }
        Ok(Batch {
            shape: plan.shape,
            last,
            epoch: plan.epoch,
            num_images: images.len(),
            waited_seconds: filled.waited_seconds,
            slot: filled.slot,
            network_sizes,
        })
    }

    /// Gives a batch's slot back to the loader.
    pub(super) fn recycle(&mut self, batch: Batch) {
        if let Some(running) = &mut self.running {
            running.loader.recycle(batch.slot);
        }
    }

    fn start(&self, micro: u64) -> Result<Loader, EngineError> {
        let shape = self.data.slot_shape();
        let shape = loader::SlotShape {
            images: self.micro_batch,
            pixels: shape.pixels,
            objects: shape.objects,
            parts: shape.parts,
            coords: shape.coords,
            runs: shape.runs,
        };
        // The loader's thread walks the order by itself, ahead of the steps.
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
        Ok(Loader::new(store, batches, shape, SLOTS, self.threads)?)
    }
}

/// The images of a step that belong to its micro-step `micro` (from 0): none, where the last batch
/// of an epoch has ended before.
fn part(images: &[usize], size: usize, micro: u64) -> &[usize] {
    let first = (micro as usize * size).min(images.len());
    &images[first..(first + size).min(images.len())]
}

impl Batch {
    /// Hands the bytes of each input to `write`, by name: the head of it, what follows is unused.
    pub(super) fn write(
        &self,
        mut write: impl FnMut(&str, &[u8]) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        let slot = &self.slot;
        write("pixels", &slot.pixels)?;
        write("gt_boxes", bytemuck::cast_slice(&slot.gt_boxes))?;
        write("coords", bytemuck::cast_slice(&slot.coords))?;
        let indices: [(&str, &[i32]); 9] = [
            ("image_sizes", &slot.image_sizes),
            ("image_keys", &slot.image_keys),
            ("num_images", &slot.num_images),
            ("gt_classes", &slot.gt_classes),
            ("gt_counts", &slot.gt_counts),
            ("segm_index", &slot.segm_index),
            ("segm_parts", &slot.segm_parts),
            ("runs", &slot.runs),
            ("network_sizes", &self.network_sizes),
        ];
        indices.iter().try_for_each(|(name, values)| write(name, bytemuck::cast_slice(values)))
    }
}
