//! Source images to the network's input: crop, resize, transpose, adjust colours, normalise, pad.
//!
//! [`ResizeFilter::Bilinear`] matches torchvision's `GeneralizedRCNNTransform`: `(v - mean) / std`,
//! bilinear resize (`align_corners=False`, scale from the two sizes), flip, zero padding right and
//! below. [`ResizeFilter::Pil`] resizes in bytes like Pillow, before normalisation, as
//! maskrcnn-benchmark does. With `colours`, an affine RGB transform is applied to the resized
//! pixels, which are then clipped to 0..255, before normalisation.

mod cases;

use choices::ResizeFilter;
use device::{Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::contract::{Flops, Kernel};
use crate::counted::rows_in_use;
use crate::cpu::{CpuArgs, TensorRef};
use crate::op;
use crate::resize::{BilinearTap, PilTaps, bilinear_tap, pil_taps};
use crate::view::{Axis, View};

pub use cases::cases;

op! {
    /// Normalises, crops, resizes, flips and pads images. Computed in f32. Memory-bound: four
    /// source pixels are read per output pixel, from cache.
    #[derive(Copy)]
    pub struct Preprocess = "preprocess" {
        /// H, rows of the padded input.
        pub height: usize,
        /// W, columns of the padded input.
        pub width: usize,
        /// C, channels of the output: 3, or 4 for [`crate::ops::stem`].
        pub channels: usize [|channels| [3, 4].contains(channels), "3 or 4"],
        /// Mean in units of the scaled pixels, in the order of the output's channels.
        pub mean: [f32; 3],
        /// Standard deviation in the same units and order.
        pub std: [f32; 3] [|std| std.iter().all(|&s| s > 0.0), "above 0"],
        /// Scale applied to bytes first: 1/255 or 1.
        pub pixel_scale: f32,
        /// The output's channel order is BGR, and mean and std are given in this order.
        pub bgr: bool,
        /// Resize filter.
        pub filter: ResizeFilter,
        /// True if the inputs hold `colours`.
        pub colours: bool,
    }
    in PreprocessInputs {
        /// Pixels of each image (height x width x RGB), packed at the start of the image's row.
        pixels: u8 "[N, B]",
        /// One [`crate::view::View`] per image.
        views: i32 "[N, 15]",
        /// Number of images in use.
        num_images: i32 "[1]",
    }
    optional {
        /// For each of red, green and blue: three coefficients and a constant.
        colours: f32 "[N, 12]" if |op| op.colours,
    }
    out {
        /// 0 in channels past the third, in the padding, and in images at or past `num_images`.
        x: Activation "[N, height, width, channels]",
    }
}

/// Pixels of a row per block; as in `preprocess.cu`.
const PIXELS: usize = 256;

/// Elements of a row of `colours`: 3 rows of 4.
pub const COLOURS: usize = 12;

// The op's declaration repeats these sizes as literals.
const _: () = assert!(View::LEN == 15 && COLOURS == 12);

impl Preprocess {
    /// The inputs in `list`, by name.
    fn inputs<'a, T>(&self, list: &'a [T]) -> PreprocessInputs<&'a T> {
        PreprocessInputs::of(list, [self.colours])
    }
}

impl Kernel for Preprocess {
    const FLOPS: Flops = Flops::Output(8);

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
        let inputs = &args.inputs;
        let x = args.outputs[0].f32();
        let inputs = self.inputs(inputs);
        let row_len = self.channels * self.width;
        if self.height * row_len == 0 {
            return;
        }
        let images = rows_in_use(inputs.num_images.i32(), inputs.pixels.shape()[0]);
        let tables = normalise_table(self);
        let bytes = [std::array::from_fn(|v| v as f32); 3];
        x.par_chunks_mut(self.height * row_len).enumerate().for_each(|(n, x)| {
            if n >= images {
                x.fill(0.0);
                return;
            }
            let (view, pixels) = image(self, inputs, n);
            let colours = inputs.colours.map(|colours| Colours::of(self, colours.f32(), n));
            // Colour transforms apply between resize and normalisation, so with them the tables do
            // not normalise.
            let tables = if colours.is_some() { &bytes } else { &tables };
            let picture = Picture { op: self, view, pixels, colours, tables };
            if view.transposed == 0 {
                picture.draw(x, row_len);
                return;
            }
            let own_len = self.channels * view.x.network as usize;
            let mut own = vec![0.0; own_len * view.y.network as usize];
            picture.draw(&mut own, own_len);
            x.par_chunks_mut(row_len).enumerate().for_each(|(row, x)| {
                x.fill(0.0);
                let column = self.channels * row..self.channels * (row + 1);
                if column.end <= own_len {
                    let pixels = own.chunks_exact(own_len).map(|line| &line[column.clone()]);
                    x.chunks_exact_mut(self.channels)
                        .zip(pixels)
                        .for_each(|(x, p)| x.copy_from_slice(p));
                }
            });
        });
    }
}

