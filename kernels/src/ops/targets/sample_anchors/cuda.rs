//! CUDA launches of `sample_anchors`.

use device::{Access, Launch, LaunchArgs, StructArg};

use super::SampleAnchors;
use crate::boxes::max_positives;

/// Anchors a block draws from.
const CHUNK: usize = 256 * 16;
/// Bytes of a key, and histograms for each: positives and negatives.
const DIGITS: usize = 4;
/// Bytes of the histograms per image.
const IMAGE_BYTES: usize = DIGITS * 2 * 256 * 4;

/// Bytes of the states of an image's draws: two for each byte of the keys.
const IMAGE_STATES: usize = DIGITS * 2 * 16;

/// Blocks of an image. One for no anchors too: it writes the counts.
fn blocks(anchors: usize) -> usize {
    anchors.div_ceil(CHUNK).max(1)
}

/// Bytes of the pieces of scratch: histograms, states, counts of each block, and two bytes an
/// anchor. Each is a multiple of 256.
fn pieces(images: usize, anchors: usize) -> [usize; 4] {
    let blocks = blocks(anchors);
    [IMAGE_BYTES, IMAGE_STATES, blocks * 16, blocks * CHUNK * 2]
        .map(|bytes| (images * bytes).next_multiple_of(256))
}

pub(super) fn workspace_bytes(images: usize, anchors: usize) -> usize {
    pieces(images, anchors).iter().sum()
}

pub(super) fn launches(op: &SampleAnchors, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (labels, image_keys) = (args.inputs[0], args.inputs[1]);
    let (images, anchors) = (labels.dim(0), labels.dim(1));
    let scratch = |access: [Access; 4]| {
        let mut offset = 0;
        let tensors = std::array::from_fn::<_, 4, _>(|i| {
            let bytes = pieces(images, anchors)[i];
            offset += bytes;
            args.workspace.piece(offset - bytes, bytes, access[i])
        });
        StructArg::new().pointers(tensors, 4).arg()
    };
    let rule = StructArg::new()
        .field(op.seed)
        .ints([anchors, op.batch, max_positives(op.batch, op.positive_fraction)])
        .arg();
    let grid = [blocks(anchors), images, 1];
    let over_anchors = |kernel, access| {
        Launch::new(kernel, grid).arg(image_keys.read()).arg(scratch(access)).arg(rule.clone())
    };
    use Access::{Read, Update, Write};
    let len = images * IMAGE_BYTES / 4;
    let clear = Launch::over("sample_anchors_clear", len)
        .arg(args.workspace.piece(0, images * IMAGE_BYTES, Write))
        .len(len);
    let keys = Launch::new("sample_anchors_keys", grid)
        .arg(labels.read())
        .arg(image_keys.read())
        .arg(scratch([Update, Write, Write, Write]))
        .arg(rule.clone());
    let mut launches = vec![clear, keys];
    launches.extend((1..DIGITS).map(|digit| {
        over_anchors("sample_anchors_histogram", [Update, Update, Write, Read]).int(digit)
    }));
    launches.push(over_anchors("sample_anchors_count", [Read, Update, Write, Read]));
    launches.push(
        over_anchors("sample_anchors_write", [Read; 4])
            .arg(args.outputs[0].write())
            .arg(args.outputs[1].write()),
    );
    launches
}
