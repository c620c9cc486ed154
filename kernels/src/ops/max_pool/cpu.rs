//! CPU reference of `max_pool` and its gradient.

use std::ops::Range;

use rayon::prelude::*;

use super::MaxPool;

/// Input coordinates that window `o` covers along an axis of `extent`.
fn window(pool: &MaxPool, o: usize, extent: usize) -> Range<usize> {
    let start = o * pool.stride;
    start.saturating_sub(pool.pad)..(start + pool.kernel).saturating_sub(pool.pad).min(extent)
}

/// `x` holds maps of `[H, W, C]`; `y` and `argmax` maps of `[P, Q, C]`.
pub(super) fn max_pool(
    pool: &MaxPool,
    x: &[f32],
    [h, w, c]: [usize; 3],
    [p, q]: [usize; 2],
    y: &mut [f32],
    argmax: &mut [i32],
) {
    if y.is_empty() {
        return;
    }
    let lines = y.par_chunks_mut(q * c).zip(argmax.par_chunks_mut(q * c)).enumerate();
    lines.for_each(|(line, (y, argmax))| {
        let image = &x[line / p * h * w * c..][..h * w * c];
        let rows = window(pool, line % p, h);
        let cells = y.chunks_exact_mut(c).zip(argmax.chunks_exact_mut(c)).enumerate();
        for (o, (y, argmax)) in cells {
            let columns = window(pool, o, w);
            y.fill(f32::NEG_INFINITY);
            argmax.fill((rows.start * w + columns.start) as i32);
            for pixel in rows.clone().flat_map(|r| columns.clone().map(move |s| r * w + s)) {
                let values = &image[pixel * c..(pixel + 1) * c];
                for ((best, at), &v) in y.iter_mut().zip(argmax.iter_mut()).zip(values) {
                    let wins = v > *best || v.is_nan();
                    *best = if wins { v } else { *best };
                    *at = if wins { pixel as i32 } else { *at };
                }
            }
        }
    });
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
