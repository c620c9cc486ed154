//! Packing of weights into panels as wide as the register tile, in the order in which the tile
//! reads them.

use std::ops::Range;

use super::transpose::transpose;
use crate::isa::{Isa, wide};
use crate::tasks;

/// Weights `[K][taps][C]` as the right matrix of a GEMM.
#[derive(Debug, Clone, Copy)]
pub(super) enum Weights<'a> {
    /// Columns are filters, rows are (tap, channel): the forward pass.
    Filters {
        /// The weights.
        values: &'a [f32],
        /// Taps times channels.
        filter_len: usize,
        /// Elements per tap of a filter.
        channels: usize,
    },
    /// Columns are channels, rows are (tap, filter): the input gradient, of one group.
    Channels {
        /// The weights.
        values: &'a [f32],
        /// Taps times channels.
        filter_len: usize,
        /// Elements per tap of a filter.
        channels: usize,
        /// A scale for each filter.
        scale: Option<&'a [f32]>,
    },
}

/// A part of the reduction: some taps, and of each tap `run` elements from `start` on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    /// First tap, as an index into the taps of the row map.
    pub tap: usize,
    /// Number of taps.
    pub taps: usize,
    /// First element of each tap.
    pub start: usize,
    /// Elements of each tap.
    pub run: usize,
}

impl Block {
    /// Rows of the right matrix.
    pub(super) fn depth(&self) -> usize {
        self.taps * self.run
    }
}

/// Maximum columns packed together: a row of the weights is then read in long runs.
const TOGETHER: usize = 256;

/// Packs `blocks` for `columns` into `out`: for each block its panels, for each panel the block's
/// rows of `NR` columns. Columns past the last are zero. `kernel_taps` lists the taps.
pub(super) fn pack<const NR: usize>(
    weights: Weights<'_>,
    blocks: &[Block],
    columns: Range<usize>,
    kernel_taps: &[usize],
    out: &mut [f32],
) {
    let mut rest = out;
    let mut parts = Vec::new();
    let of_block = tasks::wanted().div_ceil(blocks.len().max(1));
    let together = columns.len().div_ceil(of_block).next_multiple_of(NR).clamp(NR, TOGETHER);
    for block in blocks {
        for start in columns.clone().step_by(together) {
            let columns = start..columns.end.min(start + together);
            let len = block.depth() * columns.len().next_multiple_of(NR);
            let (part, tail) = std::mem::take(&mut rest).split_at_mut(len);
            parts.push((part, block, columns));
            rest = tail;
        }
    }
    let isa = Isa::get();
    tasks::each(parts, |(part, block, columns)| {
        pack_block::<NR>(isa, weights, block, columns, kernel_taps, part);
    });
}

/// Packs one block for `columns`, on this thread.
pub(super) fn pack_block<const NR: usize>(
    isa: Isa,
    weights: Weights<'_>,
    block: &Block,
    columns: Range<usize>,
    kernel_taps: &[usize],
    out: &mut [f32],
) {
    let taps = &kernel_taps[block.tap..block.tap + block.taps];
    match weights {
        Weights::Filters { values, filter_len, channels } => {
            if block.depth() == 0 {
                return;
            }
            let panels = out.chunks_exact_mut(block.depth() * NR);
            for (panel, first) in panels.zip(columns.clone().step_by(NR)) {
                let width = NR.min(columns.end - first);
                if width < NR {
                    panel.fill(0.0);
                }
                for (rows, tap) in panel.chunks_exact_mut(block.run * NR).zip(taps) {
                    let from = &values[first * filter_len + tap * channels + block.start..];
                    transpose(isa, (from, filter_len), (width, block.run), (rows, NR));
                }
            }
        }
        Weights::Channels { values, filter_len, channels, scale } => {
            for (t, tap) in taps.iter().enumerate() {
                for i in 0..block.run {
                    let k = block.start + i;
                    let from = k * filter_len + tap * channels;
                    let row = &values[from + columns.start..from + columns.end];
                    let place = (t * block.run + i, block.depth());
                    scatter_row::<NR>(isa, row, scale.map_or(1.0, |s| s[k]), place, out);
                }
            }
        }
    }
}

wide! {
    /// Writes `row * factor`, followed by zeros, to row `place.0` of panels that have `place.1`
    /// rows each.
    fn scatter_row[const NR](row: &[f32], factor: f32, place: (usize, usize), out: &mut [f32]) {
        let (at, depth) = place;
        let (whole, rest) = row.as_chunks::<NR>();
        let mut panels = out.chunks_exact_mut(depth * NR);
        for (source, panel) in whole.iter().zip(&mut panels) {
            let to = &mut panel[at * NR..(at + 1) * NR];
            to.iter_mut().zip(source).for_each(|(to, v)| *to = v * factor);
        }
        if let Some(panel) = panels.next() {
            let to = &mut panel[at * NR..(at + 1) * NR];
            to.fill(0.0);
            to.iter_mut().zip(rest).for_each(|(to, v)| *to = v * factor);
        }
    }
}
