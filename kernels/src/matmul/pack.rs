//! Packing of weights into panels as wide as the register tile, as the register tile reads them.

use rayon::prelude::*;

use crate::isa::{Isa, wide};

/// Weights `[K][taps][C]` seen as the right matrix of a product.
#[derive(Debug, Clone, Copy)]
pub(super) enum Weights<'a> {
    /// Columns are filters, rows are (tap, channel): the forward pass.
    Filters {
        /// The weights.
        values: &'a [f32],
        /// Taps times channels.
        filter_len: usize,
        /// Elements of a tap in a filter.
        channels: usize,
    },
    /// Columns are channels, rows are (tap, filter): the gradient of the input.
    Channels {
        /// The weights.
        values: &'a [f32],
        /// Taps times channels.
        filter_len: usize,
        /// Elements of a tap in a filter.
        channels: usize,
        /// A factor for each filter.
        scale: Option<&'a [f32]>,
    },
}

/// A part of the reduction: `run` elements from `start` on of each of some taps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Block {
    /// First tap, among those of the row map.
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

/// Packs `blocks` for `columns` into `out`: for each block its panels, for each panel the block's
/// rows of `NR` columns. Columns past the last hold zeros. `kernel_taps` names the taps.
pub(super) fn pack<const NR: usize>(
    weights: Weights<'_>,
    blocks: &[Block],
    columns: std::ops::Range<usize>,
    kernel_taps: &[usize],
    out: &mut [f32],
) {
    let mut rest = out;
    let mut panels = Vec::new();
    for block in blocks {
        for start in columns.clone().step_by(NR) {
            let (panel, tail) = std::mem::take(&mut rest).split_at_mut(block.depth() * NR);
            panels.push((panel, block, start..columns.end.min(start + NR)));
            rest = tail;
        }
    }
    let isa = Isa::get();
    panels.into_par_iter().with_min_len(2).for_each(|(panel, block, columns)| {
        for (t, rows) in panel.chunks_exact_mut(block.run * NR).enumerate() {
            let tap = kernel_taps[block.tap + t];
            pack_tap::<NR>(isa, weights, tap, block, columns.clone(), rows);
        }
    });
}

wide! {
    /// Packs one tap of a block for the columns of a panel.
    fn pack_tap[const NR](
        weights: Weights<'_>,
        tap: usize,
        block: &Block,
        columns: std::ops::Range<usize>,
        rows: &mut [f32],
    ) {
        let width = columns.len();
        match weights {
            Weights::Filters { values, filter_len, channels } => {
                if width < NR {
                    rows.fill(0.0);
                }
                let start = tap * channels + block.start;
                let filter = |k: usize| &values[k * filter_len + start..][..block.run];
                transpose::<NR>(columns, filter, rows);
            }
            Weights::Channels { values, filter_len, channels, scale } => {
                for (i, row) in rows.chunks_exact_mut(NR).enumerate() {
                    let k = block.start + i;
                    let from = k * filter_len + tap * channels + columns.start;
                    let factor = scale.map_or(1.0, |s| s[k]);
                    let source = &values[from..from + width];
                    for (r, v) in row.iter_mut().zip(source) {
                        *r = v * factor;
                    }
                    row[width..].fill(0.0);
                }
            }
        }
    }
}

/// Filters side by side, sixteen at a time so that a group of stores fills a line.
#[inline(always)]
fn transpose<'a, const NR: usize>(
    columns: std::ops::Range<usize>,
    filter: impl Fn(usize) -> &'a [f32],
    rows: &mut [f32],
) {
    let mut j = 0;
    while j + 8 <= columns.len() {
        let sources: [&[f32]; 8] = std::array::from_fn(|i| filter(columns.start + j + i));
        let len = sources[0].len();
        let sources = sources.map(|s| &s[..len]);
        for (c, row) in rows.chunks_exact_mut(NR).take(len).enumerate() {
            for (r, source) in row[j..j + 8].iter_mut().zip(sources) {
                *r = source[c];
            }
        }
        j += 8;
    }
    for (j, k) in columns.enumerate().skip(j) {
        for (row, v) in rows.chunks_exact_mut(NR).zip(filter(k)) {
            row[j] = *v;
        }
    }
}
