//! CPU reference of `group_norm` and its gradients.

use rayon::prelude::*;

use crate::TensorDesc;
use crate::isa::{Isa, wide};

/// Positions per task; sums within a task are in f32.
const CHUNK: usize = 128;

/// Sizes of a map and its groups.
#[derive(Debug, Clone, Copy)]
pub(super) struct Map {
    images: usize,
    positions: usize,
    channels: usize,
    groups: usize,
}

impl Map {
    /// Sizes of `x [N,H,W,C]`.
    pub(super) fn new(x: &TensorDesc, groups: usize) -> Self {
        let positions = x.dim(1) * x.dim(2);
        Self { images: x.dim(0), positions, channels: x.dim(3), groups }
    }

    /// Number of tasks per image.
    fn chunks(&self) -> usize {
        self.positions.div_ceil(CHUNK)
    }

    fn group_channels(&self) -> usize {
        self.channels / self.groups
    }

    /// Number of elements for two sums per channel of each chunk.
    pub(super) fn partial_len(&self) -> usize {
        self.images * self.chunks() * 2 * self.channels
    }

    /// Range of the chunk's elements in a map.
    fn range(&self, chunk: usize) -> std::ops::Range<usize> {
        let (image, part) = (chunk / self.chunks(), chunk % self.chunks());
        let start = part * CHUNK;
        let end = self.positions.min(start + CHUNK);
        let base = image * self.positions;
        (base + start) * self.channels..(base + end) * self.channels
    }

    /// Splits a map into chunks that tasks may write.
    fn cut<'a>(&self, map: &'a mut [f32]) -> impl IndexedParallelIterator<Item = &'a mut [f32]> {
        let mut rest = map;
        let mut chunks = Vec::with_capacity(self.images * self.chunks());
        for chunk in 0..self.images * self.chunks() {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(self.range(chunk).len());
            chunks.push(head);
            rest = tail;
        }
        chunks.into_par_iter()
    }

    /// Sums the chunks of one image: two sums in f64 for channel `c`.
    fn combine(&self, partial: &[f32], image: usize, c: usize) -> (f64, f64) {
        let chunks = image * self.chunks()..(image + 1) * self.chunks();
        let at = |chunk: usize, which: usize| {
            f64::from(partial[(2 * chunk + which) * self.channels + c])
        };
        chunks.fold((0.0, 0.0), |(a, b), chunk| (a + at(chunk, 0), b + at(chunk, 1)))
    }
}

/// Writes mean and 1 / sqrt(variance + eps) of every group of every image.
pub(super) fn statistics(map: Map, x: &[f32], eps: f32, stats: &mut [f32], partial: &mut [f32]) {
    let c = map.channels;
    if stats.is_empty() {
        return;
    }
    let image_len = map.positions * c;
    let isa = Isa::get();
    let partial = &mut partial[..map.partial_len()];
    partial.par_chunks_mut(2 * c).enumerate().for_each(|(chunk, partial)| {
        partial.fill(0.0);
        let (sums, squares) = partial.split_at_mut(c);
        let shift = &x[chunk / map.chunks() * image_len..][..c];
        add_moments(isa, &x[map.range(chunk)], shift, sums, squares);
    });
    let count = (map.positions * map.group_channels()) as f64;
    for (i, stats) in stats.chunks_exact_mut(2).enumerate() {
        let (image, group) = (i / map.groups, i % map.groups);
        let channels = group * map.group_channels()..(group + 1) * map.group_channels();
        // For each channel: the shift, and the sums of x - shift and of (x - shift)^2.
        let parts: Vec<_> = channels
            .map(|c| (f64::from(x[image * image_len + c]), map.combine(partial, image, c)))
            .collect();
        let per_channel = map.positions as f64;
        let mean = parts.iter().map(|(s, (d, _))| s * per_channel + d).sum::<f64>() / count;
        let around = |(shift, (d, square)): &(f64, (f64, f64))| {
            let m = mean - shift;
            square - 2.0 * m * d + per_channel * m * m
        };
        let variance = (parts.iter().map(around).sum::<f64>() / count).max(0.0);
        stats[0] = mean as f32;
        stats[1] = (1.0 / (variance + f64::from(eps)).sqrt()) as f32;
    }
}

wide! {
    /// Accumulates `x - shift` and its square per channel.
    fn add_moments(x: &[f32], shift: &[f32], sums: &mut [f32], squares: &mut [f32]) {
        for row in x.chunks_exact(shift.len()) {
            let sums = sums.iter_mut().zip(squares.iter_mut());
            for ((sum, square), (x, shift)) in sums.zip(row.iter().zip(shift)) {
                let d = x - shift;
                *sum += d;
                *square += d * d;
            }
        }
    }
}

/// Writes `y = relu((x - mean) * rstd * gamma + beta + residual)`.
pub(super) fn normalise(
    map: Map,
    x: &[f32],
    (gamma, beta): (&[f32], &[f32]),
    residual: Option<&[f32]>,
    relu: bool,
    stats: &[f32],
    y: &mut [f32],
) {
    let isa = Isa::get();
    map.cut(y).enumerate().for_each(|(chunk, y)| {
        let (mean, factor) = factors(map, stats, chunk / map.chunks(), gamma);
        let range = map.range(chunk);
        let residual = residual.map(|r| &r[range.clone()]);
        scale_and_shift(isa, &x[range], [&mean, &factor, beta], residual, relu, y);
    });
}

