//! Provides the trainer's batches: the image order, and the prefetching loader, which fills the
//! input slots of steps.

use std::sync::Arc;

use crate::config::Config;
use dali::DaliError;
use dali::loader::{self, ImageRows, Loader, SlotLayout};
use dali::order::Order;
use dali::store::Stores;

use super::repeats::repeat_factors;
use crate::dataset::{DataSet, make_inclusive, objects_with_rows};
use crate::error::EngineError;
use crate::model::{Detector, Division, detector, further_arrays, step_layout};
use crate::runtime::{Backend, Slot, SlotMemory};
use crate::team::own_cores;
use crate::view::Views;

/// Number of slots that the loader fills ahead of the current step.
const SLOTS_AHEAD: usize = 3;
/// Number of slots of steps in flight, from which the device may still be copying.
const SLOTS_IN_FLIGHT: usize = 2;
/// Number of decoding threads if steps run on the CPU; the steps already use all cores.
const THREADS_BESIDE_CPU: usize = 1;
/// Maximum number of decoding threads for a device.
const MAX_THREADS: usize = 8;
/// Number of cores reserved for the training loop and the driver.
const RESERVED_CORES: usize = 2;

/// The batch of a pass.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) shape: usize,
    /// True if it is the last pass of its step on this rank.
    pub(super) last: bool,
    pub(super) epoch: u64,
    /// Number of images of the whole step, on all ranks.
    pub(super) images_of_step: usize,
    /// The weight of the pass's losses in the step's losses, times the number of passes of all
    /// ranks.
    pub(super) weight: f32,
    pub(super) waited_seconds: f64,
    pub(super) slot: Slot,
    /// Number of the loader that the slot belongs to.
    loader: u64,
}

/// Delivers the batches of this rank's passes, in an order determined by seed and epoch.
#[derive(Debug)]
pub(super) struct Feed {
    data: DataSet,
    order: Order,
    /// A separate copy of the order for the loader, which is ahead of the steps.
    order_ahead: Arc<Order>,
    division: Division,
    model: crate::config::Model,
    views: Views,
    /// Number of decoding threads.
    threads: usize,
    backend: Backend,
    layout: Arc<SlotLayout>,
    /// Slots for the first loader, allocated early so that a lack of memory is detected before
    /// training.
    slots: Vec<Slot>,
    running: Option<Running>,
    /// Number of loaders started.
    loaders: u64,
}

#[derive(Debug)]
struct Running {
    loader: Loader<SlotMemory>,
    next_pass: u64,
}

