//! Winograd's F(2x2, 3x3): 16 multiplications per input channel and filter for 2x2 outputs of a 3x3
//! convolution, in place of 36. [Lavin and Gray, 2015](https://arxiv.org/abs/1509.09308)
//!
//! `y = A^T [(G g G^T) * (B^T d B)] A` for each tile of 2x2 outputs, which reads 4x4 inputs d. At
//! each of the 16 points of the transform the tiles of all images are rows of a GEMM with the
//! filters. A task transforms as many tiles as fit its L2, and for each panel of columns computes
//! the 16 GEMMs and their outputs. The weight gradient sums over tiles ([`weights`]).
//!
//! **Determinism.** The choice of this algorithm depends only on the shapes of one image; so does
//! the order of sums, as everywhere in [`super`].

mod transform;
mod weights;

use std::ops::Range;

use super::bf16;
use super::epilogue::Turn;
use super::grid::{Part, cut, shares, steps};
use super::tile::{Acc, MAX_RUN, PANELS, RowTable, TapRange, Tile};
use super::transpose::transpose;
use super::{ALIGN_SLACK, ConvShape, Epilogue, PACK_LIMIT, aligned};
use crate::isa::{self, Isa, wide};
use crate::tasks;
use transform::{LANES, POINTS, filter, inputs, outputs, turned_filter};
pub(super) use weights::{WeightGradient, workspace_len as weights_workspace_len};

/// Minimum outputs per image: with fewer, transforming the filters costs more than it saves.
const MIN_POSITIONS: usize = 14 * 14;

/// Minimum channels and filters: with fewer, the transforms cost more than they save.
const MIN_CHANNELS: usize = 32;

/// [`MIN_CHANNELS`] for the weight gradient, which transforms both operands.
const MIN_CHANNELS_OF_SUMS: usize = 64;

/// Tiles that a task transforms at once, as a multiple of the register tile's rows.
const TOGETHER: usize = 2;

/// A convolution, or its input gradient, in tiles of 2x2 outputs.
pub(super) struct Winograd<'a> {
    images: usize,
    /// Rows and columns of the input.
    input: [usize; 2],
    /// Rows and columns of the output.
    output: [usize; 2],
    pad: usize,
    /// Channels of the input.
    depth: usize,
    /// Channels of the output.
    columns: usize,
    x: &'a [f32],
    /// `[K, 3, 3, C]`.
    w: &'a [f32],
    pass: Pass<'a>,
    epilogue: Epilogue<'a>,
}

/// The layout in which the weights are used.
#[derive(Clone, Copy)]
enum Pass<'a> {
    /// Columns are filters.
    Forward,
    /// Columns are channels; each filter is multiplied by its scale.
    GradInput(Option<&'a [f32]>),
}

/// A tile of 2x2 outputs: its image, and row and column of its first output.
#[derive(Debug, Clone, Copy)]
struct Place {
    image: usize,
    row: usize,
    column: usize,
}

impl Place {
    /// The `index`-th tile of maps with these numbers of rows and columns.
    fn new([height, width]: [usize; 2], index: usize) -> Self {
        let (rows, columns) = (height.div_ceil(2), width.div_ceil(2));
        let (line, column) = (index / columns, index % columns);
        Self { image: line / rows, row: 2 * (line % rows), column: 2 * column }
    }
}

/// True if a convolution is supported and has at least this many channels and filters.
fn takes(s: &ConvShape, channels: usize) -> bool {
    let plain = [s.kernel_h, s.kernel_w, s.stride, s.dilation, s.groups] == [3, 3, 1, 1, 1];
    let positions = (s.height * s.width).min(s.out_height * s.out_width);
    let fits = |extent: usize| extent >= channels && extent.is_multiple_of(LANES);
    plain && s.pad <= 2 && positions >= MIN_POSITIONS && fits(s.channels) && fits(s.filters)
}

/// True if the convolution is supported, and this thread's settings enable Winograd.
fn wanted(s: &ConvShape, channels: usize) -> bool {
    isa::winograd() && takes(s, channels)
}

