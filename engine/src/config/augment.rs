//! `[input.augment]`: what is drawn for each training image and epoch.

use configs::table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Boxes of objects that a view cuts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoxesAfterCrop {
    /// The part of the box in view.
    Clip,
    /// The extent of the part of the mask in view.
    Mask,
}

table! {
    /// `[input.augment]`: what is drawn for each training image and epoch, beside
    /// `input.flip_probability`. Nothing by default.
    pub struct Augment {
        /// Sizes of the short side, of which one is drawn for an image and epoch, in place of
        /// `input.min_size`; `input.max_size` holds. Default `[]`: none.
        #[key(each = 1..=16_384, unit = "pixels", resume = Step, mlperf = Preprocessing)]
        pub min_sizes: Vec<usize> = Vec::new(),
        /// Large-scale jitter: the image is resized to fit a square of this side times a factor
        /// from `jitter_scale`, and a part of at most the square is kept. Default 0: none; else
        /// `input.min_size`, `input.max_size` and `min_sizes` have no effect on training.
        #[key(range = 0..=16_384, unit = "pixels", resume = Step, mlperf = Preprocessing)]
        pub jitter_size: usize = 0,
        /// Least and greatest factor of the large-scale jitter. Default `[0.1, 2]`.
        #[key(each = 0.001..=100.0, resume = Step, mlperf = Preprocessing)]
        pub jitter_scale: [f32; 2] = [0.1, 2.0],
        /// Least share of each side that a random crop keeps, of the source. Default 1: no crop.
        #[key(range = 0.01..=1.0, unit = "share", resume = Step, mlperf = Preprocessing)]
        pub crop: f32 = 1.0,
        /// A random crop holds the middle of an object, which is drawn. Default true.
        #[key(resume = Step, mlperf = Preprocessing)]
        pub crop_keeps_object: bool = true,
        /// Greatest change of an image's ratio of width to height: 0.25 draws from 1/1.25 to 1.25.
        /// Default 0: none.
        #[key(range = 0.0..=4.0, resume = Step, mlperf = Preprocessing)]
        pub aspect: f32 = 0.0,
        /// Probability of turning a training image upside down. Default 0.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Preprocessing)]
        pub vertical_flip: f32 = 0.0,
        /// Probability of turning a training image by one, two or three quarters, each as likely.
        /// Default 0. Above it, images of either orientation share their shapes, of which the
        /// largest is a square: the more oblong the images, the more of it is padding.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Preprocessing)]
        pub quarter_turns: f32 = 0.0,
        /// Boxes of objects that are cut: `"clip"` (default), the part of the box in view, or
        /// `"mask"`, the extent of the part of the mask in view.
        #[key(resume = Step, mlperf = Preprocessing)]
        pub boxes_after_crop: BoxesAfterCrop = BoxesAfterCrop::Clip,
        /// Share of an object's box that must be in view for the object to be trained on. Default
        /// 0: any part of a pixel a side.
        #[key(range = 0.0..=1.0, unit = "share", resume = Step, mlperf = Preprocessing)]
        pub min_visible: f32 = 0.0,
        /// Greatest change of brightness: 0.4 multiplies each image by 0.6 to 1.4. Colours change
        /// after the resize, without rounding, by one map of red, green and blue. Default 0: none.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Preprocessing)]
        pub brightness: f32 = 0.0,
        /// Greatest change of contrast: distances to the image's mean grey, times 1 less to 1 more
        /// this. Default 0: none.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Preprocessing)]
        pub contrast: f32 = 0.0,
        /// Greatest change of saturation: distances to each pixel's grey, times 1 less to 1 more
        /// this. Default 0: none.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Preprocessing)]
        pub saturation: f32 = 0.0,
        /// Greatest change of hue either way, in turns of YIQ's colours. Default 0: none.
        #[key(range = 0.0..=0.5, unit = "turns", resume = Step, mlperf = Preprocessing)]
        pub hue: f32 = 0.0,
        /// Probability of showing a training image in greys. Default 0.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Preprocessing)]
        pub grey: f32 = 0.0,
    }
}

impl Augment {
    /// True if the colours of an image are drawn.
    #[must_use]
    pub fn changes_colours(&self) -> bool {
        [self.brightness, self.contrast, self.saturation, self.hue, self.grey] != [0.0; 5]
    }
}
