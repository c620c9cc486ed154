//! Convolution and the gradient of its input, as products of gathered rows with packed weights.
//!
//! For each pass the weights are packed once; then tasks share out the output positions. A task
//! walks the blocks of the reduction, in each the panels of 16 columns (16 KiB of weights, in L1)
//! and in each the tiles of 6 rows (up to 96 rows of input, in L2).

use std::ops::Range;

use rayon::prelude::*;

use super::axis::Axis;
use super::epilogue::Turn;
use super::pack::{Block, Weights, pack};
use super::rows::{Row, RowMap};
use super::tile::{Acc, MAX_RUN, RowTable, TapRange, gather};
use super::{ALIGN_SLACK, ConvShape, Epilogue, MR, NR, PACK_LIMIT, aligned};

/// Rows a task works on at most: a block of them stays in L2.
const MAX_TASK_ROWS: usize = 16 * MR;

/// Below this many channels a run is too short for the tile; rows are unfolded by the task.
const MIN_RUN: usize = 8;

/// Columns that a pass keeps together even if the whole reduction then does not fit.
const MIN_PASS_COLUMNS: usize = 512;

/// Multiply-adds that are worth a task.
const MIN_TASK_WORK: usize = 1 << 16;

/// `y = epilogue(conv(x, w))`: `x [N,H,W,C]`, `w [K,R,S,C]`, `y [N,P,Q,K]`.
pub(crate) fn conv_forward(
    shape: &ConvShape,
    x: &[f32],
    w: &[f32],
    epilogue: Epilogue<'_>,
    y: &mut [f32],
    workspace: &mut [f32],
) {
    let class = forward_class(shape);
    let shape = shape.simplified();
    let weights =
        Weights::Filters { values: w, filter_len: shape.filter_len(), channels: class.channels };
    Product { class: &class, x, weights, columns: shape.filters, epilogue }.run(y, workspace);
}

/// `dx = epilogue(g * w)`, the gradient of the input of [`conv_forward`]; each filter is multiplied
/// by its `scale`. `g [N,P,Q,K]`, `w [K,R,S,C]`, `dx [N,H,W,C]`.
pub(crate) fn conv_grad_input(
    shape: &ConvShape,
    g: &[f32],
    w: &[f32],
    scale: Option<&[f32]>,
    epilogue: Epilogue<'_>,
    dx: &mut [f32],
    workspace: &mut [f32],
) {
    let (filter_len, channels) = (shape.filter_len(), shape.channels);
    let weights = Weights::Channels { values: w, filter_len, channels, scale };
    for class in gradient_classes(shape) {
        Product { class: &class, x: g, weights, columns: channels, epilogue }.run(dx, workspace);
    }
}

/// Elements of workspace that [`conv_forward`] and [`conv_grad_input`] need.
pub(crate) fn gather_workspace_len(shape: &ConvShape) -> usize {
    let forward = forward_class(shape).pack_len(shape.filters);
    let gradients = gradient_classes(shape).map(|class| class.pack_len(shape.channels));
    gradients.fold(forward, usize::max) + ALIGN_SLACK
}

/// Output positions that read the same taps.
struct Class {
    map: RowMap,
    /// Elements a tap contributes: those of the input's channels, or of the whole window if rows
    /// are unfolded.
    channels: usize,
    /// Rows are copied together before the product.
    unfold: bool,
}

fn forward_class(shape: &ConvShape) -> Class {
    let s = shape.simplified();
    let map = RowMap::new(
        Axis::forward(s.height, s.kernel_h, s.stride, s.pad),
        Axis::forward(s.width, s.kernel_w, s.stride, s.pad),
        [s.height, s.width, s.channels],
        [s.out_height, s.out_width],
        s.kernel_w,
    );
    let unfold = s.channels < MIN_RUN && map.taps() > 1;
    let channels = if unfold { s.filter_len() } else { s.channels };
    Class { map, channels, unfold }
}

