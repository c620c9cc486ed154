//! CUDA launches of `decode_proposals`: one for each [`MAX_LEVELS`] levels.

use device::{Arg, Buffer, Launch, LaunchArgs, StructArg};

use super::{DecodeProposals, DecodeProposalsInputs};
use crate::DType;

/// Levels of a launch, as in `decode_proposals.cu`.
const MAX_LEVELS: usize = 8;

pub(super) fn launches(op: &DecodeProposals, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let DecodeProposalsInputs { idx, anchors, network_sizes, logits, deltas } =
        DecodeProposalsInputs::of(&args.inputs);
    let dtype = logits[0].dtype();
    let mut maps = logits.iter().chain(&deltas);
    assert!(maps.all(|m| m.dtype() == dtype), "maps of one element type");
    let kernel = match dtype {
        DType::F16 => "decode_proposals_f16",
        _ => "decode_proposals_f32",
    };
    let mut first = 0;
    let mut launches = Vec::new();
    for (logits, deltas) in logits.chunks(MAX_LEVELS).zip(deltas.chunks(MAX_LEVELS)) {
        let levels = levels_arg(logits, deltas, first, anchors.dim(0), launches.is_empty());
        first += logits.iter().map(|logits| anchors_of(logits)).sum::<usize>();
        launches.push(
            Launch::over(kernel, idx.len())
                .arg(idx.read())
                .arg(anchors.read())
                .arg(network_sizes.read())
                // A launch writes only the rows of its levels.
                .arg(args.outputs[0].write())
                .arg(args.outputs[1].write())
                .arg(levels)
                .int(idx.dim(0))
                .int(idx.dim(1))
                .arg(Arg::of(&op.weights))
                .arg(op.min_size)
                .arg(op.score_threshold)
                .arg(op.plus_one),
        );
    }
    launches
}

fn anchors_of(logits: &Buffer<'_>) -> usize {
    logits.desc.shape[1..].iter().product()
}

/// `Levels` of `decode_proposals.cu`; `first` is the first anchor of the first level.
fn levels_arg(
    logits: &[&Buffer<'_>],
    deltas: &[&Buffer<'_>],
    first: usize,
    total: usize,
    first_launch: bool,
) -> Arg {
    let mut ends = [0i32; MAX_LEVELS];
    let mut end = first;
    for (place, logits) in ends.iter_mut().zip(logits) {
        end += anchors_of(logits);
        *place = end as i32;
    }
    let strays = i32::from(first_launch);
    StructArg::new()
        .pointers(logits.iter().map(|map| map.read()), MAX_LEVELS)
        .pointers(deltas.iter().map(|map| map.read()), MAX_LEVELS)
        .field(ends)
        .field([first as i32, logits.len() as i32, total as i32, strays])
        .arg()
}