/// The normalised value of each byte, for each channel of the output.
fn normalise_table(op: &Preprocess) -> [[f32; 256]; 3] {
    std::array::from_fn(|c| {
        std::array::from_fn(|v| (v as f32 * op.pixel_scale - op.mean[c]) / op.std[c])
    })
}

/// An image, and how it is transformed to the network's input.
struct Picture<'a> {
    op: &'a Preprocess,
    view: View,
    pixels: &'a [u8],
    colours: Option<Colours<'a>>,
    /// The value of each byte, for each channel of the output.
    tables: &'a [[f32; 256]; 3],
}

impl Picture<'_> {
    /// Writes the image into rows of `row_len` values, in the source's orientation, and pads it.
    fn draw(&self, x: &mut [f32], row_len: usize) {
        let Self { op, view: View { y, x: across, .. }, pixels, tables, .. } = *self;
        let [height, width] = [y, across].map(|axis| axis.network as usize);
        let rows = |x: &mut [f32], write: &(dyn Fn(usize, &mut [f32]) + Sync)| {
            x.par_chunks_mut(row_len).enumerate().for_each(|(row, x)| {
                let (inside, padding) = x.split_at_mut(op.channels * width);
                padding.fill(0.0);
                if row >= height {
                    inside.fill(0.0);
                    return;
                }
                write(row, inside);
                if let Some(colours) = &self.colours {
                    inside.chunks_exact_mut(op.channels).for_each(|p| colours.change(op, p));
                }
            });
        };
        if op.filter == ResizeFilter::Pil {
            let resized = pil([y, across], pixels);
            let line = 3 * width;
            rows(x, &|row, x| normalise_row(op, tables, &resized[row * line..][..line], x));
            return;
        }
        let columns = taps(across, bilinear);
        let lines = taps(y, bilinear);
        rows(x, &|row, inside| {
            let (tap, line) = (&lines[row], 3 * across.source as usize);
            let rows = [tap.low, tap.high].map(|row| &pixels[row * line..(row + 1) * line]);
            resize_row(op, &columns, tap.fraction, rows, tables, inside);
        });
    }
}

/// An image's affine colour transform.
struct Colours<'a> {
    /// By output channel: coefficients of red, green and blue, and a constant.
    rows: [&'a [f32]; 3],
}

impl<'a> Colours<'a> {
    fn of(op: &Preprocess, colours: &'a [f32], n: usize) -> Self {
        let row = |c: usize| &colours[COLOURS * n + 4 * if op.bgr { 2 - c } else { c }..][..4];
        Self { rows: [row(0), row(1), row(2)] }
    }

    /// Applies the transform to a byte pixel, and normalises it.
    fn change(&self, op: &Preprocess, pixel: &mut [f32]) {
        let [red, green, blue] = [0, 1, 2].map(|c| pixel[if op.bgr { 2 - c } else { c }]);
        for (c, row) in self.rows.iter().enumerate() {
            let value = row[0] * red + row[1] * green + row[2] * blue + row[3];
            pixel[c] = (value.clamp(0.0, 255.0) * op.pixel_scale - op.mean[c]) / op.std[c];
        }
    }
}

