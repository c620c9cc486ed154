//! CUDA launches of `sample_anchors`.

use super::SampleAnchors;
use crate::boxes::{SampleKey, max_positives};
use crate::device::{Access, Launch, LaunchArgs, StructArg};

/// Anchors a block draws from.
const CHUNK: usize = 256 * 16;
/// Bytes of a key, and histograms for each: positives and negatives.
const DIGITS: usize = 4;
/// Bytes of the histograms of an image.
const IMAGE_BYTES: usize = DIGITS * 2 * 256 * 4;

/// Blocks of an image. One for no anchors too: it writes the counts.
fn blocks(anchors: usize) -> usize {
    anchors.div_ceil(CHUNK).max(1)
}

/// Histograms, then for each block the counts of both classes.
pub(super) fn workspace_bytes(images: usize, anchors: usize) -> usize {
    images * (IMAGE_BYTES + blocks(anchors) * 16)
}

pub(super) fn launches(op: &SampleAnchors, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (labels, image_keys) = (args.inputs[0], args.inputs[1]);
    let (images, anchors) = (labels.dim(0), labels.dim(1));
    let histograms = |access| args.workspace.piece(0, images * IMAGE_BYTES, access);
    let block_counts =
        |access| args.workspace.piece(images * IMAGE_BYTES, images * blocks(anchors) * 16, access);
    let order = StructArg::new().field(op.seed).field(i32::from(op.key == SampleKey::Hash)).arg();
    let parameters = |launch: Launch| {
        let positives = max_positives(op.batch, op.positive_fraction);
        launch.arg(order.clone()).int(anchors).int(op.batch).int(positives)
    };
    let over_anchors = |kernel| {
        let launch = Launch::new(kernel, [blocks(anchors), images, 1]);
        launch.arg(labels.read()).arg(image_keys.read())
    };
    let len = images * IMAGE_BYTES / 4;
    let clear = Launch::over("sample_anchors_clear", len).arg(histograms(Access::Write)).len(len);
    let mut launches = vec![clear];
    launches.extend((0..DIGITS).map(|digit| {
        let launch = over_anchors("sample_anchors_histogram").arg(histograms(Access::Update));
        parameters(launch).int(digit)
    }));
    launches.push(parameters(
        over_anchors("sample_anchors_count")
            .arg(histograms(Access::Read))
            .arg(block_counts(Access::Write)),
    ));
    launches.push(parameters(
        over_anchors("sample_anchors_write")
            .arg(histograms(Access::Read))
            .arg(block_counts(Access::Read))
            .arg(args.outputs[0].write())
            .arg(args.outputs[1].write()),
    ));
    launches
}
