//! Convolution and the gradient of its input, as products of gathered rows with packed weights.
//!
//! Each round packs the weights once; then tasks share the output positions. A task walks the
//! blocks of the reduction, in each the panels of columns (16 or 32 KiB of weights, in L1) and in
//! each the tiles of rows (16 tiles of them, in L2).

use rayon::prelude::*;

use super::class::{Class, Pass, round_len, rounds};
use super::epilogue::{PanelEpilogue, Turn};
use super::pack::{Weights, pack};
use super::rows::Row;
use super::tile::{Acc, PANELS, RowTable, TapRange, Tile, prefetch, with_tile};
use super::{ALIGN_SLACK, ConvShape, Epilogue, aligned};
use crate::isa::{Isa, wide};

/// Maximum tiles of rows per task: a block of them stays in L2.
const MAX_TASK_TILES: usize = 16;

/// Minimum multiply-adds that are worth a task.
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
    let class = Class::forward(shape);
    let (filter_len, channels) = (shape.filter_len(), class.channels);
    let weights = Weights::Filters { values: w, filter_len, channels };
    let product = Product { classes: &[class], x, weights, columns: shape.filters, epilogue };
    with_tile!(Isa::get(), |tile| product.run(tile, y, workspace));
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
    let classes = Class::gradients(shape);
    let (filter_len, channels) = (shape.filter_len(), shape.channels);
    let weights = Weights::Channels { values: w, filter_len, channels, scale };
    let product = Product { classes: &classes, x: g, weights, columns: channels, epilogue };
    with_tile!(Isa::get(), |tile| product.run(tile, dx, workspace));
}

/// Elements of workspace that [`conv_forward`] and [`conv_grad_input`] need, whatever the tile.
pub(crate) fn gather_workspace_len(shape: &ConvShape) -> usize {
    let longest = |classes: &[Class], columns: usize| {
        let rounds = PANELS.into_iter().flat_map(|panel| rounds(classes, columns, panel));
        rounds.map(|round| round_len(&round)).max().unwrap_or(0)
    };
    let forward = longest(&[Class::forward(shape)], shape.filters);
    forward.max(longest(&Class::gradients(shape), shape.channels)) + ALIGN_SLACK
}

/// A convolution, or the gradient of its input, with its operands.
struct Product<'a> {
    classes: &'a [Class],
    x: &'a [f32],
    weights: Weights<'a>,
    columns: usize,
    epilogue: Epilogue<'a>,
}