/// Columns whose packed filters fit the workspace, in whole panels.
fn pass_columns(depth: usize, columns: usize, panel: usize) -> usize {
    let fitting = PACK_LIMIT / (POINTS * depth).max(1) / panel * panel;
    fitting.max(panel).min(columns.next_multiple_of(panel))
}

/// Elements of workspace that [`Winograd::run`] needs for both passes, for any register tile; 0 if
/// it does not support the convolution.
pub(super) fn workspace_len(s: &ConvShape) -> usize {
    if !takes(s, MIN_CHANNELS) {
        return 0;
    }
    let passes = [(s.channels, s.filters), (s.filters, s.channels)];
    let len =
        |panel| passes.map(|(depth, columns)| POINTS * depth * pass_columns(depth, columns, panel));
    PANELS.into_iter().flat_map(len).max().unwrap_or(0) + ALIGN_SLACK
}

impl<'a> Winograd<'a> {
    /// `y = epilogue(conv(x, w))`, if supported.
    pub(super) fn forward(
        s: &ConvShape,
        [x, w]: [&'a [f32]; 2],
        epilogue: Epilogue<'a>,
    ) -> Option<Self> {
        wanted(s, MIN_CHANNELS).then_some(Self {
            images: s.images,
            input: [s.height, s.width],
            output: [s.out_height, s.out_width],
            pad: s.pad,
            depth: s.channels,
            columns: s.filters,
            x,
            w,
            pass: Pass::Forward,
            epilogue,
        })
    }

    /// `dx = epilogue(g * w)`, each filter multiplied by its `scale`, if supported: the convolution
    /// of g with the filters rotated by 180 degrees.
    pub(super) fn grad_input(
        s: &ConvShape,
        [g, w]: [&'a [f32]; 2],
        scale: Option<&'a [f32]>,
        epilogue: Epilogue<'a>,
    ) -> Option<Self> {
        wanted(s, MIN_CHANNELS).then(|| Self {
            images: s.images,
            input: [s.out_height, s.out_width],
            output: [s.height, s.width],
            pad: 2 - s.pad,
            depth: s.filters,
            columns: s.channels,
            x: g,
            w,
            pass: Pass::GradInput(scale),
            epilogue,
        })
    }

    /// Computes the output, `[images, rows, columns, channels]`.
    pub(super) fn run<T: Tile<MR, NR>, const MR: usize, const NR: usize>(
        &self,
        tile: T,
        y: &mut [f32],
        workspace: &mut [f32],
    ) {
        let [tile_rows, tile_columns] = self.tiles();
        let lines = self.images * tile_rows;
        let even = lines.div_ceil(tasks::wanted());
        let of_task = even.max((TOGETHER * MR).div_ceil(tile_columns)).max(1);
        let lines = shares(lines, 1, lines.div_ceil(of_task));
        let cuts: Vec<usize> = lines.iter().map(|line| self.position(*line)).collect();
        let width = pass_columns(self.depth, self.columns, NR);
        // If there are too few lines of tiles for all threads, the columns of each line are divided
        // among several tasks.
        let panels = width / NR;
        let least = panels.div_ceil(tasks::pieces(cuts.len() - 1, panels));
        let step = (least..panels).find(|step| panels.is_multiple_of(*step)).unwrap_or(panels) * NR;
        for start in (0..self.columns).step_by(width) {
            let columns = start..self.columns.min(start + width);
            let len = POINTS * self.depth * columns.len().next_multiple_of(NR);
            let packed = aligned(workspace, len);
            self.pack::<NR>(tile.isa(), columns.clone(), T::OF_PAIRS, packed);
            let (packed, columns) = (&*packed, &columns);
            let parts = cut(y, self.columns, &cuts, step).into_iter().enumerate();
            let parts = parts.filter(|(_, part)| columns.contains(&part.columns.start));
            let beside = self.columns.div_ceil(step);
            tasks::each_with(parts.collect(), Memory::<NR>::default, |memory, (i, mut part)| {
                let lines = &lines[i / beside..];
                let tiles = lines[0] * tile_columns..lines[1] * tile_columns;
                let tiles: Vec<_> = tiles.map(|tile| Place::new(self.output, tile)).collect();
                let before = (part.columns.start - columns.start) / NR * POINTS * self.depth * NR;
                for tiles in tiles.chunks(TOGETHER * MR) {
                    self.tiles_of_task(tile, tiles, &packed[before..], memory, &mut part);
                }
            });
        }
    }

    /// Rows and columns of tiles in an image.
    fn tiles(&self) -> [usize; 2] {
        self.output.map(|extent| extent.div_ceil(2))
    }

    /// The first output position of a row of tiles.
    fn position(&self, line: usize) -> usize {
        let (image, row) = (line / self.tiles()[0], line % self.tiles()[0]);
        (image * self.output[0] + 2 * row) * self.output[1]
    }

    /// Packs the transformed filters: for each panel of `NR` columns, at each point, the rows of
    /// the reduction. Columns past the last are zero. If `of_pairs`, the first half of a point's
    /// rows contains them as pairs of bf16.
    fn pack<const NR: usize>(
        &self,
        isa: Isa,
        columns: Range<usize>,
        of_pairs: bool,
        packed: &mut [f32],
    ) {
        let depth = self.depth;
        let panels = columns.len().div_ceil(NR);
        let pieces = tasks::pieces(panels, depth / LANES);
        let piece = (depth / LANES).div_ceil(pieces) * LANES;
        let parts = cut(packed, depth * NR, &steps(panels * POINTS, POINTS), piece * NR);
        tasks::each_with(parts, Vec::new, |memory, mut part| {
            let first = columns.start + part.rows.start / POINTS * NR;
            let columns = first..columns.end.min(first + NR);
            let rows = part.columns.start / NR..part.columns.end / NR;
            match self.pass {
                Pass::Forward => self.pack_filters::<NR>(isa, columns, rows, memory, &mut part),
                Pass::GradInput(scale) => {
                    self.pack_turned::<NR>(isa, columns, (rows, scale), memory, &mut part);
                }
            }
        });
        if of_pairs {
            let points = packed.chunks_exact_mut(depth * NR).collect();
            tasks::each(points, |rows| bf16::pair_rows(isa, NR, rows));
        }
    }

    /// Packs `channels` of the filters `columns`, in squares that stay in L1.
    fn pack_filters<const NR: usize>(
        &self,
        isa: Isa,
        columns: Range<usize>,
        channels: Range<usize>,
        memory: &mut Vec<f32>,
        part: &mut Part<'_>,
    ) {
        let filters = &self.w[columns.start * 9 * self.depth..columns.end * 9 * self.depth];
        memory.resize(NR * POINTS * LANES, 0.0);
        for start in channels.step_by(LANES) {
            let filters = filters.chunks_exact(9 * self.depth);
            for (from, to) in filters.zip(memory.chunks_exact_mut(POINTS * LANES)) {
                filter(isa, from, start..start + LANES, (0, LANES), to);
            }
            for point in 0..POINTS {
                let from = (&memory[point * LANES..], POINTS * LANES);
                let to = part.row(part.rows.start + point, start * NR..(start + LANES) * NR);
                if columns.len() < NR {
                    to.fill(0.0);
                }
                transpose(isa, from, (columns.len(), LANES), (to, NR));
            }
        }
    }

    /// Packs the channels `columns` of the filters `from.0`, rotated by 180 degrees and multiplied
    /// by the scale `from.1`.
    fn pack_turned<const NR: usize>(
        &self,
        isa: Isa,
        columns: Range<usize>,
        from: (Range<usize>, Option<&[f32]>),
        memory: &mut Vec<f32>,
        part: &mut Part<'_>,
    ) {
        let (filters, scale) = from;
        memory.clear();
        memory.resize(POINTS * NR, 0.0);
        for k in filters {
            let filter = &self.w[k * 9 * self.columns..(k + 1) * 9 * self.columns];
            let scale = scale.map_or(1.0, |scale| scale[k]);
            turned_filter(isa, filter, columns.clone(), scale, (0, NR), memory);
            for (point, row) in memory.chunks_exact(NR).enumerate() {
                part.row(part.rows.start + point, k * NR..(k + 1) * NR).copy_from_slice(row);
            }
        }
    }

    /// Computes `tiles` for the columns of `part`; `packed` begins with the filters of its first
    /// column.
    fn tiles_of_task<T: Tile<MR, NR>, const MR: usize, const NR: usize>(
        &self,
        tile: T,
        tiles: &[Place],
        packed: &[f32],
        memory: &mut Memory<NR>,
        part: &mut Part<'_>,
    ) {
        let (depth, count) = (self.depth, tiles.len());
        let Memory { zeros, values, pairs, sums } = memory;
        zeros.resize(depth, 0.0);
        values.resize(values.len().max(POINTS * count * depth), 0.0);
        sums.resize(sums.len().max(POINTS * count), [0.0; NR]);
        let values = &mut values[..POINTS * count * depth];
        inputs(tile.isa(), (self.x, depth), (self.input, self.pad), tiles, zeros, values);
        let (mut run, mut values) = (depth, &*values);
        if T::OF_PAIRS {
            pairs.resize(values.len() / 2, 0.0);
            bf16::neighbours(tile.isa(), values, pairs);
            (run, values) = (depth / 2, pairs);
        }
        let blocks = blocks(run).map(|block| (rows(values, run, &block), block));
        let blocks: Vec<(RowTable<'_>, Range<usize>)> = blocks.collect();
        let mut acc = Acc::new();
        let panels = packed.chunks_exact(POINTS * depth * NR);
        for (panel, first) in panels.zip(part.columns.clone().step_by(NR)) {
            let columns = first..part.columns.end.min(first + NR);
            for (point, sums) in sums[..POINTS * count].chunks_exact_mut(count).enumerate() {
                for (table, block) in &blocks {
                    let from = point * depth + block.start;
                    let right = &panel[from * NR..(from + block.len()) * NR];
                    for (i, sums) in sums.chunks_mut(MR).enumerate() {
                        let rows = (point * count + i * MR, sums.len());
                        tile.gather(table, rows, columns.len(), right, &mut acc);
                        add(tile.isa(), &acc.0, block.start == 0, sums);
                    }
                }
            }
            let turn = Turn { first: true, last: true };
            let epilogue = self.epilogue.panel(columns.start, columns.len(), turn);
            let place = (columns, self.columns);
            outputs(tile.isa(), &epilogue, sums, (tiles, self.output), place, part);
        }
    }
}

/// Memory of a task.
#[derive(Default)]
struct Memory<const NR: usize> {
    /// Inputs outside the map.
    zeros: Vec<f32>,
    /// The transformed inputs, `[16][tiles][depth]`.
    values: Vec<f32>,
    /// `values` as pairs of bf16.
    pairs: Vec<f32>,
    /// Accumulators of a panel, `[16][tiles]`.
    sums: Vec<[f32; NR]>,
}

/// The reduction in equal parts of at most [`MAX_RUN`].
fn blocks(depth: usize) -> impl Iterator<Item = Range<usize>> {
    let run = depth.div_ceil(depth.div_ceil(MAX_RUN).max(1)).next_multiple_of(8);
    (0..depth).step_by(run.max(1)).map(move |start| start..depth.min(start + run))
}

/// Rows of `depth` values; a GEMM reads `block` of each.
fn rows<'a>(values: &'a [f32], depth: usize, block: &Range<usize>) -> RowTable<'a> {
    let mut table = RowTable::new();
    let taps = TapRange::new(&[0], 0, block.len());
    table.reset(values.len() / depth, taps);
    for row in 0..values.len() / depth {
        let base = (row * depth + block.start) as isize;
        table.set(values, (row, 1, 0), (base, 1), taps);
    }
    table
}

wide! {
    /// Adds a tile of accumulators to `sums`, or overwrites `sums` if `first`.
    fn add[const NR](acc: &[[f32; NR]], first: bool, sums: &mut [[f32; NR]]) {
        for (sum, acc) in sums.iter_mut().zip(acc) {
            if first {
                *sum = *acc;
            } else {
                sum.iter_mut().zip(acc).for_each(|(sum, v)| *sum += v);
            }
        }
    }
}
