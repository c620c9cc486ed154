//! Convolution and its input gradient, as GEMMs of gathered rows with packed weights.
//!
//! Each round packs its weights once; then the output positions are divided among tasks. A task
//! loops over the blocks of the reduction, for each block over panels of columns (16 or 32 KiB of
//! weights, in L1), and for each panel over tiles of rows (up to 16 tiles, in L2). If there are few
//! positions, the columns are divided among tasks instead, and each task packs its own weights.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use super::bf16;
use super::class::{Class, Pass, round_len, rounds};
use super::epilogue::{PanelEpilogue, Turn};
use super::grid::{Part, cut, shares};
use super::groups::expand;
use super::pack::{Block, Weights, pack, pack_block};
use super::rows::Row;
use super::tile::{Acc, PANELS, RowTable, TapRange, Tile, prefetch, with_tile};
use super::winograd::{self, Winograd};
use super::{ALIGN_SLACK, ConvShape, Epilogue, GROUP, aligned};
use crate::isa::{self, Isa, wide};
use crate::tasks;

/// Maximum number of row tiles per task: their values for one block of the reduction stay in L2.
const MAX_TASK_TILES: usize = 16;

/// Maximum rows of a strip (see [`strip_width`]).
const MAX_STRIP_ROWS: usize = 256;

/// Maximum columns of a strip: their weights take 256 KiB of L2.
const MAX_STRIP: usize = 256;

/// Minimum multiply-adds that are worth a task.
const MIN_TASK_WORK: usize = 1 << 16;

/// `y = epilogue(conv(x, w))`: `x [N,H,W,C]`, `w [K,R,S,C / groups]`, `y [N,P,Q,K]`.
pub(crate) fn conv_forward(
    shape: &ConvShape,
    x: &[f32],
    w: &[f32],
    epilogue: Epilogue<'_>,
    y: &mut [f32],
    workspace: &mut [f32],
) {
    let merged = shape.merged(GROUP);
    let w = expand(shape, &merged, w);
    let tiled = Winograd::forward(&merged, [x, &w], epilogue);
    #[cfg(target_arch = "x86_64")]
    if let Some(proof) = isa::bf16() {
        if let Some(tiled) = &tiled {
            return tiled.run(proof, y, workspace);
        }
        let ran = bf16::forward(proof, &merged, [x, &w], |tile, pairs, operands| {
            forward(pairs, operands, epilogue, |product| product.run(tile, y, workspace));
        });
        if ran {
            return;
        }
    }
    if let Some(tiled) = tiled {
        return with_tile!(Isa::get(), |tile| tiled.run(tile, y, workspace));
    }
    forward(&merged, [x, &w], epilogue, |product| {
        with_tile!(Isa::get(), |tile| product.run(tile, y, workspace));
    });
}

