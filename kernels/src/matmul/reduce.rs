//! Weight gradient of a convolution: a sum of outer products over the output positions.
//!
//! Positions are processed in blocks of 256, in order. The gradient is packed once for all tasks,
//! in groups of as many filters as the tile has rows; each task packs the windows for as many
//! columns of the weights as the tile has (16 or 32 KiB, in L1) and multiplies them with all of its
//! filters.

use std::ops::Range;

use super::bf16;
use super::grid::{Part, cut, steps};
use super::groups::collect;
use super::rows::{Row, RowMap, low_bits};
use super::tile::{Acc, Tile, with_tile};
use super::winograd::{WeightGradient, weights_workspace_len};
use super::{ALIGN_SLACK, BLOCK, ConvShape, GROUP, PACK_LIMIT, aligned};
use crate::isa::{self, Isa, wide};
use crate::tasks;

/// `dw[k] = scale[k] * sum over positions of g[position][k] * window(x, position)`.
///
/// `x [N,H,W,C]`, `g [N,P,Q,K]`, `dw [K,R,S,C / groups]`, overwritten.
pub(crate) fn conv_grad_weight(
    shape: &ConvShape,
    x: &[f32],
    g: &[f32],
    scale: Option<&[f32]>,
    dw: &mut [f32],
    workspace: &mut [f32],
) {
    let shape = shape.simplified();
    let merged = shape.merged(GROUP);
    if shape.out_positions() == 0 || dw.is_empty() {
        dw.fill(0.0);
    } else if let Some(tiled) = WeightGradient::new(&shape, [x, g], scale) {
        #[cfg(target_arch = "x86_64")]
        if let Some(proof) = isa::bf16() {
            return tiled.run(proof, dw, workspace);
        }
        with_tile!(Isa::get(), |tile| tiled.run(tile, dw, workspace));
    } else if merged.groups == shape.groups {
        sum_groups(&shape, x, g, scale, dw, workspace);
    } else {
        let mut wide = vec![0.0; merged.filters * merged.filter_len()];
        sum_groups(&merged, x, g, scale, &mut wide, workspace);
        collect(&shape, &merged, &wide, dw);
    }
}

/// [`conv_grad_weight`], group by group.
fn sum_groups(
    shape: &ConvShape,
    x: &[f32],
    g: &[f32],
    scale: Option<&[f32]>,
    dw: &mut [f32],
    workspace: &mut [f32],
) {
    let (map, filters) = (RowMap::forward(shape), shape.group_filters());
    for (group, dw) in dw.chunks_exact_mut(filters * shape.filter_len()).enumerate() {
        let sum = Sum {
            x: &x[group * shape.group_channels()..],
            g: &g[group * filters..],
            map: &map,
            shape,
            filters,
            positions: shape.out_positions(),
            scale: scale.map(|scale| &scale[group * filters..]),
        };
        #[cfg(target_arch = "x86_64")]
        if let Some(proof) = isa::bf16() {
            sum.run(proof, dw, workspace);
            continue;
        }
        with_tile!(Isa::get(), |tile| sum.run(tile, dw, workspace));
    }
}

/// The weight gradient of a group, with its operands, which begin at the group's first channel.
struct Sum<'a> {
    x: &'a [f32],
    g: &'a [f32],
    map: &'a RowMap,
    shape: &'a ConvShape,
    /// Filters of the group.
    filters: usize,
    positions: usize,
    scale: Option<&'a [f32]>,
}

impl Sum<'_> {
    fn run<T: Tile<MR, NR>, const MR: usize, const NR: usize>(
        &self,
        tile: T,
        dw: &mut [f32],
        workspace: &mut [f32],
    ) {
        let (filters, width) = (self.filters, self.shape.filter_len());
        let panel = |start| Panel::new(self.map, self.shape, start);
        let panels: Vec<Panel<NR>> = (0..width).step_by(NR).map(panel).collect();
        let per_pass = pass_positions(filters, self.positions);
        let (row_step, column_step) = task_size::<MR>(filters, panels.len());
        for start in (0..self.positions).step_by(per_pass) {
            let end = self.positions.min(start + per_pass);
            let packed = aligned(workspace, (end - start) * filters);
            let (pitch, rows) = (self.shape.filters, start * self.shape.filters);
            pack_gradient::<MR>(&self.g[rows..], (filters, pitch), packed);
            if T::OF_PAIRS {
                pair_blocks::<MR>(tile.isa(), filters, packed);
            }
            let pass = Pass { sum: self, packed, panels: &panels };
            let parts = cut(dw, width, &steps(filters, row_step), column_step * NR);
            tasks::each(parts, |mut part| pass.task(tile, start..end, &mut part));
        }
    }
}

