//! The arrays that a program receives per batch.
//!
//! A new array is one row: name, role, extents, clear value. The program's input then becomes a
//! field of the struct, which `fill_slot` of the loader, or the filler in
//! `engine/src/train/feed.rs`, fills.

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
    /// Inputs that describe the images. An image's network size is also in its view.
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
    /// Inputs of a pass that is not a whole step. `micro_weight` is the share of its losses in the
    /// step's, times the number of passes of all ranks: 1 if each has the same number of non-empty
    /// groups. `stop` is 1 if this rank was requested to stop, else 0; its all-reduced sum informs
    /// all ranks.
    pub(super) PassInputs {
        micro_weight: Scalar [Fixed(1)] Zeros;
        stop: Scalar [Fixed(1)] Zeros;
    }
}

batch_arrays! {
    /// Inputs of a step with colour jitter: the colour map of each image.
    pub(super) ColourInputs {
        colours: Scalar [Images, Fixed(COLOURS)] Zeros;
    }
}

impl ColourInputs {
    /// The arrays of a config: none without colour jitter.
    pub(super) fn arrays(config: &Config) -> &'static [Array] {
        if config.input.augment.changes_colours() { Self::ARRAYS } else { &[] }
    }

    /// Declares the input that [`Self::arrays`] has for the config.
    pub(super) fn declare_any(program: &mut Program, spec: &ModelSpec<'_>) -> Option<TensorId> {
        let arrays = Self::arrays(spec.config);
        arrays.first().map(|_| Self::declare(program, spec).colours)
    }
}

/// The slot of a training step of one pass over `images` images, without further arrays.
///
/// # Errors
/// None for the tables above: their names are distinct.
pub fn training_layout(images: usize, slot: SlotShape) -> Result<SlotLayout, EngineError> {
    loss_layout(&[], images, slot)
}

/// The same with the arrays that its config adds ([`super::further_arrays`]).
///
/// # Errors
/// An array of a head with the same name as another array.
pub(crate) fn loss_layout(
    further: &[Array],
    images: usize,
    slot: SlotShape,
) -> Result<SlotLayout, EngineError> {
    slot_layout(&[ImageInputs::ARRAYS, ObjectInputs::ARRAYS, further], images, slot)
}

/// The slot of a pass of this division, with the arrays that its config adds
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

/// The slot of a detection pass over `images` images.
///
/// # Errors
/// As for [`training_layout`].
pub fn detection_layout(images: usize, slot: SlotShape) -> Result<SlotLayout, EngineError> {
    slot_layout(&[ImageInputs::ARRAYS], images, slot)
}