/// Calls `run` with the GEMM of a convolution whose groups are merged.
fn forward(
    merged: &ConvShape,
    [x, w]: [&[f32]; 2],
    epilogue: Epilogue<'_>,
    run: impl FnOnce(&GatherGemm<'_>),
) {
    let classes = Class::forward(merged);
    let (filter_len, channels) = (merged.filter_len(), classes[0].channels);
    let weights = Weights::Filters { values: w, filter_len, channels };
    run(&GatherGemm { classes: &classes, x, weights, columns: merged.filters, epilogue });
}

/// `dx = epilogue(g * w)`, the input gradient of [`conv_forward`]; each filter is multiplied by its
/// `scale`. `g [N,P,Q,K]`, `w [K,R,S,C / groups]`, `dx [N,H,W,C]`.
pub(crate) fn conv_grad_input(
    shape: &ConvShape,
    g: &[f32],
    w: &[f32],
    scale: Option<&[f32]>,
    epilogue: Epilogue<'_>,
    dx: &mut [f32],
    workspace: &mut [f32],
) {
    let merged = shape.merged(GROUP);
    let w = expand(shape, &merged, w);
    let tiled = Winograd::grad_input(&merged, [g, &w], scale, epilogue);
    #[cfg(target_arch = "x86_64")]
    if let Some(proof) = isa::bf16() {
        if let Some(tiled) = &tiled {
            return tiled.run(proof, dx, workspace);
        }
        let ran = bf16::grad_input(proof, &merged, [g, &w], scale, |tile, pairs, operands| {
            gradients(pairs, operands, None, epilogue, |product| product.run(tile, dx, workspace));
        });
        if ran {
            return;
        }
    }
    if let Some(tiled) = tiled {
        return with_tile!(Isa::get(), |tile| tiled.run(tile, dx, workspace));
    }
    gradients(&merged, [g, &w], scale, epilogue, |product| {
        with_tile!(Isa::get(), |tile| product.run(tile, dx, workspace));
    });
}

/// Calls `run` with the GEMM of the input gradient of a convolution whose groups are merged.
fn gradients(
    merged: &ConvShape,
    [g, w]: [&[f32]; 2],
    scale: Option<&[f32]>,
    epilogue: Epilogue<'_>,
    run: impl FnOnce(&GatherGemm<'_>),
) {
    let classes = Class::gradients(merged);
    let (filter_len, channels) = (merged.filter_len(), merged.group_channels());
    let weights = Weights::Channels { values: w, filter_len, channels, scale };
    run(&GatherGemm { classes: &classes, x: g, weights, columns: merged.channels, epilogue });
}

/// Elements of workspace that [`conv_forward`] and [`conv_grad_input`] need, for any register tile.
pub(crate) fn gather_workspace_len(shape: &ConvShape) -> usize {
    let merged = shape.merged(GROUP);
    let longest = |classes: &[Class]| {
        let rounds = PANELS.into_iter().flat_map(|panel| rounds(classes, panel));
        rounds.map(|round| round_len(&round)).max().unwrap_or(0)
    };
    // A single image suffices: packed weights do not depend on the images, while the memory for
    // classes does.
    let one = merged.with_images(merged.images.min(1));
    let forward = longest(&Class::forward(&one)).max(longest(&Class::gradients(&one)));
    // GEMMs of bf16 pairs have half the reduction length, and therefore different rounds.
    let (channels, filters) = (one.channels / 2, one.filters / 2);
    let of_pairs = longest(&Class::forward(&ConvShape { channels, ..one }));
    let of_pairs = of_pairs.max(longest(&Class::gradients(&ConvShape { filters, ..one })));
    (forward.max(of_pairs) + ALIGN_SLACK).max(winograd::workspace_len(&one))
}

/// A convolution, or its input gradient, with its operands.
struct GatherGemm<'a> {
    classes: &'a [Class],
    x: &'a [f32],
    weights: Weights<'a>,
    columns: usize,
    epilogue: Epilogue<'a>,
}

impl GatherGemm<'_> {
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
        if let Some(width) = strip_width::<NR>(positions / density, self.columns) {
            let strips = cut(y, self.columns, &[0, positions], width);
            return tasks::each(strips, |mut strip| self.strip(tile, &mut strip));
        }
        for round in rounds(self.classes, NR) {
            let packed = aligned(workspace, round_len(&round));
            self.pack::<NR>(&round, packed);
            let packed = &*packed;
            let (rows, work) = (positions / density, packed.len() / round.len());
            let cuts = shares(positions, MR * density, tall_tasks::<MR>(rows, work));
            let work = rows * work / (cuts.len() - 1);
            let parts = cut(y, self.columns, &cuts, self.task_columns::<NR>(cuts.len() - 1, work));
            tasks::each(parts, |mut part| {
                let mut rest = packed;
                for pass in &round {
                    let (packed, tail) = rest.split_at(pass.pack_len());
                    rest = tail;
                    self.task(tile, pass, packed, &mut part);
                }
            });
        }
    }

    /// Columns per task, if the rows are divided among `tall` tasks of `work` multiply-adds: all
    /// columns, or some whole panels if there would be too few tasks. Results are bit-identical for
    /// any choice.
    fn task_columns<const NR: usize>(&self, tall: usize, work: usize) -> usize {
        let panels = self.columns.div_ceil(NR);
        let wide = tasks::pieces(tall, panels.min(work / MIN_TASK_WORK));
        // With groups, panels start at each group's first column, not at multiples of `NR`, so the
        // columns are not divided.
        let grouped = self.classes.iter().any(|class| class.columns != (0..self.columns));
        if wide < 2 || grouped { self.columns } else { panels.div_ceil(wide) * NR }
    }

    fn pack<const NR: usize>(&self, round: &[Pass], packed: &mut [f32]) {
        let mut rest = packed;
        for pass in round {
            let (packed, tail) = rest.split_at_mut(pass.pack_len());
            rest = tail;
            if !packed.is_empty() {
                let class = &self.classes[pass.class];
                let (weights, columns) = of_group(self.weights, class, pass.columns.clone());
                pack::<NR>(weights, &pass.blocks, columns, class.kernel_taps(), packed);
            }
        }
    }

    /// Computes a pass for a part of the output.
    fn task<T: Tile<MR, NR>, const MR: usize, const NR: usize>(
        &self,
        tile: T,
        pass: &Pass,
        packed: &[f32],
        part: &mut Part<'_>,
    ) {
        let class = &self.classes[pass.class];
        let rows = Rows::new(class, self.x, part.rows.clone());
        let x = rows.input(self.x);
        let mut table = RowTable::new();
        let mut rest = packed;
        for (i, block) in (pass.first_block..).zip(&pass.blocks) {
            rows.point::<MR>(class, x, block, &mut table);
            let turn = Turn { first: i == 0, last: i + 1 == pass.all_blocks };
            for column in pass.columns.clone().step_by(NR) {
                let (panel, tail) = rest.split_at(block.depth() * NR);
                rest = tail;
                if part.columns.contains(&column) {
                    let columns = column..pass.columns.end.min(column + NR);
                    self.panel(tile, (&table, &rows.list), panel, columns, turn, part);
                }
            }
        }
    }

    /// Computes a part of the output that has all rows, and packs the weights for it.
    fn strip<T: Tile<MR, NR>, const MR: usize, const NR: usize>(
        &self,
        tile: T,
        part: &mut Part<'_>,
    ) {
        let mut memory = Vec::new();
        for class in self.classes {
            let [start, end] = [part.columns.start, part.columns.end]
                .map(|column| column.clamp(class.columns.start, class.columns.end));
            let columns = start..end;
            if columns.is_empty() {
                continue;
            }
            let (weights, own) = of_group(self.weights, class, columns.clone());
            let rows = Rows::new(class, self.x, part.rows.clone());
            let x = rows.input(self.x);
            let mut table = RowTable::new();
            let blocks = class.blocks();
            for (i, block) in blocks.iter().enumerate() {
                rows.point::<MR>(class, x, block, &mut table);
                let len = block.depth() * columns.len().next_multiple_of(NR);
                memory.resize(memory.len().max(len + ALIGN_SLACK), 0.0);
                let packed = aligned(&mut memory, len);
                let (taps, isa) = (class.kernel_taps(), tile.isa());
                pack_block::<NR>(isa, weights, block, own.clone(), taps, packed);
                let turn = Turn { first: i == 0, last: i + 1 == blocks.len() };
                for (i, column) in columns.clone().step_by(NR).enumerate() {
                    let panel = &packed[i * block.depth() * NR..][..block.depth() * NR];
                    let columns = column..columns.end.min(column + NR);
                    self.panel(tile, (&table, &rows.list), panel, columns, turn, part);
                }
            }
        }
    }

    /// Multiplies all rows with one panel.
    fn panel<T: Tile<MR, NR>, const MR: usize, const NR: usize>(
        &self,
        tile: T,
        (table, rows): (&RowTable<'_>, &[Row]),
        panel: &[f32],
        columns: Range<usize>,
        turn: Turn,
        part: &mut Part<'_>,
    ) {
        let width = columns.len();
        let epilogue = self.epilogue.panel(columns.start, width, turn);
        let (mut acc, isa) = (Acc::new(), tile.isa());
        for (i, tile_rows) in rows.chunks(MR).enumerate() {
            for row in tile_rows {
                prefetch(part.row(row.position, columns.clone()));
            }
            tile.gather(table, (i * MR, tile_rows.len()), width, panel, &mut acc);
            let place = (columns.clone(), self.columns);
            store(isa, &epilogue, &acc, tile_rows, place, part);
        }
    }
}

