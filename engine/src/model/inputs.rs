//! The arrays that a program receives per batch, and the tensors that tests inject.
//!
//! A new array is one row: name, role, extents, clear value. The program's input then becomes a
//! field of the struct; `fill_slot` of the loader, or the filler in `engine/src/train/feed.rs`,
//! fills it.

use configs::Config;
use dali::loader::{Clear, SlotLayout};
use graph::{Program, TensorId};
use kernels::Role;
use kernels::boxes::SampleKey;

use super::ModelSpec;
use super::capacities::SlotShape;
use super::schema::Extent::{Coords, Fixed, Images, Objects, Parts, Pixels, Runs};
use super::schema::{Array, batch_arrays, slot_layout};
use crate::error::EngineError;

/// Tensors that tests substitute, and whether intermediate ones stay readable.
#[derive(Debug, Clone, Default)]
pub struct Inject {
    /// `pixels` holds f32 values in 0..1 instead of bytes.
    pub float_pixels: bool,
    /// `rpn_sample_idx` is an input.
    pub rpn_samples: bool,
    /// The proposals, with their anchors and counts, are inputs of the training step.
    pub proposals: bool,
    /// The sampled RoIs with their labels and matches are inputs.
    pub roi_samples: bool,
    /// Sample by index hash instead of Philox.
    pub hash_samples: bool,
    /// Keep intermediate tensors readable, by name.
    pub observe: bool,
}

impl Inject {
    pub(super) fn sample_key(&self) -> SampleKey {
        if self.hash_samples { SampleKey::Hash } else { SampleKey::Philox }
    }
}

batch_arrays! {
    /// Inputs that describe the images.
    ImageInputs {
        pixels: Pixels [Images, Pixels] Kept;
        image_sizes: Index [Images, Fixed(2)] Zeros;
        network_sizes: Index [Images, Fixed(2)] Ones;
        num_images: Index [Fixed(1)] Zeros;
    }
}

batch_arrays! {
    /// Inputs that describe the objects.
    ObjectInputs {
        image_keys: Index [Images, Fixed(4)] Zeros;
        gt_boxes: Box [Images, Objects, Fixed(4)] Zeros;
        gt_classes: Index [Images, Objects] Zeros;
        gt_counts: Index [Images] Zeros;
        segm_index: Index [Images, Objects, Fixed(3)] Zeros;
        segm_parts: Index [Images, Parts, Fixed(2)] Zeros;
        coords: Mask [Images, Coords] Zeros;
        runs: Index [Images, Runs] Zeros;
    }
}

batch_arrays! {
    /// Inputs of a micro-step only. `micro_weight` is the share of its losses in those of the step,
    /// times the number of micro-steps: 1 if each has as many groups that hold images.
    MicroInputs {
        micro_weight: Scalar [Fixed(1)] Zeros;
    }
}

batch_arrays! {
    /// Inputs of the detection pass only: which images to mirror is given, not drawn at random.
    FlipInputs {
        flips: Index [Images] Zeros;
    }
}

/// The slot of a training step over `images` images, without micro-steps.
///
/// # Errors
/// None for the tables above: their names differ.
pub fn training_layout(images: usize, slot: SlotShape) -> Result<SlotLayout, EngineError> {
    slot_layout(&[ImageInputs::ARRAYS, ObjectInputs::ARRAYS], images, slot)
}

/// The slot of a training step, or of its micro-steps, with this config.
///
/// # Errors
/// As for [`training_layout`].
pub fn step_layout(config: &Config, slot: SlotShape) -> Result<SlotLayout, EngineError> {
    let images = config.train.micro_batch();
    if config.train.micro_steps == 1 {
        return training_layout(images, slot);
    }
    let arrays = [ImageInputs::ARRAYS, ObjectInputs::ARRAYS, MicroInputs::ARRAYS];
    slot_layout(&arrays, images, slot)
}

/// The slot of a detection pass over `images` images.
///
/// # Errors
/// As for [`training_layout`].
pub fn detection_layout(images: usize, slot: SlotShape) -> Result<SlotLayout, EngineError> {
    slot_layout(&[ImageInputs::ARRAYS, FlipInputs::ARRAYS], images, slot)
}
