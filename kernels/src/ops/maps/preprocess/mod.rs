//! Source images to the network's input: normalise, crop, resize, mirror, pad.
//!
//! [`ResizeFilter::Bilinear`] matches torchvision's `GeneralizedRCNNTransform`: `(v - mean) / std`,
//! bilinear resize (`align_corners=False`, scale from the two sizes), mirror, zeros right and
//! below. [`ResizeFilter::Pil`] resizes as Pillow does, in bytes, before it normalises: so
//! maskrcnn-benchmark.
//! Tensors: `pixels [N, B]` (u8; rows of height x width x RGB packed at the head of each image's
//! row), `views [N, 14]` ([`crate::view::View`]), `num_images [1]` i32 (all in) ->
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
}

op_inputs! {
    /// The inputs of [`Preprocess`].
    pub struct PreprocessInputs {
        /// `[N, B]`.
        pixels,
        /// `[N, 14]` i32.
        views,
        /// `[1]` i32.
        num_images,
    }
}

const NAME: &str = "preprocess";

impl Op for Preprocess {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, PreprocessInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        let inputs = PreprocessInputs::of(inputs);
        check::rank(NAME, "pixels", inputs.pixels, "[N, B]")?;
        check::dtype(NAME, "pixels", inputs.pixels, DType::U8)?;
        let images = inputs.pixels.shape[0];
        check::integers(NAME, "views", inputs.views, &[images, View::LEN])?;
        check::integers(NAME, "num_images", inputs.num_images, &[1])?;
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