/// The weights of a class's group, and the output's `columns` as indices into these weights.
fn of_group<'a>(
    weights: Weights<'a>,
    class: &Class,
    columns: Range<usize>,
) -> (Weights<'a>, Range<usize>) {
    match weights {
        Weights::Filters { .. } => (weights, columns),
        Weights::Channels { values, filter_len, channels, scale } => {
            let (first, base) = (class.first_channel, class.columns.start);
            let values = &values[first * filter_len..];
            let scale = scale.map(|scale| &scale[first..]);
            let own = columns.start - base..columns.end - base;
            (Weights::Channels { values, filter_len, channels, scale }, own)
        }
    }
}

/// The rows of a class at some output positions.
struct Rows {
    list: Vec<Row>,
    /// Copies of their inputs, if needed: windows that the class unfolds, or rows that share sets
    /// of the L1.
    copies: Vec<f32>,
    copied: bool,
}

impl Rows {
    fn new(class: &Class, x: &[f32], positions: Range<usize>) -> Self {
        let (mut list, mut copies) = (Vec::new(), Vec::new());
        class.map.list(positions, &mut list);
        let apart = class.shares_sets();
        if class.unfold {
            class.unfold(x, &list, &mut copies);
            for (i, row) in list.iter_mut().enumerate() {
                (row.base, row.mask) = ((i * class.channels) as isize, 1);
            }
        } else if apart {
            class.copy_apart(x, &mut list, &mut copies);
        }
        Self { list, copies, copied: class.unfold || apart }
    }

