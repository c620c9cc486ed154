//! CUDA launches of `sample_rois`.

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg};

use super::{SampleRois, SampleRoisInputs};
use crate::boxes::max_positives;

/// Threads that draw from the candidates of an image.
const DRAW_THREADS: u32 = 1024;

/// Bytes of the counts of the images, as a first piece of the scratch.
fn counts_bytes(images: usize) -> usize {
    (8 * images).next_multiple_of(256)
}

/// Two counts per image, then two integers for each drawn RoI.
pub(super) fn workspace_bytes(op: &SampleRois, images: usize) -> usize {
    counts_bytes(images) + 8 * images * op.batch
}

pub(super) fn launches(op: &SampleRois, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let SampleRoisInputs { candidates, labels, matched_idx, keys, counts, image_keys } =
        SampleRoisInputs::of(&args.inputs);
    let (images, capacity) = (labels.dim(0), labels.dim(1));
    let positives = max_positives(op.batch, op.positive_fraction);
    let drawn_counts = |access| args.workspace.piece(0, 8 * images, access);
    let drawn = |access| args.workspace.piece(counts_bytes(images), 8 * images * op.batch, access);
    let draw = Launch::new("sample_rois_draw", [images, 1, 1])
        .block(DRAW_THREADS)
        .arg(labels.read())
        .arg(keys.read())
        .arg(counts.read())
        .arg(image_keys.read())
        .arg(drawn(Access::Write))
        .arg(drawn_counts(Access::Write))
        .arg(op.seed)
        .int(capacity)
        .int(op.batch)
        .int(positives);
    let (all, of_positives) = args.outputs.split_at(5);
    // One thread at least: it writes the counts.
    let write = Launch::over("sample_rois_write", (images * op.batch).max(1))
        .arg(candidates.read())
        .arg(labels.read())
        .arg(matched_idx.read())
        .arg(drawn(Access::Read))
        .arg(drawn_counts(Access::Read))
        .arg(list(all))
        .arg(list(of_positives))
        .int(images)
        .int(capacity)
        .int(op.batch)
        .int(positives);
    vec![draw, write]
}

/// The five tensors of a list as one argument.
fn list(outputs: &[Buffer<'_>]) -> Arg {
    StructArg::new().pointers(outputs.iter().map(Buffer::write), outputs.len()).arg()
}