impl Product<'_> {
    fn run<T: Tile<MR, NR>, const MR: usize, const NR: usize>(
        &self,
        tile: T,
        y: &mut [f32],
        workspace: &mut [f32],
    ) {
        if y.is_empty() {
            return;
        }
        let positions = y.len() / self.columns;
        let density = self.classes[0].map.density();
        for round in rounds(self.classes, self.columns, NR) {
            let packed = aligned(workspace, round_len(&round));
            self.pack::<NR>(&round, packed);
            let packed = &*packed;
            let task = task_rows::<MR>(positions, density, packed.len() / round.len());
            y.par_chunks_mut(task * self.columns).enumerate().for_each(|(i, y)| {
                let mut rest = packed;
                for pass in &round {
                    let (packed, tail) = rest.split_at(pass.pack_len());
                    rest = tail;
                    self.task(tile, pass, packed, i * task, y);
                }
            });
        }
    }

    fn pack<const NR: usize>(&self, round: &[Pass], packed: &mut [f32]) {
        let mut rest = packed;
        for pass in round {
            let (packed, tail) = rest.split_at_mut(pass.pack_len());
            rest = tail;
            if !packed.is_empty() {
                let kernel_taps = self.classes[pass.class].kernel_taps();
                let columns = pass.columns.clone();
                pack::<NR>(self.weights, &pass.blocks, columns, kernel_taps, packed);
            }
        }
    }

    /// Computes a pass for the output positions from `start` on, whose elements are `y`.
    fn task<T: Tile<MR, NR>, const MR: usize, const NR: usize>(
        &self,
        tile: T,
        pass: &Pass,
        packed: &[f32],
        start: usize,
        y: &mut [f32],
    ) {
        let class = &self.classes[pass.class];
        let mut rows = Vec::new();
        class.map.list(start..start + y.len() / self.columns, &mut rows);
        let mut windows = Vec::new();
        let x = if class.unfold {
            class.unfold(self.x, &rows, &mut windows);
            for (i, row) in rows.iter_mut().enumerate() {
                (row.base, row.mask) = ((i * class.channels) as isize, 1);
            }
            &windows[..]
        } else {
            self.x
        };
        let mut table = RowTable::new();
        let mut rest = packed;
        for (i, block) in (pass.first_block..).zip(&pass.blocks) {
            let taps = &class.tap_offsets()[block.tap..block.tap + block.taps];
            let rows = (&rows[..], MR);
            fill(&mut table, x, rows, TapRange::new(taps, block.tap, block.run), block.start);
            let turn = Turn { first: i == 0, last: i + 1 == pass.all_blocks };
            for column in pass.columns.clone().step_by(NR) {
                let (panel, tail) = rest.split_at(block.depth() * NR);
                rest = tail;
                let columns = (start, column, pass.columns.end);
                self.panel(tile, (&table, rows.0), panel, columns, turn, y);
            }
        }
    }

    /// Multiplies all rows with one panel.
    fn panel<T: Tile<MR, NR>, const MR: usize, const NR: usize>(
        &self,
        tile: T,
        (table, rows): (&RowTable<'_>, &[Row]),
        panel: &[f32],
        (start, column, end): (usize, usize, usize),
        turn: Turn,
        y: &mut [f32],
    ) {
        let width = NR.min(end - column);
        let epilogue = self.epilogue.panel(column, width, turn);
        let (mut acc, isa) = (Acc::new(), tile.isa());
        for (i, tile_rows) in rows.chunks(MR).enumerate() {
            for row in tile_rows {
                let at = (row.position - start) * self.columns + column;
                prefetch(&y[at..at + width]);
            }
            tile.gather(table, (i * MR, tile_rows.len()), width, panel, &mut acc);
            let place = (start, self.columns, column);
            store(isa, &epilogue, &acc, tile_rows, place, width, y);
        }
    }
}

wide! {
    /// Writes a tile of sums for `rows` to `y`, whose elements begin at position `place.0` of an
    /// output of `place.1` columns, from column `place.2` on.
    fn store[const MR, const NR](
        epilogue: &PanelEpilogue<'_, NR>,
        acc: &Acc<MR, NR>,
        rows: &[Row],
        place: (usize, usize, usize),
        width: usize,
        y: &mut [f32],
    ) {
        let (start, columns, column) = place;
        for (row, sums) in rows.iter().zip(&acc.0) {
            let at = (row.position - start) * columns + column;
            let element = row.position * columns + column;
            epilogue.store(sums, &mut y[at..at + width], element);
        }
    }
}

/// Fills the table with rows in tiles of `tile`.
fn fill<'a>(
    table: &mut RowTable<'a>,
    x: &'a [f32],
    (rows, tile): (&[Row], usize),
    taps: TapRange<'_>,
    start: usize,
) {
    table.reset(rows.len(), taps);
    for (start_row, tile_rows) in (0..).step_by(tile).zip(rows.chunks(tile)) {
        for (i, row) in tile_rows.iter().enumerate() {
            let place = (start_row, tile_rows.len(), i);
            table.set(x, place, (row.base + start as isize, row.mask), taps);
        }
    }
}

/// Output positions per task, if one in `density` is a row; `work` multiply-adds per row. The
/// choice does not affect the bits of the result.
fn task_rows<const MR: usize>(positions: usize, density: usize, work: usize) -> usize {
    let rows = positions / density;
    let even = rows.div_ceil(4 * rayon::current_num_threads());
    let least = MIN_TASK_WORK.div_ceil(work.max(1)).max(2 * MR);
    let most = MAX_TASK_TILES * MR;
    let rows = even.clamp(2 * MR, most).max(least.min(most));
    rows.next_multiple_of(MR) * density
}
