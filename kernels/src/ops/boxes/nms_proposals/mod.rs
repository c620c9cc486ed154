//! The proposals of each image that survive non-maximum suppression, best first.
//!
//! Scope `Image` matches torchvision's `filter_proposals` from NMS onwards. Rows are ranked by
//! (score descending, input row ascending), so the order is unique. Scope `Batch` is the
//! training-time selection of maskrcnn-benchmark's `select_over_all_levels`; of equal scores the
//! row of the lower image index is kept.
//!
//! Cost: at most M^2 / 2 IoUs per level. Deterministic.

mod cases;

use device::{Access, Arg, BLOCK, Launch, LaunchArgs, StructArg, Workspace};
use rayon::prelude::*;

use crate::boxes::{Box4, as_boxes, as_boxes_mut, nms_sorted, rank_index, rank_key};
use crate::contract::{Dims, Kernel};
use crate::cpu::{CpuArgs, exactly};
use crate::{Cost, OpError, TensorDesc, check, op};

pub use cases::cases;

/// The scope over which `post_top_n` is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProposalScope {
    /// Per image: the best survivors over all levels, ordered by (score, row).
    Image,
    /// Per level of an image: the best survivors of the level, stored level after level.
    Level,
    /// Per group of consecutive images: the best survivors of the group, stored level after level
    /// in each image.
    Batch {
        /// Images per group; divides N.
        images: usize,
    },
}

op! {
    /// NMS within each level of each image, then top-n selection. The capacity P of the outputs is
    /// `post_top_n` in scope `Image`, the minimum of `post_top_n` and M in scope `Batch`, and M in
    /// scope `Level`.
    pub struct NmsProposals = "nms_proposals" {
        /// A proposal is suppressed if its IoU with a higher-scoring proposal is above this.
        pub threshold: f32,
        /// Proposals kept per scope.
        pub post_top_n: usize,
        /// Maximum survivors per level and image that enter the selection; `None`: no limit.
        pub level_top_n: Option<usize>,
        /// Box corners are inclusive: width = x2 - x1 + 1.
        pub plus_one: bool,
        /// The scope over which `post_top_n` is applied.
        pub scope: ProposalScope,
    }
    in NmsProposalsInputs {
        /// Decoded proposals.
        boxes: f32 "[N, M, 4]",
        /// Scores of the proposals; a negative score marks an invalid row.
        scores: f32 "[N, M]",
        /// Level of each row.
        levels: i32 "[M]",
        /// Anchor of each row.
        idx: i32 "[N, M]",
    }
    out {
        /// Survivors, best first; 0 at or past the count.
        proposals: Box "[N, P, 4]",
        /// Scores of the survivors, or 0.
        proposal_scores: Score "[N, P]",
        /// Anchors of the survivors, or -1.
        proposal_anchor_idx: Index "[N, P]",
        /// Number of survivors of each image.
        counts: Index "[N]",
    }
}

impl NmsProposals {
    /// Maximum survivors computed per level of an image, since the selection keeps no more.
    fn most_of_level(&self) -> usize {
        self.level_top_n.map_or(self.post_top_n, |most| most.min(self.post_top_n))
    }
}