/// Elements of workspace that [`conv_grad_weight`] needs.
pub(crate) fn reduce_workspace_len(shape: &ConvShape) -> usize {
    let positions = shape.out_positions();
    let filters = shape.merged(GROUP).group_filters();
    let one_by_one = pass_positions(filters, positions).min(positions) * filters + ALIGN_SLACK;
    one_by_one.max(weights_workspace_len(shape))
}

/// Positions whose packed gradient fits the workspace, in whole blocks.
fn pass_positions(filters: usize, positions: usize) -> usize {
    let fitting = PACK_LIMIT / filters.max(1) / BLOCK * BLOCK;
    fitting.max(BLOCK).min(positions.next_multiple_of(BLOCK).max(BLOCK))
}

/// Filters and panels per task: all filters if there are enough panels for all tasks, since each
/// task packs the windows of its panels. Results are bit-identical for any choice.
fn task_size<const MR: usize>(filters: usize, panels: usize) -> (usize, usize) {
    let tasks = tasks::wanted();
    if panels >= tasks {
        return (filters, panels.div_ceil(tasks));
    }
    let groups = tasks.div_ceil(panels).min(filters.div_ceil(4 * MR)).max(1);
    (filters.div_ceil(groups).next_multiple_of(MR), 1)
}

/// Packs the first `filters` elements of each gradient row of `pitch` elements, block by block, to
/// `[filters / MR][position][MR]`.
fn pack_gradient<const MR: usize>(g: &[f32], (filters, pitch): (usize, usize), packed: &mut [f32]) {
    let blocks = packed.chunks_mut(BLOCK * filters).zip(g.chunks(BLOCK * pitch));
    tasks::each(blocks.collect(), |(packed, g)| {
        let steps = packed.len() / filters;
        for (group, out) in packed.chunks_mut(steps * MR).enumerate() {
            let first = group * MR;
            let size = MR.min(filters - first);
            let rows = g.chunks(pitch);
            if size == MR {
                for (out, row) in out.as_chunks_mut::<MR>().0.iter_mut().zip(rows) {
                    out.copy_from_slice(&row[first..first + MR]);
                }
            } else {
                for (out, row) in out.chunks_exact_mut(size).zip(rows) {
                    out.copy_from_slice(&row[first..first + size]);
                }
            }
        }
    });
}

/// Rounds a packed gradient to bf16, two positions per pair: the first half of each group's memory
/// then holds `[position / 2][MR]`; an odd position is paired with zeros.
fn pair_blocks<const MR: usize>(isa: Isa, filters: usize, packed: &mut [f32]) {
    tasks::each(packed.chunks_mut(BLOCK * filters).collect(), |packed| {
        let steps = packed.len() / filters;
        for group in packed.chunks_mut(steps * MR) {
            let size = group.len() / steps;
            bf16::pair_rows(isa, size, group);
        }
    });
}

/// A run of consecutive input elements inside a panel.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Offset of its first element from a row's base.
    offset: isize,
    /// First column in the panel.
    column: usize,
    len: usize,
    /// Mask of the taps that it reads.
    taps: u64,
}

/// Some columns of the weights, and the runs of input that they read.
struct Panel<const NR: usize> {
    start: usize,
    width: usize,
    /// One run per kernel row if its taps are contiguous, for windows that read no padding there.
    whole: Vec<Run>,
    /// One run per tap.
    pieces: Vec<Run>,
}

impl<const NR: usize> Panel<NR> {
    fn new(map: &RowMap, shape: &ConvShape, start: usize) -> Self {
        let (end, channels) = (shape.filter_len().min(start + NR), shape.group_channels());
        let runs = |taps_joined: usize| {
            let length = taps_joined * channels;
            (start / length..end.div_ceil(length))
                .map(|i| {
                    let (low, high) = (start.max(i * length), end.min((i + 1) * length));
                    let (first, last) = (low / channels, (high - 1) / channels);
                    Run {
                        offset: map.tap_offsets[i * taps_joined] + (low - i * length) as isize,
                        column: low - start,
                        len: high - low,
                        taps: low_bits(last + 1) & !low_bits(first),
                    }
                })
                .collect()
        };
        let joined = map.has_joined_taps() && shape.groups == 1;
        let whole = runs(if joined { map.taps_w() } else { 1 });
        Self { start, width: end - start, whole, pieces: runs(1) }
    }

