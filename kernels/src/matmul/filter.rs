//! The gradient of one filter of a 1x1 convolution if only some images have a gradient for it.

use rayon::prelude::*;

use super::BLOCK;
use super::tile::{Acc, Tile, with_tile};
use crate::isa::Isa;

/// `dw[c] = sum over the positions of images of g[position] * x[position][c]`: `x [N,positions,C]`,
/// `g [N,positions]`, `dw [C]`, overwritten; `images` are ascending. Bit-identical to
/// [`super::conv_grad_weight`] with a gradient of 0 in all other images, up to the sign of zeros.
pub(crate) fn filter_gradient(
    x: &[f32],
    g: &[f32],
    positions: usize,
    images: &[usize],
    dw: &mut [f32],
) {
    let all = images.iter().flat_map(|image| image * positions..(image + 1) * positions);
    let all: Vec<usize> = all.collect();
    with_tile!(Isa::get(), |tile| add_up(tile, x, g, &all, dw));
}

/// [`filter_gradient`] over the positions `all`.
fn add_up<const MR: usize, const NR: usize>(
    tile: impl Tile<MR, NR>,
    x: &[f32],
    g: &[f32],
    all: &[usize],
    dw: &mut [f32],
) {
    let channels = dw.len();
    dw.par_chunks_mut(NR).enumerate().for_each(|(panel, dw)| {
        let (first, width) = (panel * NR, dw.len());
        let mut acc = Acc::new();
        let (mut slopes, mut values) = ([0.0; BLOCK], [[0.0; NR]; BLOCK]);
        dw.fill(0.0);
        for block in all.chunk_by(|a, b| a / BLOCK == b / BLOCK) {
            for ((&at, slope), values) in block.iter().zip(&mut slopes).zip(&mut values) {
                *slope = g[at];
                let channels = &x[at * channels + first..][..width];
                match <&[f32; NR]>::try_from(channels) {
                    Ok(whole) => *values = *whole,
                    Err(_) => values[..width].copy_from_slice(channels),
                }
            }
            tile.outer((1, width), block.len(), &slopes, values.as_flattened(), &mut acc);
            dw.iter_mut().zip(&acc.0[0]).for_each(|(dw, sum)| *dw += sum);
        }
    });
}
