//! CPU reference of depthwise convolutions.

use std::ops::Range;

use rayon::prelude::*;

use crate::isa::{Isa, wide};
use crate::matmul::ConvShape;

/// Channels processed together.
const BLOCK: usize = 32;

/// `y = conv(x, w) + bias`, or, with `turned` filters (rotated by 180 degrees), the input gradient:
/// `x`, `y [N,H,W,C]`, `w [C,R,S,1]`.
pub(crate) fn convolve_on_cpu(
    s: &ConvShape,
    x: &[f32],
    w: &[f32],
    (bias, turned): (Option<&[f32]>, bool),
    y: &mut [f32],
) {
    let (channels, taps) = (s.channels, s.kernel_h * s.kernel_w);
    if y.is_empty() {
        return;
    }
    // Transposes the filters so that channels are contiguous.
    let mut filters = vec![0.0; taps * channels];
    for (i, filter) in filters.iter_mut().enumerate() {
        let (tap, c) = (i / channels, i % channels);
        *filter = w[c * taps + if turned { taps - 1 - tap } else { tap }];
    }
    let zeros = vec![0.0; channels];
    let (isa, bias) = (Isa::get(), bias.unwrap_or(&zeros));
    let line = s.width * channels;
    y.par_chunks_mut(line).enumerate().for_each(|(at, y)| {
        row(isa, s, x, (&filters, bias), at, turned, y);
    });
}

wide! {
    /// Computes row `at % H` of the output of image `at / H`.
    fn row(
        s: &ConvShape,
        x: &[f32],
        weights: (&[f32], &[f32]),
        at: usize,
        turned: bool,
        y: &mut [f32],
    ) {
        let (channels, (filters, bias)) = (s.channels, weights);
        let turn = |kernel: usize| if turned { kernel - 1 - s.pad } else { s.pad };
        let [above, before] = [s.kernel_h, s.kernel_w].map(turn);
        let (image, p) = (at / s.height, at % s.height);
        let taps_h = taps(p, above, s.kernel_h, s.height);
        for first in (0..channels).step_by(BLOCK) {
            let width = BLOCK.min(channels - first);
            for (q, y) in y.chunks_exact_mut(channels).enumerate() {
                let mut sums = [0.0f32; BLOCK];
                sums[..width].copy_from_slice(&bias[first..first + width]);
                let taps_w = taps(q, before, s.kernel_w, s.width);
                for r in taps_h.clone() {
                    let pixel = (image * s.height + p + r - above) * s.width + q + taps_w.start;
                    let x = &x[(pixel - before) * channels + first..];
                    let filters = &filters[(r * s.kernel_w + taps_w.start) * channels + first..];
                    for t in 0..taps_w.len() {
                        let (x, filter) = (&x[t * channels..], &filters[t * channels..]);
                        if width == BLOCK {
                            let (x, filter) = (&x[..BLOCK], &filter[..BLOCK]);
                            for i in 0..BLOCK {
                                sums[i] = x[i].mul_add(filter[i], sums[i]);
                            }
                        } else {
                            let pairs = x.iter().zip(filter);
                            for (sum, (x, filter)) in sums[..width].iter_mut().zip(pairs) {
                                *sum = x.mul_add(*filter, *sum);
                            }
                        }
                    }
                }
                y[first..first + width].copy_from_slice(&sums[..width]);
            }
        }
    }
}

/// The range of taps inside the map along an axis, for output coordinate `at`: tap `t` reads input
/// coordinate `at + t - before`.
#[inline(always)]
fn taps(at: usize, before: usize, kernel: usize, extent: usize) -> Range<usize> {
    before.saturating_sub(at)..kernel.min((extent + before).saturating_sub(at))
}

/// `dw[c] = sum over positions of g[position][c] * window(x, position)[c]`, overwritten: sums
/// within a row in f32, over rows in f64.
pub(crate) fn grad_weight_on_cpu(s: &ConvShape, x: &[f32], g: &[f32], dw: &mut [f32]) {
    let (isa, taps) = (Isa::get(), s.kernel_h * s.kernel_w);
    dw.par_chunks_mut(BLOCK * taps).enumerate().for_each(|(block, dw)| {
        let (first, width) = (block * BLOCK, dw.len() / taps);
        let mut total = vec![0.0f64; taps * BLOCK];
        let mut sums = vec![[0.0f32; BLOCK]; taps];
        for at in 0..s.images * s.height {
            sums.fill([0.0; BLOCK]);
            accumulate_row(isa, s, x, g, at, (first, width), &mut sums);
            for (total, sum) in total.iter_mut().zip(sums.as_flattened()) {
                *total += f64::from(*sum);
            }
        }
        for (i, dw) in dw.iter_mut().enumerate() {
            *dw = total[i % taps * BLOCK + i / taps] as f32;
        }
    });
}

wide! {
    /// Accumulates row `at % H` of image `at / H`, for `block.1` channels from `block.0`.
    fn accumulate_row(
        s: &ConvShape,
        x: &[f32],
        g: &[f32],
        at: usize,
        block: (usize, usize),
        sums: &mut [[f32; BLOCK]],
    ) {
        let (first, width) = block;
        let (image, p) = (at / s.height, at % s.height);
        for r in 0..s.kernel_h {
            let Some(h) = (p + r).checked_sub(s.pad).filter(|h| *h < s.height) else { continue };
            let line = (image * s.height + h) * s.width;
            for t in 0..s.kernel_w {
                let sums = &mut sums[r * s.kernel_w + t];
                let mut lanes = *sums;
                for q in s.pad.saturating_sub(t)..s.width.min((s.width + s.pad).saturating_sub(t)) {
                    let x = &x[(line + q + t - s.pad) * s.channels + first..];
                    let g = &g[(at * s.width + q) * s.channels + first..];
                    if let (Some((x, _)), Some((g, _))) =
                        (x.split_first_chunk::<BLOCK>(), g.split_first_chunk::<BLOCK>())
                        && width == BLOCK
                    {
                        for i in 0..BLOCK {
                            lanes[i] = x[i].mul_add(g[i], lanes[i]);
                        }
                    } else {
                        for ((lane, x), g) in lanes.iter_mut().zip(x).zip(g).take(width) {
                            *lane = x.mul_add(*g, *lane);
                        }
                    }
                }
                *sums = lanes;
            }
        }
    }
}
