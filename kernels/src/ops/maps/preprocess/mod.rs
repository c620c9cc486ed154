//! Source images to the network's input: crop, resize, turn, change colours, normalise, pad.
//!
//! [`ResizeFilter::Bilinear`] matches torchvision's `GeneralizedRCNNTransform`: `(v - mean) / std`,
//! bilinear resize (`align_corners=False`, scale from the two sizes), mirror, zeros right and
//! below. [`ResizeFilter::Pil`] resizes as Pillow does, in bytes, before it normalises: so
//! maskrcnn-benchmark. With `colours` the resized pixels change by an affine map of red, green and
//! blue, and are clipped to 0..255, before they are normalised.
//! Tensors: `pixels [N, B]` (u8; rows of height x width x RGB packed at the head of each image's
//! row), `views [N, 15]` ([`crate::view::View`]), `num_images [1]` i32, `colours [N, 12]` (with
//! `colours`: for red, green and blue the factors of the three and a constant; all in) ->
//! `x [N, H, W, C]` (overwritten; 0 in channels past the third, in the padding, and in images at or
//! past `num_images`).
//! With `bgr` channel 0 is blue, and mean and std are given in that order. Numerics: f32.
//! Bound by memory: four source pixels a pixel, from cache.

mod cases;
mod cpu;
mod cuda;
#[cfg(test)]
mod tests;

use choices::ResizeFilter;
use device::{Launch, LaunchArgs};

use crate::check;
use crate::cpu::CpuArgs;
use crate::view::View;
use crate::{Cost, DType, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Normalises, crops, resizes, mirrors and pads images.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preprocess {
    /// H, rows of the padded input.
    pub height: usize,
    /// W, columns of the padded input.
    pub width: usize,
    /// C, channels of the output: 3, or 4 for [`crate::ops::stem`].
    pub channels: usize,
    /// Subtracted, in units of the scaled pixels, in the order of the output's channels.
    pub mean: [f32; 3],
    /// Divided by after that.
    pub std: [f32; 3],
    /// The first factor of a byte: 1/255 or 1.
    pub pixel_scale: f32,
    /// Blue first.
    pub bgr: bool,
    /// How a pixel is made from those of the source.
    pub filter: ResizeFilter,
    /// True if the inputs hold `colours`.
    pub colours: bool,
}

op_inputs! {
    /// The inputs of [`Preprocess`].
    pub struct PreprocessInputs {
        /// `[N, B]`.
        pixels,
        /// `[N, 15]` i32.
        views,
        /// `[1]` i32.
        num_images,
    }
    optional {
        /// `[N, 12]`.
        colours,
    }
}

/// Elements of a row of `colours`: 3 rows of 4.
pub const COLOURS: usize = 12;

const NAME: &str = "preprocess";

impl Preprocess {
    /// Names the inputs of a list.
    fn inputs<'a, T>(&self, list: &'a [T]) -> PreprocessInputs<&'a T> {
        PreprocessInputs::of(list, [self.colours])
    }
}

impl Op for Preprocess {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let count = PreprocessInputs::LEN + usize::from(self.colours);
        check::arity(NAME, "inputs", inputs, count)?;
        check::arity(NAME, "updates", updates, 0)?;
        let inputs = self.inputs(inputs);
        check::rank(NAME, "pixels", inputs.pixels, "[N, B]")?;
        check::dtype(NAME, "pixels", inputs.pixels, DType::U8)?;
        let images = inputs.pixels.shape[0];
        check::integers(NAME, "views", inputs.views, &[images, View::LEN])?;
        check::integers(NAME, "num_images", inputs.num_images, &[1])?;
        if let Some(colours) = inputs.colours {
            check::floats(NAME, "colours", colours, &[images, COLOURS])?;
        }
        let positive = self.std.iter().all(|&s| s > 0.0);
        check::parameter(NAME, "std", positive, "above 0", format!("{:?}", self.std))?;
        let known = [3, 4].contains(&self.channels);
        check::parameter(NAME, "channels", known, "3 or 4", self.channels)?;
        let x = [images, self.height, self.width, self.channels];
        Ok(vec![TensorDesc::new(Role::Activation, &x)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 8 * outputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::preprocess(self, &args.inputs, args.outputs[0].f32());
    }
}
