//! CUDA launches of `accuracies`.

use device::{Access, Arg, Launch, LaunchArgs, StructArg};

use super::{Accuracies, AccuraciesInputs, COUNTS, COVERS};

/// A block a multiprocessor: the masks of a batch are some megabytes.
const BLOCKS: usize = 128;

/// Bytes of the counts of each block.
pub(super) const WORKSPACE_BYTES: usize = BLOCKS * COUNTS * size_of::<i32>();

pub(super) fn launches(op: Accuracies, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = op.inputs(&args.inputs);
    let partials = |access| args.workspace.piece(0, WORKSPACE_BYTES, access);
    let pointers: Vec<Arg> = args.inputs.iter().map(|input| input.read()).collect();
    let masks = inputs.mask_logits.map_or([0, 0], |logits| [0, 1].map(|dim| logits.dim(dim)));
    let sizes = [
        inputs.class_logits.dim(0),
        inputs.class_logits.dim(1),
        inputs.anchor_labels.len(),
        inputs.proposals.dim(0),
        inputs.proposals.dim(1),
        inputs.gt_boxes.dim(1),
        masks[0],
        masks[1] * masks[1],
    ];
    let int = |size: usize| match i32::try_from(size) {
        Ok(size) => size,
        Err(_) => panic!("accuracies: a size of {size}"),
    };
    let predictions = StructArg::new()
        .pointers(&pointers, AccuraciesInputs::LEN + 3)
        .field(sizes.map(int))
        .field(i32::from(op.plus_one))
        .field(COVERS)
        .arg();
    vec![
        Launch::new("accuracies_f16", [BLOCKS, 1, 1]).arg(predictions).arg(partials(Access::Write)),
        Launch::new("accuracies_total", [1, 1, 1])
            .block(32)
            .arg(partials(Access::Read))
            .arg(args.outputs[0].write()),
    ]
}