    /// Copies the panel's columns of the windows at `rows`.
    #[inline(always)]
    fn pack(&self, x: &[f32], rows: &[Row], out: &mut [[f32; NR]]) {
        for (row, out) in rows.iter().zip(out) {
            let read = |run: &Run| {
                let start = (row.base + run.offset) as usize;
                &x[start..start + run.len]
            };
            if let [run] = &self.whole[..]
                && run.len == NR
                && row.mask & run.taps == run.taps
            {
                // A full panel has a length known to the compiler: no call to memcpy.
                *out = read(run).as_chunks::<NR>().0[0];
                continue;
            }
            out.fill(0.0);
            let whole = self.whole.iter().all(|run| row.mask & run.taps == run.taps);
            for run in if whole { &self.whole } else { &self.pieces } {
                if row.mask & run.taps == run.taps {
                    copy_short(read(run), &mut out[run.column..run.column + run.len]);
                }
            }
        }
    }
}

/// Copies fewer elements than a panel has columns, four at a time: for so few, a memcpy call costs
/// more than the copy.
#[inline(always)]
fn copy_short(from: &[f32], to: &mut [f32]) {
    let ((from, rest), (to, end)) = (from.as_chunks::<4>(), to.as_chunks_mut::<4>());
    to.iter_mut().zip(from).for_each(|(t, f)| *t = *f);
    end.iter_mut().zip(rest).for_each(|(t, f)| *t = *f);
}

/// The GEMM over the positions whose gradient is packed.
struct Pass<'a, const NR: usize> {
    sum: &'a Sum<'a>,
    packed: &'a [f32],
    panels: &'a [Panel<NR>],
}

#[repr(align(64))]
struct Windows<const NR: usize>([[f32; NR]; BLOCK]);

impl<const NR: usize> Pass<'_, NR> {
    fn task<T: Tile<MR, NR>, const MR: usize>(
        &self,
        tile: T,
        positions: Range<usize>,
        part: &mut Part<'_>,
    ) {
        let (filters, start) = (self.sum.filters, positions.start);
        let mut windows = Windows([[0.0; NR]; BLOCK]);
        let (mut acc, isa) = (Acc::new(), tile.isa());
        let mut rows = Vec::with_capacity(BLOCK);
        let panels = part.columns.start / NR..part.columns.end.div_ceil(NR);
        for first in positions.clone().step_by(BLOCK) {
            let steps = BLOCK.min(positions.end - first);
            let last = first + steps == self.sum.positions;
            self.sum.map.list(first..first + steps, &mut rows);
            let packed = &self.packed[(first - start) * filters..];
            for panel in &self.panels[panels.clone()] {
                pack_panel(isa, panel, self.sum.x, &rows, &mut windows.0);
                let mut depth = steps;
                if T::OF_PAIRS {
                    bf16::pair_rows(isa, NR, &mut windows.0.as_flattened_mut()[..steps * NR]);
                    depth = steps.div_ceil(2);
                }
                for filter in part.rows.clone().step_by(MR) {
                    let size = MR.min(filters - filter);
                    let left = &packed[filter * steps..(filter + size) * steps];
                    let shape = (size, panel.width);
                    tile.outer(shape, depth, left, windows.0.as_flattened(), &mut acc);
                    let columns = panel.start..panel.start + panel.width;
                    let scale = self.sum.scale.filter(|_| last);
                    store(isa, &acc, part, filter..filter + size, columns, first == 0, scale);
                }
            }
        }
    }
}

wide! {
    /// [`Panel::pack`].
    fn pack_panel[const NR](
        panel: &Panel<NR>,
        x: &[f32],
        rows: &[Row],
        out: &mut [[f32; NR]],
    ) {
        panel.pack(x, rows, out);
    }
}

wide! {
    /// Adds a tile of accumulators to `columns` of the rows `filters`, or overwrites them if
    /// `first`; then each filter is multiplied by its `scale`.
    fn store[const MR, const NR](
        acc: &Acc<MR, NR>,
        part: &mut Part<'_>,
        filters: Range<usize>,
        columns: Range<usize>,
        first: bool,
        scale: Option<&[f32]>,
    ) {
        for (k, sums) in filters.zip(&acc.0) {
            let dw = part.row(k, columns.clone());
            store_row(sums, dw, first, scale.map_or(1.0, |s| s[k]));
        }
    }
}

#[inline(always)]
fn store_row<const NR: usize>(sums: &[f32; NR], dw: &mut [f32], first: bool, scale: f32) {
    if let Ok(dw) = <&mut [f32; NR]>::try_from(&mut *dw) {
        let before = if first { [0.0; NR] } else { *dw };
        *dw = std::array::from_fn(|i| (before[i] + sums[i]) * scale);
    } else {
        for (dw, sum) in dw.iter_mut().zip(sums) {
            *dw = (if first { 0.0 } else { *dw } + sum) * scale;
        }
    }
}
