//! GEMMs with bf16 operands and f32 accumulators: operands are stored as pairs of bf16, each of
//! which the tile processes as one element.

use std::cell::Cell;

use super::ConvShape;
#[cfg(target_arch = "x86_64")]
use crate::isa::Avx512Bf16;
use crate::isa::{Isa, wide};
use crate::tasks;

thread_local! {
    /// Buffers for a GEMM's operands as pairs. A running GEMM takes them out, as this thread may
    /// start the GEMM of a different task while it waits.
    static OPERANDS: Cell<[Vec<f32>; 2]> = const { Cell::new([Vec::new(), Vec::new()]) };
}

/// Elements converted per task.
const PIECE: usize = 1 << 16;

/// Calls `product` with the convolution over pairs and with both operands of a forward GEMM as
/// pairs along the channels. Returns false, without a call, if the number of channels is odd.
#[cfg(target_arch = "x86_64")]
pub(super) fn forward(
    proof: Avx512Bf16,
    merged: &ConvShape,
    [x, w]: [&[f32]; 2],
    product: impl FnOnce(Avx512Bf16, &ConvShape, [&[f32]; 2]),
) -> bool {
    if !merged.group_channels().is_multiple_of(2) {
        return false;
    }
    let of_pairs = ConvShape { channels: merged.channels / 2, ..*merged };
    let x = &x[..merged.images * merged.height * merged.width * merged.channels];
    let [mut xs, mut ws] = OPERANDS.take();
    along_rows(proof.isa(), x, &mut xs);
    along_rows(proof.isa(), w, &mut ws);
    product(proof, &of_pairs, [&xs, &ws]);
    OPERANDS.set([xs, ws]);
    true
}

/// [`forward`] for the input gradient: pairs along the filters. Returns false also for grouped
/// convolutions.
#[cfg(target_arch = "x86_64")]
pub(super) fn grad_input(
    proof: Avx512Bf16,
    merged: &ConvShape,
    [g, w]: [&[f32]; 2],
    scale: Option<&[f32]>,
    product: impl FnOnce(Avx512Bf16, &ConvShape, [&[f32]; 2]),
) -> bool {
    let row = merged.filter_len();
    if merged.groups > 1 || !merged.filters.is_multiple_of(2) || row == 0 {
        return false;
    }
    let of_pairs = ConvShape { filters: merged.filters / 2, ..*merged };
    let g = &g[..merged.out_positions() * merged.filters];
    let [mut gs, mut ws] = OPERANDS.take();
    along_rows(proof.isa(), g, &mut gs);
    ws.resize(w.len() / 2, 0.0);
    let rows = w.chunks_exact(2 * row).zip(ws.chunks_exact_mut(row)).enumerate();
    tasks::each(rows.collect(), |(i, (pair, out))| {
        let [low, high] = [0, 1].map(|at| scale.map_or(1.0, |scale| scale[2 * i + at]));
        let (first, second) = pair.split_at(row);
        across(proof.isa(), first, second, [low, high], out);
    });
    product(proof, &of_pairs, [&gs, &ws]);
    OPERANDS.set([gs, ws]);
    true
}

/// Converts pairs of adjacent values.
fn along_rows(isa: Isa, values: &[f32], out: &mut Vec<f32>) {
    out.resize(values.len() / 2, 0.0);
    let pieces = values.chunks(2 * PIECE).zip(out.chunks_mut(PIECE));
    tasks::each(pieces.collect(), |(values, out)| neighbours(isa, values, out));
}

/// The nearest bf16, ties to even, as the upper half of an f32.
#[inline(always)]
fn rounded(value: f32) -> u32 {
    let bits = value.to_bits();
    let up = bits.wrapping_add(0x7FFF + ((bits >> 16) & 1));
    // A NaN stays NaN.
    let is_nan = bits & 0x7FFF_FFFF > 0x7F80_0000;
    (if is_nan { bits | 0x40_0000 } else { up }) & 0xFFFF_0000
}

wide! {
    /// Rounds adjacent values to pairs of bf16.
    pub(super) fn neighbours(values: &[f32], out: &mut [f32]) {
        for ([low, high], out) in values.as_chunks::<2>().0.iter().zip(out) {
            *out = f32::from_bits(rounded(*low) >> 16 | rounded(*high));
        }
    }
}

wide! {
    fn across(first: &[f32], second: &[f32], factors: [f32; 2], out: &mut [f32]) {
        for ((low, high), out) in first.iter().zip(second).zip(out) {
            let [low, high] = [low * factors[0], high * factors[1]];
            *out = f32::from_bits(rounded(low) >> 16 | rounded(high));
        }
    }
}

wide! {
    /// Rounds rows of `width` to bf16 and packs two rows into one row of pairs, in place: the first
    /// half of the rows then contains the pairs. An odd last row is paired with zeros.
    pub(super) fn pair_rows(width: usize, rows: &mut [f32]) {
        let pairs = (rows.len() / width).div_ceil(2);
        let (first, second) = rows.split_at_mut(width);
        pair_row(first, second);
        for pair in 1..pairs {
            let (out, from) = rows.split_at_mut(2 * pair * width);
            let out = &mut out[pair * width..(pair + 1) * width];
            let (low, high) = from.split_at(width);
            out.copy_from_slice(low);
            pair_row(out, high);
        }
    }
}

/// Rounds a row and the next row, if there is one, to pairs, which replace the first row.
#[inline(always)]
fn pair_row(row: &mut [f32], next: &[f32]) {
    if next.is_empty() {
        row.iter_mut().for_each(|low| *low = f32::from_bits(rounded(*low) >> 16));
        return;
    }
    for (low, high) in row.iter_mut().zip(next) {
        *low = f32::from_bits(rounded(*low) >> 16 | rounded(*high));
    }
}
