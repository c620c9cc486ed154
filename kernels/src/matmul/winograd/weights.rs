//! The weight gradient: `dW = G^T [sum over tiles of (A dY A^T) * (B^T d B)] G`.
//!
//! Tiles are processed in blocks of 256, in order. Both operands of a block are transformed and
//! packed; then each point and panel of channels is a task, an outer product over the tiles.

use std::array::from_fn;

use super::transform::{LANES, POINTS, filter_gradient, gradients, inputs};
use super::{MIN_CHANNELS_OF_SUMS, Place, add, takes, wanted};
use crate::isa::{Isa, wide};
use crate::matmul::bf16;
use crate::matmul::grid::{Part, cut};
use crate::matmul::tile::{Acc, PANELS, Tile};
use crate::matmul::{ALIGN_SLACK, BLOCK, ConvShape, aligned};
use crate::tasks;

/// Minimum and maximum number of tiles that a task transforms.
const PIECE: [usize; 2] = [4, 32];

/// The weight gradient of a convolution, with its operands.
pub(in crate::matmul) struct WeightGradient<'a> {
    shape: &'a ConvShape,
    x: &'a [f32],
    g: &'a [f32],
    scale: Option<&'a [f32]>,
}

/// Both operands of a block of tiles, packed: at each point the filters in groups of as many as the
/// tile has rows, then the remaining filters, and the channels in panels.
struct Packed<'a> {
    tiles: usize,
    groups: &'a mut [f32],
    rest: &'a mut [f32],
    panels: &'a mut [f32],
}

/// Tiles of all images.
fn tiles(s: &ConvShape) -> usize {
    s.images * s.out_height.div_ceil(2) * s.out_width.div_ceil(2)
}

/// Elements of the packed filters, of the packed channels and of the sums.
fn lens(s: &ConvShape, panel: usize) -> [usize; 3] {
    let (tiles, channels) = (tiles(s).min(BLOCK), s.channels.next_multiple_of(panel));
    [tiles * s.filters, tiles * channels, s.filters * channels].map(|len| POINTS * len)
}

/// Elements of workspace that [`WeightGradient::run`] needs, for any register tile; 0 if it does
/// not support the convolution.
pub(in crate::matmul) fn workspace_len(s: &ConvShape) -> usize {
    if !takes(s, MIN_CHANNELS_OF_SUMS) {
        return 0;
    }
    let len = |panel| lens(s, panel).iter().sum::<usize>();
    PANELS.into_iter().map(len).max().unwrap_or(0) + ALIGN_SLACK
}