wide! {
    /// `y = relu((x - mean) * factor + beta + residual)`, with per-channel parameters.
    fn scale_and_shift(
        x: &[f32],
        by: [&[f32]; 3],
        residual: Option<&[f32]>,
        relu: bool,
        y: &mut [f32],
    ) {
        let c = by[0].len();
        for (i, (y, x)) in y.chunks_exact_mut(c).zip(x.chunks_exact(c)).enumerate() {
            let by = by[0].iter().zip(by[1]).zip(by[2]);
            for ((y, x), ((mean, factor), beta)) in y.iter_mut().zip(x).zip(by) {
                *y = (x - mean) * factor + beta;
            }
            if let Some(residual) = residual {
                y.iter_mut().zip(&residual[i * c..]).for_each(|(y, r)| *y += r);
            }
            if relu {
                // `max` is not used, since it would replace NaN by 0.
                y.iter_mut().for_each(|y| *y = if *y < 0.0 { 0.0 } else { *y });
            }
        }
    }
}

/// For each channel of an image: mean and `rstd * gamma`.
fn factors(map: Map, stats: &[f32], image: usize, gamma: &[f32]) -> (Vec<f32>, Vec<f32>) {
    let stats = &stats[2 * image * map.groups..2 * (image + 1) * map.groups];
    let of = |c: usize| &stats[2 * (c / map.group_channels())..];
    (0..map.channels).map(|c| (of(c)[0], of(c)[1] * gamma[c])).unzip()
}

/// Writes, for each image and channel, the sums of `g` and of `g * normalised(x)`: `[N, 2, C]`.
pub(super) fn grad_sums(
    map: Map,
    (g, x): (&[f32], &[f32]),
    stats: &[f32],
    sums: &mut [f32],
    partial: &mut [f32],
) {
    let c = map.channels;
    if sums.is_empty() {
        return;
    }
    let (ones, isa) = (vec![1.0; c], Isa::get());
    let partial = &mut partial[..map.partial_len()];
    partial.par_chunks_mut(2 * c).enumerate().for_each(|(chunk, partial)| {
        partial.fill(0.0);
        let (sums, products) = partial.split_at_mut(c);
        let (mean, rstd) = factors(map, stats, chunk / map.chunks(), &ones);
        let range = map.range(chunk);
        add_channel_sums(isa, &g[range.clone()], &x[range], &mean, sums, products);
        products.iter_mut().zip(&rstd).for_each(|(p, r)| *p *= r);
    });
    for (image, sums) in sums.chunks_exact_mut(2 * c).enumerate() {
        for channel in 0..c {
            let (a, b) = map.combine(partial, image, channel);
            (sums[channel], sums[c + channel]) = (a as f32, b as f32);
        }
    }
}

wide! {
    /// Accumulates `g` and `g * (x - mean)` per channel.
    fn add_channel_sums(
        g: &[f32],
        x: &[f32],
        mean: &[f32],
        sums: &mut [f32],
        products: &mut [f32],
    ) {
        for (g, x) in g.chunks_exact(mean.len()).zip(x.chunks_exact(mean.len())) {
            let sums = sums.iter_mut().zip(products.iter_mut());
            for ((sum, product), ((g, x), mean)) in sums.zip(g.iter().zip(x).zip(mean)) {
                *sum += g;
                *product += g * (x - mean);
            }
        }
    }
}

/// Writes `dx = rstd * (gamma * g - mean over the group of (gamma * g) - normalised(x) * mean over
/// the group of (gamma * g * normalised(x)))`.
pub(super) fn grad_input(
    map: Map,
    (g, x): (&[f32], &[f32]),
    gamma: &[f32],
    stats: &[f32],
    sums: &[f32],
    dx: &mut [f32],
) {
    let isa = Isa::get();
    map.cut(dx).enumerate().for_each(|(chunk, dx)| {
        let image = chunk / map.chunks();
        let (mean, factor) = factors(map, stats, image, gamma);
        let (slope, offset) = corrections(map, gamma, stats, sums, image);
        let range = map.range(chunk);
        let by = [&mean, &factor, &slope, &offset].map(|v| &v[..]);
        combine_gradient(isa, &g[range.clone()], &x[range], by, dx);
    });
}

wide! {
    /// `dx = g * factor - (x - mean) * slope - offset`, with per-channel parameters.
    fn combine_gradient(g: &[f32], x: &[f32], by: [&[f32]; 4], dx: &mut [f32]) {
        let c = by[0].len();
        let rows = g.chunks_exact(c).zip(x.chunks_exact(c));
        for (dx, (g, x)) in dx.chunks_exact_mut(c).zip(rows) {
            let by = by[0].iter().zip(by[1]).zip(by[2].iter().zip(by[3]));
            let values = dx.iter_mut().zip(g.iter().zip(x)).zip(by);
            for ((dx, (g, x)), ((mean, factor), (slope, offset))) in values {
                *dx = g * factor - (x - mean) * slope - offset;
            }
        }
    }
}

/// For each channel of an image `(slope, offset)` of `dx = factor * g - (x - mean) * slope -
/// offset`.
fn corrections(
    map: Map,
    gamma: &[f32],
    stats: &[f32],
    sums: &[f32],
    image: usize,
) -> (Vec<f32>, Vec<f32>) {
    let (c, size) = (map.channels, map.group_channels());
    let sums = &sums[2 * image * c..2 * (image + 1) * c];
    let count = (map.positions * size) as f64;
    let mut slope = Vec::with_capacity(c);
    let mut offset = Vec::with_capacity(c);
    for group in 0..map.groups {
        let rstd = f64::from(stats[2 * (image * map.groups + group) + 1]);
        let mean_of = |which: usize| {
            let weighted = |i: usize| f64::from(gamma[i]) * f64::from(sums[which * c + i]);
            (group * size..(group + 1) * size).map(weighted).sum::<f64>() / count
        };
        slope.extend(std::iter::repeat_n((rstd * rstd * mean_of(1)) as f32, size));
        offset.extend(std::iter::repeat_n((rstd * mean_of(0)) as f32, size));
    }
    (slope, offset)
}
