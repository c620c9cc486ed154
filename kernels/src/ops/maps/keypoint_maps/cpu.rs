//! CPU reference of `keypoint_maps` and its gradient.

use rayon::prelude::*;

use crate::counted::rows_in_use;
use crate::cpu::CpuArgs;

/// The two positions that a pixel of a doubled axis reads, and the weight of the second.
fn taps(at: usize, extent: usize) -> ([usize; 2], f32) {
    let source = (0.5 * (at as f32 + 0.5) - 0.5).max(0.0);
    let first = source as usize;
    ([first, (first + 1).min(extent - 1)], source - first as f32)
}

/// The pixels of a doubled axis that read position `at`, in order, with their weights.
fn readers(at: usize, extent: usize) -> impl Iterator<Item = (usize, f32)> {
    let pixels = (2 * at).saturating_sub(1)..(2 * at + 3).min(2 * extent);
    pixels.map(move |pixel| {
        let ([first, second], weight) = taps(pixel, extent);
        let of = |position, weight: f32| if position == at { weight } else { 0.0 };
        (pixel, of(first, 1.0 - weight) + of(second, weight))
    })
}

pub(super) fn double(args: &mut CpuArgs<'_>) {
    let x = args.inputs[0];
    let [rois, height, width, per_roi] = [0, 1, 2, 3].map(|i| x.desc.dim(i));
    let count = rows_in_use(args.inputs[1].i32(), rois);
    let (x, maps) = (x.f32(), args.outputs[0].f32());
    if maps.is_empty() {
        return;
    }
    maps.par_chunks_mut(4 * height * width).enumerate().for_each(|(row, map)| {
        let (roi, k) = (row / per_roi, row % per_roi);
        if roi >= count {
            return map.fill(0.0);
        }
        let value =
            |y: usize, column: usize| x[((roi * height + y) * width + column) * per_roi + k];
        for (y, line) in map.chunks_exact_mut(2 * width).enumerate() {
            let ([top, bottom], down) = taps(y, height);
            for (column, out) in line.iter_mut().enumerate() {
                let ([left, right], across) = taps(column, width);
                let upper = (1.0 - across) * value(top, left) + across * value(top, right);
                let lower = (1.0 - across) * value(bottom, left) + across * value(bottom, right);
                *out = (1.0 - down) * upper + down * lower;
            }
        }
    });
}

pub(super) fn gather(args: &mut CpuArgs<'_>) {
    let [rois, height, width, per_roi] = [0, 1, 2, 3].map(|i| args.outputs[0].shape()[i]);
    let count = rows_in_use(args.inputs[1].i32(), rois);
    let (g, dx) = (args.inputs[0].f32(), args.outputs[0].f32());
    if dx.is_empty() {
        return;
    }
    dx.par_chunks_mut(height * width * per_roi).enumerate().for_each(|(roi, dx)| {
        if roi >= count {
            return dx.fill(0.0);
        }
        for (i, dx) in dx.iter_mut().enumerate() {
            let (k, column, y) = (i % per_roi, i / per_roi % width, i / per_roi / width);
            let map = &g[(roi * per_roi + k) * 4 * height * width..][..4 * height * width];
            let mut sum = 0.0;
            for (line, down) in readers(y, height) {
                for (pixel, across) in readers(column, width) {
                    sum += down * across * map[line * 2 * width + pixel];
                }
            }
            *dx = sum;
        }
    });
}