impl<'a> WeightGradient<'a> {
    /// `dw[k] = scale[k] * sum over positions of g[position][k] * window(x, position)`, if
    /// supported.
    pub(in crate::matmul) fn new(
        shape: &'a ConvShape,
        [x, g]: [&'a [f32]; 2],
        scale: Option<&'a [f32]>,
    ) -> Option<Self> {
        wanted(shape, MIN_CHANNELS_OF_SUMS).then_some(Self { shape, x, g, scale })
    }

    /// Computes `dw [K,3,3,C]`.
    pub(in crate::matmul) fn run<T: Tile<MR, NR>, const MR: usize, const NR: usize>(
        &self,
        tile: T,
        dw: &mut [f32],
        workspace: &mut [f32],
    ) {
        let (filters, channels) = (self.shape.filters, self.shape.channels);
        let (all, panels) = (tiles(self.shape), channels.div_ceil(NR));
        let [left, right, sums] = lens(self.shape, NR);
        let (left, rest) = aligned(workspace, left + right + sums).split_at_mut(left);
        let (right, sums) = rest.split_at_mut(right);
        for start in (0..all).step_by(BLOCK) {
            let map = [self.shape.out_height, self.shape.out_width];
            let places = (start..all.min(start + BLOCK)).map(|tile| Place::new(map, tile));
            let places: Vec<Place> = places.collect();
            let count = places.len();
            let in_groups = POINTS * (filters / MR * MR) * count;
            let (groups, rest) = left[..POINTS * filters * count].split_at_mut(in_groups);
            let panels_of_block = &mut right[..POINTS * panels * NR * count];
            let mut packed = Packed { tiles: count, groups, rest, panels: panels_of_block };
            self.pack::<MR, NR>(tile.isa(), &places, &mut packed);
            let mut steps = count;
            if T::OF_PAIRS {
                packed.round::<MR, NR>(tile.isa(), filters);
                steps = count.div_ceil(2);
            }
            let parts = sums.chunks_exact_mut(filters * NR).enumerate();
            tasks::each(parts.collect(), |(i, sums)| {
                let (point, panel) = (i / panels, i % panels);
                let width = NR.min(channels - panel * NR);
                let right = &packed.panels[i * count * NR..][..count * NR];
                let mut acc = Acc::new();
                for first in (0..filters).step_by(MR) {
                    let size = MR.min(filters - first);
                    let left = packed.left::<MR>(filters, point, first);
                    tile.outer((size, width), steps, left, right, &mut acc);
                    let sums = &mut sums[first * NR..(first + size) * NR];
                    add(tile.isa(), &acc.0, start == 0, sums.as_chunks_mut::<NR>().0);
                }
            });
        }
        self.finish::<NR>(tile.isa(), sums, dw);
    }

    /// Transforms and packs both operands of some tiles.
    fn pack<const MR: usize, const NR: usize>(
        &self,
        isa: Isa,
        tiles: &[Place],
        packed: &mut Packed<'_>,
    ) {
        let (filters, channels) = (self.shape.filters, self.shape.channels);
        let last = filters % MR;
        let piece = (BLOCK / tasks::wanted()).clamp(PIECE[0], PIECE[1]);
        let parts = |memory, rows: usize, pitch: usize| {
            cut(memory, pitch * tiles.len(), &[0, POINTS * rows], piece * pitch)
        };
        let groups = parts(&mut *packed.groups, filters / MR, MR);
        let panels = parts(&mut *packed.panels, channels.div_ceil(NR), NR);
        let mut rest = Vec::new();
        if last > 0 {
            rest.extend(parts(&mut *packed.rest, 1, last).into_iter().map(Some));
        }
        rest.resize_with(groups.len(), || None);
        let parts = groups.into_iter().zip(rest).zip(panels);
        let pieces = tiles.chunks(piece).zip(parts).collect();
        tasks::each_with(pieces, Vec::new, |memory, (tiles, ((mut groups, rest), mut panels))| {
            let count = tiles.len();
            let zeros = vec![0.0; filters.max(channels)];
            memory.resize(POINTS * count * filters.max(channels), 0.0);
            let (s, values) = (self.shape, &mut memory[..POINTS * count * filters]);
            let map = [s.out_height, s.out_width];
            gradients(isa, (self.g, filters), map, tiles, &zeros, values);
            copy::<MR>(isa, values, (filters, 0), MR, filters / MR, &mut groups);
            if let Some(mut rest) = rest {
                copy::<MR>(isa, values, (filters, filters - last), last, 1, &mut rest);
            }
            let values = &mut memory[..POINTS * count * channels];
            let map = ([s.height, s.width], s.pad);
            inputs(isa, (self.x, channels), map, tiles, &zeros, values);
            copy::<NR>(isa, values, (channels, 0), NR, channels.div_ceil(NR), &mut panels);
        });
    }

    /// Transforms the sums, `[16][panels][filters]`, to the gradient.
    fn finish<const NR: usize>(&self, isa: Isa, sums: &[f32], dw: &mut [f32]) {
        let (filters, channels) = (self.shape.filters, self.shape.channels);
        let panels = channels.div_ceil(NR);
        tasks::each(dw.chunks_exact_mut(9 * channels).enumerate().collect(), |(k, dw)| {
            let scale = self.scale.map_or(1.0, |scale| scale[k]);
            for panel in 0..panels {
                let columns = panel * NR..channels.min((panel + 1) * NR);
                let points = from_fn(|point| {
                    let row = (point * panels + panel) * filters + k;
                    &sums[row * NR..(row + 1) * NR]
                });
                filter_gradient(isa, points, columns, scale, dw);
            }
        });
    }
}

impl Packed<'_> {
    /// Rounds both operands to bf16, two tiles per pair: the first half of each group and panel
    /// then holds them; an odd tile is paired with zeros.
    fn round<const MR: usize, const NR: usize>(&mut self, isa: Isa, filters: usize) {
        let round = |rows: &mut [f32], width: usize| {
            let pieces = rows.chunks_mut((self.tiles * width).max(1)).collect();
            tasks::each(pieces, |rows| bf16::pair_rows(isa, width, rows));
        };
        round(self.groups, MR);
        round(self.rest, filters % MR);
        round(self.panels, NR);
    }

    /// The filters from `first` on, at a point.
    fn left<const MR: usize>(&self, filters: usize, point: usize, first: usize) -> &[f32] {
        let (groups, last) = (filters / MR, filters % MR);
        if first + MR <= filters {
            let len = self.tiles * MR;
            &self.groups[(point * groups + first / MR) * len..][..len]
        } else {
            let len = self.tiles * last;
            &self.rest[point * len..][..len]
        }
    }
}

wide! {
    /// Copies values `[16][tiles][depth]`, starting at channel `from.1`, in `count` pieces of
    /// `width` channels, usually `W`, to the part's rows `[16][count]`. Each row then holds one
    /// piece of each of these tiles.
    fn copy[const W](
        values: &[f32],
        from: (usize, usize),
        width: usize,
        count: usize,
        part: &mut Part<'_>,
    ) {
        let (depth, first) = from;
        let tiles = part.columns.len() / width;
        for (point, values) in values.chunks_exact(tiles * depth).enumerate() {
            for piece in 0..count {
                let start = first + piece * width;
                let channels = start..depth.min(start + width);
                let to = part.row(point * count + piece, part.columns.clone());
                let rows = values.chunks_exact(depth);
                if channels.len() == W {
                    // Pieces with a length known to the compiler: no calls to memcpy.
                    for (to, row) in to.as_chunks_mut::<W>().0.iter_mut().zip(rows) {
                        *to = row[channels.clone()].as_chunks::<W>().0[0];
                    }
                } else {
                    for (to, row) in to.chunks_exact_mut(width).zip(rows) {
                        to[..channels.len()].copy_from_slice(&row[channels.clone()]);
                    }
                }
            }
        }
    }
}

const _: () = assert!(PANELS[0].is_multiple_of(LANES) && PANELS[1].is_multiple_of(LANES));
