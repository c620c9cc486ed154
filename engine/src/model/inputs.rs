//! The tensors that a program receives for each batch, and what tests inject.

use graph::{Program, TensorId};
use kernels::boxes::SampleKey;
use kernels::{Role, TensorDesc};

use super::ModelSpec;

/// Capacities of one image in the loader's slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotShape {
    /// Bytes of source pixels: H x W x 3 of the largest image.
    pub pixels: usize,
    /// Objects, G.
    pub objects: usize,
    /// Polygon rings or run lists.
    pub parts: usize,
    /// Polygon coordinates (values).
    pub coords: usize,
    /// Run lengths.
    pub runs: usize,
}

/// What tests put in place of computed tensors, and whether intermediate ones stay readable.
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

/// Inputs that describe the images.
#[derive(Debug, Clone, Copy)]
pub(super) struct ImageInputs {
    pub(super) pixels: TensorId,
    pub(super) image_sizes: TensorId,
    pub(super) network_sizes: TensorId,
    pub(super) num_images: TensorId,
}

/// Inputs that describe the objects.
#[derive(Debug, Clone, Copy)]
pub(super) struct ObjectInputs {
    pub(super) image_keys: TensorId,
    pub(super) gt_boxes: TensorId,
    pub(super) gt_classes: TensorId,
    pub(super) gt_counts: TensorId,
    pub(super) segm_index: TensorId,
    pub(super) segm_parts: TensorId,
    pub(super) coords: TensorId,
    pub(super) runs: TensorId,
}

impl ImageInputs {
    pub(super) fn declare(program: &mut Program, spec: &ModelSpec<'_>) -> Self {
        let (n, slot) = (spec.images, spec.slot);
        let pixels = if spec.inject.float_pixels { Role::Mask } else { Role::Pixels };
        let mut input =
            |name, role, shape: &[usize]| program.input(name, TensorDesc::new(role, shape));
        Self {
            pixels: input("pixels", pixels, &[n, slot.pixels]),
            image_sizes: input("image_sizes", Role::Index, &[n, 2]),
            network_sizes: input("network_sizes", Role::Index, &[n, 2]),
            num_images: input("num_images", Role::Index, &[1]),
        }
    }
}

impl ObjectInputs {
    pub(super) fn declare(program: &mut Program, spec: &ModelSpec<'_>) -> Self {
        let (n, slot) = (spec.images, spec.slot);
        let g = slot.objects;
        let mut input =
            |name, role, shape: &[usize]| program.input(name, TensorDesc::new(role, shape));
        Self {
            image_keys: input("image_keys", Role::Index, &[n, 4]),
            gt_boxes: input("gt_boxes", Role::Box, &[n, g, 4]),
            gt_classes: input("gt_classes", Role::Index, &[n, g]),
            gt_counts: input("gt_counts", Role::Index, &[n]),
            segm_index: input("segm_index", Role::Index, &[n, g, 3]),
            segm_parts: input("segm_parts", Role::Index, &[n, slot.parts, 2]),
            coords: input("coords", Role::Mask, &[n, slot.coords]),
            runs: input("runs", Role::Index, &[n, slot.runs]),
        }
    }
}
