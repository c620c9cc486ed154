//! `[input.augment]`: random augmentation of training images.

use configs::table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Boxes of objects that are partly outside a crop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoxesAfterCrop {
    /// The visible part of the box.
    Clip,
    /// The bounding box of the visible part of the mask.
    Mask,
}

table! {
    /// `[input.augment]`: random augmentation, sampled for each training image and epoch, in
    /// addition to `input.flip_probability`. By default there is none.
    pub struct Augment {
        /// Sizes of the short side. For each image and epoch one is sampled and replaces
        /// `input.min_size`; `input.max_size` still applies. Default `[]`: none.
        #[key(each = 1..=16_384, unit = "pixels", resume = Step, mlperf = Preprocessing)]
        pub min_sizes: Vec<usize> = Vec::new(),
        /// Large-scale jitter: side of a square. The image is resized to fit the square scaled by a
        /// factor from `jitter_scale`, then cropped to the square. Default 0: none. If set,
        /// `input.min_size`, `input.max_size` and `min_sizes` have no effect on training.
        #[key(range = 0..=16_384, unit = "pixels", resume = Step, mlperf = Preprocessing)]
        pub jitter_size: usize = 0,
        /// Minimum and maximum factor of large-scale jitter. Default `[0.1, 2]`.
        #[key(each = 0.001..=100.0, resume = Step, mlperf = Preprocessing)]
        pub jitter_scale: [f32; 2] = [0.1, 2.0],
        /// Minimum fraction of each side that a random crop keeps. Default 1: no crop.
        #[key(range = 0.01..=1.0, unit = "share", resume = Step, mlperf = Preprocessing)]
        pub crop: f32 = 1.0,
        /// Each random crop contains the centre of a randomly selected object. Default true.
        #[key(resume = Step, mlperf = Preprocessing)]
        pub crop_keeps_object: bool = true,
        /// Aspect ratio jitter x: the aspect ratio is multiplied by a factor from 1/(1 + x) to 1 +
        /// x. Default 0: none.
        #[key(range = 0.0..=4.0, resume = Step, mlperf = Preprocessing)]
        pub aspect: f32 = 0.0,
        /// Probability of a vertical flip of a training image. Default 0.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Preprocessing)]
        pub vertical_flip: f32 = 0.0,
        /// Probability of rotating a training image by 90, 180 or 270 degrees, each equally likely.
        /// Default 0. If above 0, landscape and portrait images share padded shapes; the largest is
        /// a square, so non-square images get more padding.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Preprocessing)]
        pub quarter_turns: f32 = 0.0,
        /// Boxes of cropped objects: `"clip"` (default), the visible part of the box, or `"mask"`,
        /// the bounding box of the visible part of the mask.
        #[key(resume = Step, mlperf = Preprocessing)]
        pub boxes_after_crop: BoxesAfterCrop = BoxesAfterCrop::Clip,
        /// Minimum visible fraction of an object's box; objects with less are dropped. Default 0:
        /// objects with any visible area are kept.
        #[key(range = 0.0..=1.0, unit = "share", resume = Step, mlperf = Preprocessing)]
        pub min_visible: f32 = 0.0,
        /// Brightness jitter x: each image is multiplied by a factor in [1 - x, 1 + x]. All colour
        /// jitter is applied after resizing, without rounding, as one affine map of red, green and
        /// blue. Default 0: none.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Preprocessing)]
        pub brightness: f32 = 0.0,
        /// Contrast jitter x: each pixel's difference from the image's mean grey is multiplied by a
        /// factor in [1 - x, 1 + x]. Default 0: none.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Preprocessing)]
        pub contrast: f32 = 0.0,
        /// Saturation jitter x: each pixel's difference from its grey value is multiplied by a
        /// factor in [1 - x, 1 + x]. Default 0: none.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Preprocessing)]
        pub saturation: f32 = 0.0,
        /// Hue jitter: maximum rotation in either direction, as a fraction of the hue circle of
        /// YIQ. Default 0: none.
        #[key(range = 0.0..=0.5, unit = "turns", resume = Step, mlperf = Preprocessing)]
        pub hue: f32 = 0.0,
        /// Probability of converting a training image to greyscale. Default 0.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Preprocessing)]
        pub grey: f32 = 0.0,
    }
}

impl Augment {
    /// True if colours are augmented.
    #[must_use]
    pub fn changes_colours(&self) -> bool {
        [self.brightness, self.contrast, self.saturation, self.hue, self.grey] != [0.0; 5]
    }
}
