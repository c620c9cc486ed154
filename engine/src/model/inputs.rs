//! The arrays that a program receives per batch.
//!
//! To add an array, add a row to one of the tables below: name, role, extents and clear value. The
//! program's input becomes a field of the generated struct. The data is filled by the loader's
//! `fill_slot` or the filler in `engine/src/train/feed.rs`.

use std::borrow::Cow;

use crate::config::Config;
use dali::loader::{Clear, SlotLayout};
use graph::{Program, TensorId};
use kernels::Role;
use kernels::ops::preprocess::COLOURS;
use kernels::view::View;

use super::capacities::SlotShape;
use super::schema::Extent::{Coords, Fixed, Images, Objects, Parts, Pixels, Runs};
use super::schema::{Array, batch_arrays, slot_layout};
use super::{Division, ModelSpec};
use crate::error::EngineError;

batch_arrays! {
    /// Inputs that describe the images. `views` are the mappings from source images to the
    /// network's input, which also contain the network sizes.
    pub ImageInputs {
        pixels: Pixels [Images, Pixels] Kept;
        views: Index [Images, Fixed(View::LEN)] Zeros;
        network_sizes: Index [Images, Fixed(2)] Ones;
        num_images: Index [Fixed(1)] Zeros;
    }
}

batch_arrays! {
    /// Inputs that describe the objects.
    pub ObjectInputs {
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
    /// Inputs of a pass that is not a whole step. `micro_weight` is the weight of the pass's losses
    /// in the step's losses, times the number of passes of all ranks; it is 1 if all passes have
    /// equally many non-empty groups. `stop` is 1 if this rank was requested to stop, else 0; the
    /// all-reduced sum informs all ranks.
    pub(super) PassInputs {
        micro_weight: Scalar [Fixed(1)] Zeros;
        stop: Scalar [Fixed(1)] Zeros;
    }
}

batch_arrays! {
    /// Input of a step with colour jitter: a colour transformation for each image.
    pub(super) ColourInputs {
        colours: Scalar [Images, Fixed(COLOURS)] Zeros;
    }
}

impl ColourInputs {
    /// The arrays for a config; none without colour jitter.
    pub(super) fn arrays(config: &Config) -> &'static [Array] {
        if config.input.augment.changes_colours() { Self::ARRAYS } else { &[] }
    }

    /// Declares the input if the config has colour jitter.
    pub(super) fn declare_any(program: &mut Program, spec: &ModelSpec<'_>) -> Option<TensorId> {
        let arrays = Self::arrays(spec.config);
        arrays.first().map(|_| Self::declare(program, spec).colours)
    }
}

/// Slot layout of a one-pass training step on `images` images, without additional arrays.
///
/// # Errors
/// None, as the arrays in the tables above have distinct names.
pub fn training_layout(images: usize, slot: SlotShape) -> Result<SlotLayout, EngineError> {
    loss_layout(&[], images, slot)
}

/// [`training_layout`] with the additional arrays `further` ([`super::further_arrays`]).
///
/// # Errors
/// An additional array with the name of an existing array.
pub(crate) fn loss_layout(
    further: &[Array],
    images: usize,
    slot: SlotShape,
) -> Result<SlotLayout, EngineError> {
    slot_layout(&[ImageInputs::ARRAYS, ObjectInputs::ARRAYS, further], images, slot)
}

/// Slot layout of a pass of this division, with the additional arrays `further`
/// ([`super::further_arrays`]).
///
/// # Errors
/// As for [`training_layout`].
pub fn step_layout(
    further: &[Array],
    division: &Division,
    slot: SlotShape,
) -> Result<SlotLayout, EngineError> {
    let pass = if division.is_weighted() { PassInputs::ARRAYS } else { &[] };
    slot_layout(&[ImageInputs::ARRAYS, ObjectInputs::ARRAYS, further, pass], division.images, slot)
}

/// Slot layout of a detection pass on `images` images.
///
/// # Errors
/// As for [`training_layout`].
pub fn detection_layout(images: usize, slot: SlotShape) -> Result<SlotLayout, EngineError> {
    slot_layout(&[ImageInputs::ARRAYS], images, slot)
}