impl Kernel for NmsProposals {
    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let rows = dims.get("M");
        let capacity = match self.scope {
            ProposalScope::Level => rows,
            ProposalScope::Image => self.post_top_n,
            ProposalScope::Batch { images } => {
                let n = dims.get("N");
                let divides = n.checked_rem(images) == Some(0);
                let expected = format!("a divisor of {n}");
                check::parameter(dims.op(), "images per group", divides, &expected, images)?;
                self.post_top_n.min(rows)
            }
        };
        dims.bind("P", capacity);
        Ok(())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // 14 operations per IoU, assuming that each of five levels holds a fifth of the rows.
        let rows = NmsProposalsInputs::of(inputs).boxes.dim(1) as u64;
        let pairs = NmsProposalsInputs::of(inputs).boxes.dim(0) as u64 * rows * rows / 10;
        Cost::streaming(inputs, outputs, 14 * pairs)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        let boxes = NmsProposalsInputs::of(inputs).boxes;
        plan(boxes).1
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        use Access::{Read, Write};
        let NmsProposalsInputs { boxes, scores, levels, idx } =
            NmsProposalsInputs::of(&args.inputs);
        let (n, rows, capacity) = (boxes.dim(0), boxes.dim(1), args.outputs[1].dim(1));
        let (pieces, _) = plan(boxes.desc);
        let scratch = |touched: &[_]| scratch(&pieces, args.workspace, touched);
        let chunks = rows.div_ceil(CHUNK);
        let sort = Launch::new("nms_proposals_sort", [LEVEL_SLOTS, n, 1])
            .block(SORT_THREADS)
            .reads([boxes, scores, levels])
            .arg(scratch(&[(BOXES, Write), (KEYS, Write), (ENDS, Write), (GROUPS, Write)]))
            .int(rows);
        let compare = Launch::new("nms_proposals_compare", [chunks, BAND.div_ceil(MASK_TILES), n])
            .arg(scratch(&[(BOXES, Read), (ENDS, Read), (OVERLAPS, Write)]))
            .int(rows)
            .arg(self.threshold)
            .arg(self.plus_one);
        let walk = Launch::new("nms_proposals_walk", [LEVEL_SLOTS, n, 1])
            .block(WALK_THREADS)
            .shared(8 * chunks)
            .arg(scratch(&[
                (BOXES, Read),
                (KEYS, Read),
                (KEPT, Write),
                (GROUPS, Read),
                (KEPT_COUNTS, Write),
                (OVERLAPS, Read),
            ]))
            .int(rows)
            .int(self.most_of_level().min(rows))
            .arg(self.threshold)
            .arg(self.plus_one);
        let mut launches = vec![sort, compare, walk];
        if let ProposalScope::Batch { images } = self.scope {
            let touched = [(KEPT, Read), (GROUPS, Read), (KEPT_COUNTS, Access::Update)];
            let cut = Launch::new("nms_proposals_cut", [n / images, 1, 1])
                .block(SELECT_THREADS)
                .arg(scratch(&touched))
                .int(rows)
                .int(images)
                .int(self.post_top_n);
            launches.push(cut);
        }
        // Without rows one block still writes the count.
        let blocks = rows.max(capacity).div_ceil(BLOCK as usize).max(1);
        let mut merge = Launch::new("nms_proposals_merge", [blocks, n, 1])
            .reads([boxes, scores, idx])
            .arg(scratch(&[(KEPT, Read), (GROUPS, Read), (KEPT_COUNTS, Read)]));
        for output in &args.outputs {
            merge = merge.arg(output.write());
        }
        let by_image = self.scope == ProposalScope::Image;
        launches.push(merge.int(rows).int(capacity).arg(by_image));
        launches
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = NmsProposalsInputs::of(&args.inputs);
        let (num_images, rows) = (inputs.boxes.shape()[0], inputs.boxes.shape()[1]);
        let (boxes, scores) = (as_boxes(inputs.boxes.f32()), inputs.scores.f32());
        let (levels, idx) = (inputs.levels.i32(), inputs.idx.i32());
        let groups = rows_by_level(levels);

        let tasks: Vec<(usize, &Vec<usize>)> =
            (0..num_images).flat_map(|n| groups.iter().map(move |g| (n, g))).collect();
        // Survivors of each image and level, as rank keys.
        let survivors: Vec<Vec<u64>> = tasks
            .into_par_iter()
            .map(|(n, group)| {
                let at = n * rows;
                survive(self, &boxes[at..at + rows], &scores[at..at + rows], group)
            })
            .collect();

        let mut lists: Vec<Vec<u64>> = (0..num_images)
            .map(|n| survivors[n * groups.len()..][..groups.len()].concat())
            .collect();
        match self.scope {
            ProposalScope::Level => {}
            ProposalScope::Image => lists.iter_mut().for_each(|kept| {
                kept.sort_unstable();
                kept.truncate(self.post_top_n);
            }),
            ProposalScope::Batch { images } => {
                lists.chunks_mut(images).for_each(|group| cut(group, self.post_top_n));
            }
        }

        let [out_boxes, out_scores, out_idx, counts] = exactly(&mut args.outputs);
        let capacity = out_scores.shape()[1];
        let (out_boxes, out_scores) = (as_boxes_mut(out_boxes.f32()), out_scores.f32());
        let (out_idx, counts) = (out_idx.i32(), counts.i32());
        out_boxes.fill([0.0; 4]);
        out_scores.fill(0.0);
        out_idx.fill(-1);
        for (n, kept) in lists.iter().enumerate() {
            counts[n] = kept.len() as i32;
            for (slot, &key) in kept.iter().enumerate() {
                let (from, to) = (n * rows + rank_index(key), n * capacity + slot);
                out_boxes[to] = boxes[from];
                out_scores[to] = scores[from];
                out_idx[to] = idx[from];
            }
        }
    }
}

