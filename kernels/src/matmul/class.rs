//! The outputs of a gather: classes of output positions, and the passes that compute them.

use std::ops::Range;

use super::axis::Axis;
use super::pack::Block;
use super::rows::{Row, RowMap};
use super::tile::MAX_RUN;
use super::{ConvShape, PACK_LIMIT};

/// Minimum contiguous input elements per tap: with fewer channels, tasks unfold rows (im2col).
const MIN_RUN: usize = 8;

/// Distance in elements between addresses that map to the same set of the L1 cache: 4 KiB.
const SETS: usize = 1 << 10;

/// Elements of a cache line.
const LINE: usize = 16;

/// Minimum columns of a pass, even if the whole reduction then does not fit the workspace.
const MIN_PASS_COLUMNS: usize = 512;

/// Output positions that read the same taps.
pub(super) struct Class {
    /// The positions, with the taps that they read.
    pub map: RowMap,
    /// Elements per tap: the channels of a group, or the whole window if rows are unfolded.
    pub channels: usize,
    /// The first of these channels in the input.
    pub first_channel: usize,
    /// Columns of the output that use these channels.
    pub columns: Range<usize>,
    /// True if rows are copied to contiguous memory before the GEMM.
    pub unfold: bool,
}

/// A part of a class whose packed weights fit the workspace.
pub(super) struct Pass {
    /// Index of the class.
    pub class: usize,
    /// Columns of the output.
    pub columns: Range<usize>,
    /// Blocks of the reduction.
    pub blocks: Vec<Block>,
    /// Index of the first block among all blocks of the reduction.
    pub first_block: usize,
    /// Number of blocks of the reduction.
    pub all_blocks: usize,
    /// Columns per panel.
    pub panel: usize,
}

impl Pass {
    /// Elements of its packed weights.
    pub(super) fn pack_len(&self) -> usize {
        let columns = self.columns.len().next_multiple_of(self.panel);
        self.blocks.iter().map(|b| b.depth() * columns).sum()
    }
}

/// The passes of all classes over panels of `panel` columns, in rounds whose packed weights fit the
/// workspace together.
pub(super) fn rounds(classes: &[Class], panel: usize) -> Vec<Vec<Pass>> {
    let mut rounds: Vec<Vec<Pass>> = Vec::new();
    let passes = |(i, class): (usize, &Class)| class.passes(i, panel);
    for pass in classes.iter().enumerate().flat_map(passes) {
        let fits = |round: &Vec<Pass>| round_len(round) + pass.pack_len() <= PACK_LIMIT;
        match rounds.last_mut().filter(|round| fits(round)) {
            Some(round) => round.push(pass),
            None => rounds.push(vec![pass]),
        }
    }
    rounds
}

/// Elements of the packed weights of a round.
pub(super) fn round_len(round: &[Pass]) -> usize {
    round.iter().map(Pass::pack_len).sum()
}

impl Class {
    /// The forward pass: one class per channel group, with all positions.
    pub(super) fn forward(shape: &ConvShape) -> Vec<Self> {
        let s = shape.simplified();
        let map = RowMap::forward(&s);
        let (channels, filters) = (s.group_channels(), s.group_filters());
        let unfold = s.channels < MIN_RUN && map.taps() > 1;
        let class = |group| Class {
            map: map.clone(),
            channels: if unfold { s.filter_len() } else { channels },
            first_channel: group * channels,
            columns: group * filters..(group + 1) * filters,
            unfold,
        };
        (0..s.groups).map(class).collect()
    }

