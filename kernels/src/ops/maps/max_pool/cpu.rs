//! CPU reference of `max_pool` and its gradient.

use std::ops::Range;

use rayon::prelude::*;

use super::MaxPool;

/// Channels whose maxima are kept in registers together.
const LANES: usize = 8;

/// Input coordinates that window `o` covers along an axis of `extent`.
fn window(pool: &MaxPool, o: usize, extent: usize) -> Range<usize> {
    let start = o * pool.stride;
    start.saturating_sub(pool.pad)..(start + pool.kernel).saturating_sub(pool.pad).min(extent)
}

/// `x` holds maps of `[H, W, C]`; `y` and `argmax`, which may be absent, maps of
/// `[P, Q, C]`.
pub(super) fn max_pool(
    pool: &MaxPool,
    x: &[f32],
    [h, w, c]: [usize; 3],
    [p, q]: [usize; 2],
    y: &mut [f32],
    argmax: Option<&mut [i32]>,
) {
    if y.is_empty() {
        return;
    }
    let line = |line: usize, y: &mut [f32], mut argmax: Option<&mut [i32]>| {
        let image = &x[line / p * h * w * c..][..h * w * c];
        let rows = window(pool, line % p, h);
        for (o, y) in y.chunks_exact_mut(c).enumerate() {
            let columns = window(pool, o, w);
            let pixels = || rows.clone().flat_map(|r| columns.clone().map(move |s| r * w + s));
            let mut keep = |channel: usize, places: &[i32]| {
                if let Some(argmax) = argmax.as_deref_mut() {
                    argmax[o * c + channel..][..places.len()].copy_from_slice(places);
                }
            };
            let (groups, rest) = y.as_chunks_mut::<LANES>();
            let done = LANES * groups.len();
            for (i, y) in groups.iter_mut().enumerate() {
                let places: [i32; LANES];
                (*y, places) = largest(image, pixels(), c, LANES * i);
                keep(LANES * i, &places);
            }
            for (i, y) in rest.iter_mut().enumerate() {
                let places: [i32; 1];
                ([*y], places) = largest(image, pixels(), c, done + i);
                keep(done + i, &places);
            }
        }
    };
    let lines = y.par_chunks_mut(q * c).enumerate();
    match argmax {
        Some(argmax) => lines
            .zip(argmax.par_chunks_mut(q * c))
            .for_each(|((i, y), argmax)| line(i, y, Some(argmax))),
        None => lines.for_each(|(i, y)| line(i, y, None)),
    }
}

/// Maximum of `N` channels from `channel` on over `pixels`, and the pixel where each was found.
fn largest<const N: usize>(
    image: &[f32],
    mut pixels: impl Iterator<Item = usize>,
    channels: usize,
    channel: usize,
) -> ([f32; N], [i32; N]) {
    let at = |pixel: usize| -> &[f32] { &image[pixel * channels + channel..][..N] };
    let (mut best, mut place) = ([f32::NEG_INFINITY; N], [0; N]);
    if let Some(first) = pixels.next() {
        best.copy_from_slice(at(first));
        place = [first as i32; N];
    }
    for pixel in pixels {
        for ((best, place), &v) in best.iter_mut().zip(&mut place).zip(at(pixel)) {
            // A NaN wins; nothing is larger than it, so only a later NaN takes its place.
            let wins = v > *best || v.is_nan();
            *best = if wins { v } else { *best };
            *place = if wins { pixel as i32 } else { *place };
        }
    }
    (best, place)
}

/// `dx` holds maps of `[H, W, C]`; each of its rows is one task, which reads those windows that
/// touch the row and takes the gradients whose maximum lies in it.
pub(super) fn max_pool_grad(
    pool: &MaxPool,
    g: &[f32],
    argmax: &[i32],
    [h, w, c]: [usize; 3],
    [p, q]: [usize; 2],
    dx: &mut [f32],
) {
    if dx.is_empty() {
        return;
    }
    dx.par_chunks_mut(w * c).enumerate().for_each(|(line, dx)| {
        dx.fill(0.0);
        let (image, row) = (line / h, line % h);
        let first = (row + pool.pad + 1).saturating_sub(pool.kernel).div_ceil(pool.stride);
        let last = ((row + pool.pad) / pool.stride + 1).min(p);
        let pixels = (row * w) as i32..((row + 1) * w) as i32;
        for o in first..last {
            let at = (image * p + o) * q * c..(image * p + o + 1) * q * c;
            let cells = g[at.clone()].chunks_exact(c).zip(argmax[at].chunks_exact(c));
            for (g, maxima) in cells {
                for (channel, (&g, &pixel)) in g.iter().zip(maxima).enumerate() {
                    if pixels.contains(&pixel) {
                        dx[(pixel - pixels.start) as usize * c + channel] += g;
                    }
                }
            }
        }
    });
}