/// Launch sizes of the kernels, as in `nms_proposals.cu`.
const SORT_THREADS: u32 = 1024;
const CHUNK: usize = 64;
const BAND: usize = 33;
const LEVEL_SLOTS: usize = 8;
const MASK_TILES: usize = 4;
const WALK_THREADS: u32 = 1024;
const SELECT_THREADS: u32 = 256;

/// Indices of the arrays of `Scratch` in `nms_proposals.cu`, in declaration order.
const BOXES: usize = 0;
const KEYS: usize = 1;
const KEPT: usize = 2;
const ENDS: usize = 3;
const GROUPS: usize = 4;
const KEPT_COUNTS: usize = 5;
const OVERLAPS: usize = 6;
const ARRAYS: usize = 7;

/// Offset and length of each array in the scratch memory, and the total length.
fn plan(boxes: &TensorDesc) -> ([(usize, usize); ARRAYS], usize) {
    let (n, rows) = (boxes.shape[0], boxes.shape[1]);
    let chunks = rows.div_ceil(CHUNK);
    let mut pieces = [(0, 0); ARRAYS];
    for (array, bytes) in [
        (BOXES, 16 * rows),
        (KEYS, 8 * rows),
        (KEPT, 8 * rows),
        (ENDS, 4 * rows),
        (GROUPS, 8 * (rows + LEVEL_SLOTS)),
        (KEPT_COUNTS, 4 * (rows + LEVEL_SLOTS)),
        (OVERLAPS, 8 * chunks * BAND * CHUNK),
    ] {
        pieces[array].1 = n * bytes;
    }
    let mut end = 0usize;
    for (offset, bytes) in &mut pieces {
        *offset = end.next_multiple_of(256);
        end = *offset + *bytes;
    }
    (pieces, end)
}

/// The kernel argument `Scratch`; arrays that the kernel does not access are null.
fn scratch(
    pieces: &[(usize, usize); ARRAYS],
    workspace: Workspace,
    touched: &[(usize, Access)],
) -> Arg {
    let mut pointers = vec![Arg::Null; ARRAYS];
    for &(array, access) in touched {
        let (offset, bytes) = pieces[array];
        pointers[array] = workspace.piece(offset, bytes, access);
    }
    StructArg::new().pointers(pointers, ARRAYS).arg()
}

/// Keeps the `count` best survivors of a group of images; survivors of an image stay in order.
fn cut(group: &mut [Vec<u64>], count: usize) {
    let rank = |key: u64| key >> 32;
    let mut all: Vec<(u64, usize, usize)> = group
        .iter()
        .enumerate()
        .flat_map(|(i, kept)| kept.iter().map(move |&key| (rank(key), i, rank_index(key))))
        .collect();
    let Some(first_out) = (count < all.len()).then(|| *all.select_nth_unstable(count).1) else {
        return;
    };
    for (i, kept) in group.iter_mut().enumerate() {
        kept.retain(|&key| (rank(key), i, rank_index(key)) < first_out);
    }
}

/// The rows of each level, levels ascending.
fn rows_by_level(levels: &[i32]) -> Vec<Vec<usize>> {
    let mut rows: Vec<usize> = (0..levels.len()).collect();
    rows.sort_by_key(|&row| levels[row]);
    rows.chunk_by(|&a, &b| levels[a] == levels[b]).map(<[usize]>::to_vec).collect()
}

/// NMS of the rows `group` of an image; returns the survivors' rank keys.
fn survive(op: &NmsProposals, boxes: &[Box4], scores: &[f32], group: &[usize]) -> Vec<u64> {
    let counted = group.iter().filter(|&&row| scores[row] >= 0.0);
    let mut keys: Vec<u64> = counted.map(|&row| rank_key(scores[row], row as u32)).collect();
    keys.sort_unstable();
    let sorted: Vec<Box4> = keys.iter().map(|&key| boxes[rank_index(key)]).collect();
    let kept = nms_sorted(&sorted, op.threshold, op.plus_one, op.most_of_level());
    kept.into_iter().map(|i| keys[i]).collect()
}