impl Feed {
    pub(super) fn new(
        config: &Config,
        data: &DataSet,
        backend: &Backend,
        division: &Division,
    ) -> Result<Self, EngineError> {
        let (order, order_ahead) = (order(config, data)?, Arc::new(order(config, data)?));
        let threads = match backend {
            Backend::Cpu => THREADS_BESIDE_CPU,
            Backend::Device(_) => decoding_threads(own_cores(division.local_ranks)),
        };
        let layout = Arc::new(step_layout(&further_arrays(config), division, data.slot_shape())?);
        let mut feed = Self {
            data: data.clone(),
            order,
            order_ahead,
            division: division.clone(),
            model: config.model.clone(),
            views: data.views(config),
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

    /// Number of prefetched batches.
    pub(super) fn ready(&self) -> usize {
        self.running.as_ref().map_or(0, |running| running.loader.ready())
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

    /// A slot without images.
    pub(super) fn empty_slot(&self) -> Result<Slot, EngineError> {
        let mut slot = self.backend.slot(&self.layout)?;
        slot.clear();
        Ok(slot)
    }

    pub(super) fn data(&self) -> &DataSet {
        &self.data
    }

    pub(super) fn batches_per_epoch(&self) -> u64 {
        self.order.batches_per_epoch() as u64
    }

    /// Number of images per epoch, counting copies of repeated images.
    pub(super) fn images_per_epoch(&self) -> usize {
        let steps = 0..self.batches_per_epoch();
        steps.map(|step| self.order.batch(step).images.len()).sum()
    }

    /// Ids of the images of step `step`, counted from 0.
    pub(super) fn image_ids(&self, step: u64) -> Vec<u64> {
        let images = self.order.batch(step).images;
        images.iter().map(|i| self.data.store.image(self.data.images[*i]).image_id).collect()
    }

    /// The batch of this rank's pass `pass`, counted from 0 over all steps. Passes are normally
    /// requested in order; a jump restarts the loader. `stop` is true if the rank was requested to
    /// stop.
    pub(super) fn next(&mut self, pass: u64, stop: bool) -> Result<Batch, EngineError> {
        let plan = self.order.batch(pass / self.division.passes as u64);
        let pass_of_step = pass as usize % self.division.passes;
        let part = self.division.own().start + pass_of_step;
        let num_images = self.division.part(&plan.images, part).len();
        let last = pass_of_step + 1 == self.division.passes;
        if self.running.as_ref().is_none_or(|r| r.next_pass != pass) {
            // Dropping the previous loader first frees its slots.
            self.running = None;
            self.running = Some(Running { loader: self.start(pass)?, next_pass: pass });
        }
        let Some(running) = &mut self.running else { unreachable!("started above") };
        let Some(mut filled) = running.loader.next()? else {
            unreachable!("the loader's sequence of batches has no end")
        };
        running.next_pass += 1;
        let weight = self.division.weight(num_images, plan.images.len());
        if self.division.is_weighted() {
            filled.slot.view_mut("micro_weight")?[0] = weight;
            filled.slot.view_mut("stop")?[0] = f32::from(u8::from(stop));
        }
        Ok(Batch {
            shape: plan.shape,
            last,
            epoch: plan.epoch,
            images_of_step: plan.images.len(),
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

    fn start(&mut self, pass: u64) -> Result<Loader<SlotMemory>, EngineError> {
        let slots = match std::mem::take(&mut self.slots) {
            slots if slots.is_empty() => self.new_slots()?,
            slots => slots,
        };
        self.loaders += 1;
        let order = self.order_ahead.clone();
        let images = self.data.images.clone();
        let division = self.division.clone();
        let batches = (pass..).map(move |pass| {
            let batch = order.batch(pass / division.passes as u64);
            let part = division.own().start + pass as usize % division.passes;
            let indices = division.part(&batch.images, part);
            let indices = indices.iter().map(|i| images[*i]).collect();
            let copies = division.part(&batch.copies, part).to_vec();
            loader::Batch { indices, epoch: batch.epoch as u32, copies }
        });
        let store = self.data.store.clone();
        let filler = fill_rows(&self.data, self.views.clone(), detector(&self.model));
        Ok(Loader::new(store, batches, slots, self.threads, Box::new(filler))?)
    }
}

/// Number of steps per epoch over `data`.
///
/// # Errors
/// Data with too few images for a batch.
pub(super) fn batches_per_epoch(config: &Config, data: &DataSet) -> Result<u64, EngineError> {
    Ok(order(config, data)?.batches_per_epoch() as u64)
}

/// The order of a run's images.
fn order(config: &Config, data: &DataSet) -> Result<Order, EngineError> {
    let (batch_size, seed) = (config.train.batch_size, config.train.seed);
    let repeats = repeat_factors(config, data)?;
    Ok(match &data.drawn {
        None => Order::new(&data.sizes, &data.shapes, batch_size, seed, &repeats)?,
        Some(sizes) => Order::drawn(sizes.clone(), &data.shapes, batch_size, seed, &repeats)?,
    })
}

/// Number of decoding threads of a rank with `cores` cores.
fn decoding_threads(cores: usize) -> usize {
    cores.saturating_sub(RESERVED_CORES).clamp(1, MAX_THREADS)
}

/// Fills the arrays that the loader does not fill: each image's view and the detector's arrays.
/// Also converts the store's labels to the model's classes, and box corners to the model's
/// convention.
pub(crate) fn fill_rows(
    data: &DataSet,
    views: Views,
    detector: Box<dyn Detector>,
) -> impl Fn(&Stores, usize, &mut ImageRows<'_>) -> Result<(), DaliError> + use<> {
    let mut sizes = vec![[0; 2]; data.store.len()];
    for (&image, &(height, width)) in data.images.iter().zip(&data.sizes) {
        sizes[image] = [height as i32, width as i32];
    }
    let class_of_label = data.class_of_label();
    let inclusive = data.inclusive_boxes;
    let needs_no_objects = detector.arrays().is_empty();
    let is_same = class_of_label.iter().zip(0..).all(|(class, label)| *class == label);
    move |store, image, rows| {
        if inclusive {
            make_inclusive(store, image, rows)?;
        }
        if !is_same {
            let classes: &mut [i32] = rows.row_mut("gt_classes")?;
            classes.iter_mut().for_each(|label| *label = class_of_label[*label as usize]);
        }
        let record = store.image(image);
        let source = [record.height, record.width];
        let mut objects = match needs_no_objects && !views.cuts_masks() {
            true => vec![],
            false => objects_with_rows(store, image, inclusive).1,
        };
        let in_view = views.fill(source, sizes[image], inclusive, &objects, rows)?;
        if needs_no_objects {
            return Ok(());
        }
        if let Some(in_view) = in_view {
            objects = in_view.into_iter().map(|i| objects[i].clone()).collect();
        }
        detector.fill(store, image, &objects, rows)
    }
}

#[cfg(test)]
mod tests {
    use super::decoding_threads;

    /// Regression test: a rank bound to 12 cores by its launcher used only one decoding thread.
    #[test]
    fn decoding_threads_follow_core_count_up_to_eight() {
        for (cores, threads) in [(1, 1), (2, 1), (6, 4), (12, 8), (96, 8)] {
            assert_eq!(decoding_threads(cores), threads, "{cores} cores");
        }
    }
}
