//! CPU reference of `preprocess`.

use rayon::prelude::*;

use super::{Preprocess, PreprocessInputs, ResizeFilter};
use crate::counted::rows_in_use;
use crate::cpu::TensorRef;
use crate::resize::{BilinearTap, PilTaps, bilinear_tap, pil_taps};

/// Sizes of an image, checked against the buffers.
struct Image {
    source: [usize; 2],
    network: [usize; 2],
    flip: bool,
}

/// Writes every image; a row of the output is a task.
pub(super) fn preprocess(op: &Preprocess, inputs: &[TensorRef<'_>], x: &mut [f32]) {
    let inputs = PreprocessInputs::of(inputs);
    let row_len = op.channels * op.width;
    if op.height * row_len == 0 {
        return;
    }
    let images = rows_in_use(inputs.num_images.i32(), inputs.pixels.shape()[0]);
    let tables = normalise_table(op);
    x.par_chunks_mut(op.height * row_len).enumerate().for_each(|(n, x)| {
        if n >= images {
            x.fill(0.0);
            return;
        }
        let (image, pixels) = image(op, inputs, n);
        let rows = |x: &mut [f32], write: &(dyn Fn(usize, &mut [f32]) + Sync)| {
            x.par_chunks_mut(row_len).enumerate().for_each(|(row, x)| {
                let (inside, padding) = x.split_at_mut(op.channels * image.network[1]);
                padding.fill(0.0);
                match row < image.network[0] {
                    true => write(row, inside),
                    false => inside.fill(0.0),
                }
            });
        };
        if op.filter == ResizeFilter::Pil {
            let resized = pil(&image, pixels);
            let line = 3 * image.network[1];
            rows(x, &|row, x| normalise_row(op, &tables, &resized[row * line..][..line], x));
            return;
        }
        let columns = columns(&image, bilinear_tap);
        rows(x, &|row, inside| {
            let tap = bilinear_tap(row, image.source[0], image.network[0]);
            let line = 3 * image.source[1];
            let rows =
                [tap.low * line..(tap.low + 1) * line, tap.high * line..(tap.high + 1) * line];
            resize_row(op, &columns, tap.fraction, rows.map(|r| &pixels[r]), &tables, inside);
        });
    });
}

/// The normalised value of each byte, for each channel of the output.
fn normalise_table(op: &Preprocess) -> [[f32; 256]; 3] {
    std::array::from_fn(|c| {
        std::array::from_fn(|v| (v as f32 * op.pixel_scale - op.mean[c]) / op.std[c])
    })
}

/// Sizes and pixels of image `n`.
fn image<'a>(
    op: &Preprocess,
    inputs: PreprocessInputs<&TensorRef<'a>>,
    n: usize,
) -> (Image, &'a [u8]) {
    let size = |t: &TensorRef<'_>| [0, 1].map(|i| usize::try_from(t.i32()[2 * n + i]).unwrap_or(0));
    let (source, network) = (size(inputs.source_sizes), size(inputs.network_sizes));
    let (capacity, values) = (inputs.pixels.shape()[1], source[0] * source[1] * 3);
    assert!(
        (1..=capacity).contains(&values) && network[0] <= op.height && network[1] <= op.width,
        "image {n}: {source:?} to {network:?} does not fit {capacity} values, {}x{}",
        op.height,
        op.width
    );
    let range = n * capacity..n * capacity + values;
    let image = Image { source, network, flip: inputs.flips.i32()[n] != 0 };
    (image, &inputs.pixels.u8()[range])
}

/// Source of each output column, flipped where the image is.
fn columns<T>(image: &Image, tap: impl Fn(usize, usize, usize) -> T) -> Vec<T> {
    let width = image.network[1];
    let target = |x: usize| if image.flip { width - 1 - x } else { x };
    (0..width).map(|x| tap(target(x), image.source[1], width)).collect()
}

/// The image at network size, flipped, as rows of RGB: columns first, then rows, as in Pillow.
fn pil(image: &Image, pixels: &[u8]) -> Vec<u8> {
    let ([_, source_width], [height, width]) = (image.source, image.network);
    let columns: Vec<PilTaps> = columns(image, pil_taps);
    let mut narrow = vec![0u8; 3 * image.source[0] * width];
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
        let taps = pil_taps(row, image.source[0], height);
        for (at, value) in line.iter_mut().enumerate() {
            *value = taps.sum(|i| narrow[3 * width * i + at]);
        }
    });
    resized
}

/// A row of RGB in the order of the output's channels, normalised.
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