/// View and pixels of image `n`, checked against the buffers.
fn image<'a>(
    op: &Preprocess,
    inputs: PreprocessInputs<&TensorRef<'a>>,
    n: usize,
) -> (View, &'a [u8]) {
    let view = View::of(inputs.views.i32(), n);
    let (capacity, View { y, x, .. }) = (inputs.pixels.shape()[1], view);
    let values = y.source.max(0) as usize * x.source.max(0) as usize * 3;
    let [height, width] = view.network();
    let fits = height as usize <= op.height && width as usize <= op.width;
    assert!(
        y.is_sound() && x.is_sound() && fits && values <= capacity,
        "image {n}: {view:?} does not fit {capacity} values per image or network size {}x{}",
        op.height,
        op.width
    );
    let range = n * capacity..n * capacity + values;
    (view, &inputs.pixels.u8()[range])
}

/// The taps of each pixel of the network's image along an axis, computed by `make(target, window,
/// resized, start)`.
fn taps<T>(axis: Axis, make: impl Fn(usize, usize, usize, usize) -> T) -> Vec<T> {
    let [window, resized, start] =
        [axis.window, axis.resized, axis.start].map(|length| length as usize);
    let pixels = 0..axis.network as usize;
    pixels.map(|at| make(axis.resized_at(at), window, resized, start)).collect()
}

fn bilinear(target: usize, window: usize, resized: usize, start: usize) -> BilinearTap {
    let tap = bilinear_tap(target, window, resized);
    BilinearTap { low: start + tap.low, high: start + tap.high, ..tap }
}

/// The network's image as rows of RGB, resized first along columns and then along rows, as in
/// Pillow.
fn pil([y, x]: [Axis; 2], pixels: &[u8]) -> Vec<u8> {
    let [height, width] = [y, x].map(|axis| axis.network as usize);
    let columns: Vec<PilTaps> = taps(x, |target, window, resized, start| {
        let taps = pil_taps(target, window, resized);
        PilTaps { first: start + taps.first, ..taps }
    });
    let source_width = x.source as usize;
    let window = y.start as usize..(y.start + y.window) as usize;
    let pixels = &pixels[3 * source_width * window.start..3 * source_width * window.end];
    let mut narrow = vec![0u8; 3 * window.len() * width];
    let lines =
        narrow.par_chunks_exact_mut(3 * width).zip(pixels.par_chunks_exact(3 * source_width));
    lines.for_each(|(line, source)| {
        for (taps, pixel) in columns.iter().zip(line.chunks_exact_mut(3)) {
            for (c, value) in pixel.iter_mut().enumerate() {
                *value = taps.sum(|i| source[3 * i + c]);
            }
        }
    });
    let mut resized = vec![0u8; 3 * height * width];
    resized.par_chunks_exact_mut(3 * width).enumerate().for_each(|(row, line)| {
        let taps = pil_taps(y.resized_at(row), window.len(), y.resized as usize);
        for (at, value) in line.iter_mut().enumerate() {
            *value = taps.sum(|i| narrow[3 * width * i + at]);
        }
    });
    resized
}

/// Normalises a row of RGB, and writes it in the order of the output's channels.
fn normalise_row(op: &Preprocess, tables: &[[f32; 256]; 3], line: &[u8], x: &mut [f32]) {
    for (pixel, x) in line.chunks_exact(3).zip(x.chunks_exact_mut(op.channels)) {
        let (x, rest) = x.split_at_mut(3);
        rest.fill(0.0);
        for (c, x) in x.iter_mut().enumerate() {
            let channel = if op.bgr { 2 - c } else { c };
            *x = tables[c][usize::from(pixel[channel])];
        }
    }
}

/// Blends two source rows into one output row.
fn resize_row(
    op: &Preprocess,
    columns: &[BilinearTap],
    fraction: f32,
    [top, bottom]: [&[u8]; 2],
    tables: &[[f32; 256]; 3],
    x: &mut [f32],
) {
    for (tap, x) in columns.iter().zip(x.chunks_exact_mut(op.channels)) {
        let (x, rest) = x.split_at_mut(3);
        rest.fill(0.0);
        for (c, x) in x.iter_mut().enumerate() {
            let channel = if op.bgr { 2 - c } else { c };
            let blend = |row: &[u8]| {
                let normal = |i: usize| tables[c][usize::from(row[3 * i + channel])];
                let [a, b] = [tap.low, tap.high].map(normal);
                (1.0 - tap.fraction) * a + tap.fraction * b
            };
            *x = (1.0 - fraction) * blend(top) + fraction * blend(bottom);
        }
    }
}