fn gradient_classes(shape: &ConvShape) -> impl Iterator<Item = Class> + use<> {
    let s = shape.simplified();
    (0..s.stride).flat_map(move |h| (0..s.stride).map(move |w| (h, w))).map(move |(h, w)| {
        let map = RowMap::new(
            Axis::gradient(s.out_height, s.kernel_h, s.stride, s.pad, h),
            Axis::gradient(s.out_width, s.kernel_w, s.stride, s.pad, w),
            [s.out_height, s.out_width, s.filters],
            [s.height, s.width],
            s.kernel_w,
        );
        Class { map, channels: s.filters, unfold: false }
    })
}

/// A share of the product whose packed weights fit the workspace.
struct Pass {
    columns: Range<usize>,
    blocks: Vec<Block>,
    /// Place of the first block among all that add up to the output.
    first_block: usize,
}

impl Pass {
    fn pack_len(&self) -> usize {
        let columns = self.columns.len().next_multiple_of(NR);
        self.blocks.iter().map(|b| b.depth() * columns).sum()
    }
}

impl Class {
    fn taps(&self) -> usize {
        if self.unfold { 1 } else { self.map.taps() }
    }

    /// The reduction in blocks of about [`MAX_RUN`]: several taps, or a part of one.
    fn blocks(&self) -> Vec<Block> {
        let (taps, channels) = (self.taps(), self.channels);
        if taps * channels == 0 {
            return vec![Block { tap: 0, taps: 0, start: 0, run: 0 }];
        }
        if channels <= MAX_RUN {
            let count = taps.div_ceil(MAX_RUN / channels);
            let per = taps.div_ceil(count);
            let block = |tap| Block { tap, taps: per.min(taps - tap), start: 0, run: channels };
            return (0..taps).step_by(per).map(block).collect();
        }
        let run = channels.div_ceil(channels.div_ceil(MAX_RUN)).next_multiple_of(8).min(MAX_RUN);
        let part = |tap| {
            (0..channels).step_by(run).map(move |start| Block {
                tap,
                taps: 1,
                start,
                run: run.min(channels - start),
            })
        };
        (0..taps).flat_map(part).collect()
    }

    fn passes(&self, columns: usize) -> Vec<Pass> {
        let blocks = self.blocks();
        let depth: usize = blocks.iter().map(Block::depth).sum();
        let room = PACK_LIMIT / depth.max(1) / NR * NR;
        let width = room.max(MIN_PASS_COLUMNS).min(columns.next_multiple_of(NR)).max(1);
        let mut passes: Vec<Pass> = Vec::new();
        for start in (0..columns).step_by(width) {
            let columns = start..columns.min(start + width);
            for (i, &block) in blocks.iter().enumerate() {
                let fits = |pass: &Pass| {
                    pass.columns == columns && pass.pack_len() + block.depth() * width <= PACK_LIMIT
                };
                match passes.last_mut().filter(|pass| fits(pass)) {
                    Some(pass) => pass.blocks.push(block),
                    None => passes.push(Pass {
                        columns: columns.clone(),
                        blocks: vec![block],
                        first_block: i,
                    }),
                }
            }
        }
        passes
    }

    fn pack_len(&self, columns: usize) -> usize {
        self.passes(columns).iter().map(Pass::pack_len).max().unwrap_or(0)
    }

    /// Copies the windows of `rows` together, padding as zeros.
    fn unfold(&self, x: &[f32], rows: &[Row], out: &mut Vec<f32>) {
        out.clear();
        out.resize(rows.len() * self.channels, 0.0);
        let taps_w = self.map.taps_w();
        let run = self.channels / self.map.taps();
        for (row, window) in rows.iter().zip(out.chunks_exact_mut(self.channels)) {
            let full = row.mask == self.map.full_mask();
            let len = if full { taps_w * run } else { run };
            let taps = (0..self.map.taps()).step_by(if full { taps_w } else { 1 });
            for (tap, piece) in taps.zip(window.chunks_exact_mut(len)) {
                if row.mask >> tap & 1 == 1 {
                    let start = (row.base + self.map.tap_offsets[tap]) as usize;
                    piece.copy_from_slice(&x[start..start + len]);
                }
            }
        }
    }
}

/// One class of a convolution with its operands.
struct Product<'a> {
    class: &'a Class,
    x: &'a [f32],
    weights: Weights<'a>,
    columns: usize,
    epilogue: Epilogue<'a>,
}