    /// The values that the positions read: the copies, or `x`.
    fn input<'a>(&'a self, x: &'a [f32]) -> &'a [f32] {
        if self.copied { &self.copies } else { x }
    }

    /// Sets the table's pointers to the inputs of a block, in tiles of `MR`.
    fn point<'a, const MR: usize>(
        &self,
        class: &Class,
        x: &'a [f32],
        block: &Block,
        table: &mut RowTable<'a>,
    ) {
        let offsets = &class.tap_offsets()[block.tap..block.tap + block.taps];
        let taps = TapRange::new(offsets, block.tap, block.run);
        table.reset(self.list.len(), taps);
        let start = if self.copied { block.start } else { class.first_channel + block.start };
        for (first, tile) in (0..).step_by(MR).zip(self.list.chunks(MR)) {
            for (i, row) in tile.iter().enumerate() {
                let place = (first, tile.len(), i);
                table.set(x, place, (row.base + start as isize, row.mask), taps);
            }
        }
    }
}

wide! {
    /// Stores a tile of accumulators for `rows` to columns `place.0` of an output with `place.1`
    /// columns.
    fn store[const MR, const NR](
        epilogue: &PanelEpilogue<'_, NR>,
        acc: &Acc<MR, NR>,
        rows: &[Row],
        place: (Range<usize>, usize),
        part: &mut Part<'_>,
    ) {
        let (columns, all) = place;
        for (row, sums) in rows.iter().zip(&acc.0) {
            let element = row.position * all + columns.start;
            epilogue.store(sums, part.row(row.position, columns.clone()), element);
        }
    }
}

/// Columns of a strip, which is the part of a task that computes all `rows` and packs its own
/// weights into L2. `None` if there are too many rows for one task, or too few columns to occupy
/// all threads. Results are bit-identical for any choice.
fn strip_width<const NR: usize>(rows: usize, columns: usize) -> Option<usize> {
    let (panels, tasks) = (columns.div_ceil(NR), 2 * tasks::threads());
    let few = rows <= MAX_STRIP_ROWS && panels >= tasks;
    few.then(|| (panels / tasks).min(MAX_STRIP / NR) * NR)
}

/// Number of tasks for this many rows with `work` multiply-adds per row: if there are more tasks
/// than threads, a multiple of the number of threads, for load balance. Results are bit-identical
/// for any choice.
fn tall_tasks<const MR: usize>(rows: usize, work: usize) -> usize {
    let threads = tasks::threads();
    let even = rows.div_ceil(tasks::wanted());
    let least = MIN_TASK_WORK.div_ceil(work.max(1)).max(2 * MR);
    let most = MAX_TASK_TILES * MR;
    let of_task = even.clamp(2 * MR, most).max(least.min(most)).next_multiple_of(MR);
    let tasks = rows.div_ceil(of_task);
    if tasks > threads { tasks.next_multiple_of(threads) } else { tasks }
}