    /// The input gradient: per channel group, one class for each residue of both coordinates modulo
    /// the stride.
    pub(super) fn gradients(shape: &ConvShape) -> Vec<Self> {
        let s = shape.simplified();
        let around = (s.pad, s.dilation);
        let (channels, filters) = (s.group_channels(), s.group_filters());
        let class = |group, h, w| Class {
            map: RowMap::new(
                Axis::gradient(s.out_height, s.kernel_h, s.stride, around, h),
                Axis::gradient(s.out_width, s.kernel_w, s.stride, around, w),
                [s.out_height, s.out_width, s.filters],
                [s.height, s.width],
                s.kernel_w,
            ),
            channels: filters,
            first_channel: group * filters,
            columns: group * channels..(group + 1) * channels,
            unfold: false,
        };
        let residues = (0..s.stride).flat_map(|h| (0..s.stride).map(move |w| (h, w)));
        let classes = |group| residues.clone().map(move |(h, w)| class(group, h, w));
        (0..s.groups).flat_map(classes).collect()
    }

    /// Kernel positions of the taps; blocks refer to taps by their index in this list.
    pub(super) fn kernel_taps(&self) -> &[usize] {
        if self.unfold { &[0] } else { &self.map.kernel_taps }
    }

    /// Offsets of the taps, in the order of [`Self::kernel_taps`].
    pub(super) fn tap_offsets(&self) -> &[isize] {
        if self.unfold { &[0] } else { &self.map.tap_offsets }
    }

    /// The reduction in blocks of about [`MAX_RUN`]: several taps, or a part of one.
    pub(super) fn blocks(&self) -> Vec<Block> {
        let (taps, channels) = (self.tap_offsets().len(), self.channels);
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

    fn passes(&self, class: usize, panel: usize) -> Vec<Pass> {
        let blocks = self.blocks();
        let depth: usize = blocks.iter().map(Block::depth).sum();
        let room = PACK_LIMIT / depth.max(1) / panel * panel;
        let all = self.columns.len().next_multiple_of(panel);
        let width = room.max(MIN_PASS_COLUMNS).min(all).max(1);
        let mut passes: Vec<Pass> = Vec::new();
        for start in self.columns.clone().step_by(width) {
            let columns = start..self.columns.end.min(start + width);
            for (i, &block) in blocks.iter().enumerate() {
                let fits = |pass: &Pass| {
                    pass.columns == columns && pass.pack_len() + block.depth() * width <= PACK_LIMIT
                };
                match passes.last_mut().filter(|pass| fits(pass)) {
                    Some(pass) => pass.blocks.push(block),
                    None => passes.push(Pass {
                        class,
                        columns: columns.clone(),
                        blocks: vec![block],
                        first_block: i,
                        all_blocks: blocks.len(),
                        panel,
                    }),
                }
            }
        }
        passes
    }

    /// True if rows of one tap are multiples of [`SETS`] apart, so that rows of a tile evict each
    /// other from the L1.
    pub(super) fn shares_sets(&self) -> bool {
        !self.unfold && self.map.taps() == 1 && self.channels.is_multiple_of(SETS)
    }

    /// Copies rows that share sets, with an extra cache line between them; `rows` then refer to the
    /// copies.
    pub(super) fn copy_apart(&self, x: &[f32], rows: &mut [Row], out: &mut Vec<f32>) {
        let pitch = self.channels + LINE;
        out.resize(rows.len() * pitch, 0.0);
        for (i, (row, copy)) in rows.iter_mut().zip(out.chunks_exact_mut(pitch)).enumerate() {
            if row.mask & 1 == 1 {
                let start = row.base as usize + self.first_channel;
                copy[..self.channels].copy_from_slice(&x[start..start + self.channels]);
            }
            row.base = (i * pitch) as isize;
        }
    }

    /// Copies the windows of `rows` to contiguous memory, padding as zeros.
    pub(super) fn unfold(&self, x: &[f32], rows: &[Row], out: &mut Vec<f32>) {
        out.clear();
        out.resize(rows.len() * self.channels, 0.0);
        let taps_w = self.map.taps_w();
        let run = self.channels / self.map.taps();
        for (row, window) in rows.iter().zip(out.chunks_exact_mut(self.channels)) {
            let full = row.mask == self.map.full_mask() && self.map.has_joined_taps();
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
