//! CUDA launches of `nms_proposals`: sort, compare, walk, for groups of images cut, merge.

use device::{Access, Arg, BLOCK, Launch, LaunchArgs, StructArg, Workspace};

use super::{NmsProposals, NmsProposalsInputs, ProposalScope};
use crate::TensorDesc;

/// Sizes of the passes, as in `nms_proposals.cu`.
const SORT_THREADS: u32 = 1024;
const CHUNK: usize = 64;
const BAND: usize = 33;
const LEVEL_SLOTS: usize = 8;
const MASK_TILES: usize = 4;
const WALK_THREADS: u32 = 1024;
const SELECT_THREADS: u32 = 256;

/// Arrays of `Scratch` in `nms_proposals.cu`, in its order.
const BOXES: usize = 0;
const KEYS: usize = 1;
const KEPT: usize = 2;
const ENDS: usize = 3;
const GROUPS: usize = 4;
const KEPT_COUNTS: usize = 5;
const OVERLAPS: usize = 6;
const ARRAYS: usize = 7;

/// Offset and length of each array of the scratch memory, and the length of all.
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

pub(super) fn workspace_bytes(boxes: &TensorDesc) -> usize {
    plan(boxes).1
}

/// `Scratch`; the arrays that a kernel does not touch are null.
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

pub(super) fn launches(op: &NmsProposals, args: &LaunchArgs<'_>) -> Vec<Launch> {
    use Access::{Read, Write};
    let NmsProposalsInputs { boxes, scores, levels, idx } = NmsProposalsInputs::of(&args.inputs);
    let (n, rows, capacity) = (boxes.dim(0), boxes.dim(1), args.outputs[1].dim(1));
    let (pieces, _) = plan(boxes.desc);
    let scratch = |touched: &[_]| scratch(&pieces, args.workspace, touched);
    let chunks = rows.div_ceil(CHUNK);
    let sort = Launch::new("nms_proposals_sort", [LEVEL_SLOTS, n, 1])
        .block(SORT_THREADS)
        .arg(boxes.read())
        .arg(scores.read())
        .arg(levels.read())
        .arg(scratch(&[(BOXES, Write), (KEYS, Write), (ENDS, Write), (GROUPS, Write)]))
        .int(rows);
    let compare = Launch::new("nms_proposals_compare", [chunks, BAND.div_ceil(MASK_TILES), n])
        .arg(scratch(&[(BOXES, Read), (ENDS, Read), (OVERLAPS, Write)]))
        .int(rows)
        .arg(op.threshold)
        .arg(op.plus_one);
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
        .int(op.most_of_level().min(rows))
        .arg(op.threshold)
        .arg(op.plus_one);
    let mut launches = vec![sort, compare, walk];
    if let ProposalScope::Batch { images } = op.scope {
        let touched = [(KEPT, Read), (GROUPS, Read), (KEPT_COUNTS, Access::Update)];
        let cut = Launch::new("nms_proposals_cut", [n / images, 1, 1])
            .block(SELECT_THREADS)
            .arg(scratch(&touched))
            .int(rows)
            .int(images)
            .int(op.post_top_n);
        launches.push(cut);
    }
    // Without rows one block still writes the count.
    let blocks = rows.max(capacity).div_ceil(BLOCK as usize).max(1);
    let mut merge = Launch::new("nms_proposals_merge", [blocks, n, 1])
        .arg(boxes.read())
        .arg(scores.read())
        .arg(idx.read())
        .arg(scratch(&[(KEPT, Read), (GROUPS, Read), (KEPT_COUNTS, Read)]));
    for output in &args.outputs {
        merge = merge.arg(output.write());
    }
    let by_image = op.scope == ProposalScope::Image;
    launches.push(merge.int(rows).int(capacity).arg(by_image));
    launches
}
