//! Source images to the network's input: crop, resize, turn, change colours, normalise, pad.
//!
//! [`ResizeFilter::Bilinear`] matches torchvision's `GeneralizedRCNNTransform`: `(v - mean) / std`,
//! bilinear resize (`align_corners=False`, scale from the two sizes), mirror, zeros right and
//! below. [`ResizeFilter::Pil`] resizes as Pillow does, in bytes, before it normalises: so
//! maskrcnn-benchmark. With `colours` the resized pixels change by an affine map of red, green and
//! blue, and are clipped to 0..255, before they are normalised.

mod cases;
mod cpu;
#[cfg(test)]
mod tests;

use choices::ResizeFilter;
use device::{Launch, LaunchArgs, StructArg};

use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::op;
use crate::view::View;

pub use cases::cases;

op! {
    /// Normalises, crops, resizes, mirrors and pads images. In f32. Bound by memory: four source
    /// pixels a pixel, from cache.
    #[derive(Copy)]
    pub struct Preprocess = "preprocess" {
        /// H, rows of the padded input.
        pub height: usize,
        /// W, columns of the padded input.
        pub width: usize,
        /// C, channels of the output: 3, or 4 for [`crate::ops::stem`].
        pub channels: usize [|channels| [3, 4].contains(channels), "3 or 4"],
        /// Subtracted, in units of the scaled pixels, in the order of the output's channels.
        pub mean: [f32; 3],
        /// Divided by after that.
        pub std: [f32; 3] [|std| std.iter().all(|&s| s > 0.0), "above 0"],
        /// The first factor of a byte: 1/255 or 1.
        pub pixel_scale: f32,
        /// Channel 0 is blue, and mean and std are given in that order.
        pub bgr: bool,
        /// How a pixel is made from those of the source.
        pub filter: ResizeFilter,
        /// True if the inputs hold `colours`.
        pub colours: bool,
    }
    in PreprocessInputs {
        /// Rows of height x width x RGB packed at the head of each image's row.
        pixels: u8 "[N, B]",
        /// A [`crate::view::View`] each.
        views: i32 "[N, 15]",
        /// Images in use.
        num_images: i32 "[1]",
    }
    optional {
        /// For red, green and blue the factors of the three and a constant.
        colours: f32 "[N, 12]" if |op| op.colours,
    }
    out {
        /// 0 in channels past the third, in the padding, and in images at or past `num_images`.
        x: Activation "[N, height, width, channels]",
    }
}

/// Pixels of a row that a block makes; as in `preprocess.cu`.
const PIXELS: usize = 256;

/// Elements of a row of `colours`: 3 rows of 4.
pub const COLOURS: usize = 12;

// As the declaration has them.
const _: () = assert!(View::LEN == 15 && COLOURS == 12);

impl Preprocess {
    /// Names the inputs of a list.
    fn inputs<'a, T>(&self, list: &'a [T]) -> PreprocessInputs<&'a T> {
        PreprocessInputs::of(list, [self.colours])
    }
}

impl Kernel for Preprocess {
    const FLOPS: Flops = Flops::Output(8);

    fn sizes(&self, dims: &mut Dims) {
        let sizes = [("height", self.height), ("width", self.width), ("channels", self.channels)];
        sizes.into_iter().for_each(|(name, extent)| dims.bind(name, extent));
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let pixels = args.inputs[0];
        let extents = [self.height, self.width, self.channels, pixels.dim(1), pixels.dim(0)];
        let transform = StructArg::new()
            .field(self.mean)
            .field(self.std)
            .field(self.pixel_scale)
            .ints(extents)
            .field(i32::from(self.bgr))
            .arg();
        let grid = [pixels.dim(0) * self.height, self.width.div_ceil(PIXELS), 1];
        let kernel = match (self.filter, self.colours) {
            (ResizeFilter::Bilinear, false) => "preprocess_u8",
            (ResizeFilter::Bilinear, true) => "preprocess_colours_u8",
            (ResizeFilter::Pil, false) => "preprocess_pil_u8",
            (ResizeFilter::Pil, true) => "preprocess_pil_colours_u8",
        };
        vec![Launch::new(kernel, grid).tensors(args).arg(transform)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::preprocess(self, &args.inputs, args.outputs[0].f32());
    }
}