impl Product<'_> {
    fn run(&self, y: &mut [f32], workspace: &mut [f32]) {
        if y.is_empty() {
            return;
        }
        let positions = y.len() / self.columns;
        let passes = self.class.passes(self.columns);
        let blocks = passes.iter().map(|p| p.first_block + p.blocks.len()).max().unwrap_or(0);
        let kernel_taps =
            if self.class.unfold { &[0][..] } else { &self.class.map.kernel_taps[..] };
        for pass in &passes {
            let packed = aligned(workspace, pass.pack_len());
            if !packed.is_empty() {
                pack(self.weights, &pass.blocks, pass.columns.clone(), kernel_taps, packed);
            }
            let packed = &*packed;
            let work = pass.pack_len();
            let task = task_rows(positions, self.class.map.density(), work);
            y.par_chunks_mut(task * self.columns).enumerate().for_each(|(i, y)| {
                self.task(pass, blocks, packed, i * task, y);
            });
        }
    }

    /// Computes a pass for the output positions from `start` on, whose elements are `y`.
    fn task(&self, pass: &Pass, blocks: usize, packed: &[f32], start: usize, y: &mut [f32]) {
        let mut rows = Vec::new();
        self.class.map.list(start..start + y.len() / self.columns, &mut rows);
        let mut windows = Vec::new();
        let x = if self.class.unfold {
            self.class.unfold(self.x, &rows, &mut windows);
            for (i, row) in rows.iter_mut().enumerate() {
                (row.base, row.mask) = ((i * self.class.channels) as isize, 1);
            }
            &windows[..]
        } else {
            self.x
        };
        let offsets = if self.class.unfold { &[0][..] } else { &self.class.map.tap_offsets[..] };
        let mut table = RowTable::new();
        let mut rest = packed;
        for (i, block) in pass.blocks.iter().enumerate() {
            let taps = &offsets[block.tap..block.tap + block.taps];
            fill(&mut table, x, &rows, TapRange::new(taps, block.tap, block.run), block.start);
            let block_idx = pass.first_block + i;
            let turn = Turn { first: block_idx == 0, last: block_idx + 1 == blocks };
            for column in pass.columns.clone().step_by(NR) {
                let (panel, tail) = rest.split_at(block.depth() * NR);
                rest = tail;
                self.panel(&table, &rows, panel, (start, column, pass.columns.end), turn, y);
            }
        }
    }

    /// Multiplies all rows with one panel.
    fn panel(
        &self,
        table: &RowTable<'_>,
        rows: &[Row],
        panel: &[f32],
        (start, column, end): (usize, usize, usize),
        turn: Turn,
        y: &mut [f32],
    ) {
        let width = NR.min(end - column);
        let mut acc = Acc([0.0; MR * NR]);
        for (tile, tile_rows) in rows.chunks(MR).enumerate() {
            gather(table, (tile * MR, tile_rows.len()), width, panel, &mut acc);
            for (row, sums) in tile_rows.iter().zip(acc.0.as_chunks::<NR>().0) {
                let at = (row.position - start) * self.columns + column;
                let place = (row.position, column, self.columns);
                self.epilogue.store(sums, &mut y[at..at + width], place, turn);
            }
        }
    }
}

fn fill<'a>(
    table: &mut RowTable<'a>,
    x: &'a [f32],
    rows: &[Row],
    taps: TapRange<'_>,
    start: usize,
) {
    table.reset(rows.len(), taps);
    for (tile, tile_rows) in rows.chunks(MR).enumerate() {
        for (i, row) in tile_rows.iter().enumerate() {
            let place = (tile * MR, tile_rows.len(), i);
            table.set(x, place, (row.base + start as isize, row.mask), taps);
        }
    }
}

/// Output positions of a task, of which one in `density` is a row; `work` multiply-adds a row. The
/// choice moves no bit of the result.
fn task_rows(positions: usize, density: usize, work: usize) -> usize {
    let rows = positions / density;
    let even = rows.div_ceil(4 * rayon::current_num_threads());
    let least = MIN_TASK_WORK.div_ceil(work.max(1)).max(2 * MR);
    let rows = even.clamp(2 * MR, MAX_TASK_ROWS).max(least.min(MAX_TASK_ROWS));
    rows.next_multiple_of(MR) * density
}
