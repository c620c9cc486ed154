//! CUDA launches of `softmax_cross_entropy` and its gradient.

use device::{Access, Launch, LaunchArgs};

use super::{SoftmaxCrossEntropy, SoftmaxCrossEntropyInputs};
use crate::TensorDesc;
use crate::losses::launch::{
    LossRows, MAX_BLOCKS, ROW_THREADS, assert_real, blocks, loss_gradient, partial_bytes,
};

/// A warp works on a row.
const ROWS_A_BLOCK: usize = ROW_THREADS as usize / 32;

fn rows<'a>(args: &LaunchArgs<'a>, op: SoftmaxCrossEntropy) -> LossRows<'a> {
    let inputs = SoftmaxCrossEntropyInputs::of(&args.inputs);
    assert_real(inputs.logits.desc);
    LossRows {
        labels: *inputs.labels,
        image_idx: *inputs.image_idx,
        num_images: *inputs.num_images,
        count: None,
        ipg: op.ipg,
        least_label: 0,
        rows_per_image: op.rows_per_image,
    }
}

pub(super) fn workspace_bytes(logits: &TensorDesc) -> usize {
    partial_bytes(blocks(logits.dim(0), ROWS_A_BLOCK))
}

pub(super) fn launches(op: SoftmaxCrossEntropy, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = SoftmaxCrossEntropyInputs::of(&args.inputs);
    let logits = *inputs.logits;
    let blocks = blocks(logits.dim(0), ROWS_A_BLOCK);
    let partials = |access| args.workspace.piece(0, partial_bytes(blocks), access);
    vec![
        Launch::new("softmax_cross_entropy_f16", [blocks, 1, 1])
            .block(ROW_THREADS)
            .arg(logits.read())
            .arg(rows(args, op).arg())
            .int(logits.dim(1))
            .arg(partials(Access::Write)),
        Launch::new("softmax_cross_entropy_total", [1, 1, 1])
            .block(MAX_BLOCKS as u32)
            .arg(partials(Access::Read))
            .int(blocks)
            .arg(args.outputs[0].write()),
    ]
}

pub(super) fn grad_launches(op: SoftmaxCrossEntropy, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = SoftmaxCrossEntropyInputs::of(&args.inputs);
    let logits = *inputs.logits;
    vec![
        Launch::new("softmax_cross_entropy_grad_f16", [blocks(logits.dim(0), ROWS_A_BLOCK), 1, 1])
            .block(ROW_THREADS)
            .arg(logits.read())
            .arg(rows(args, op).arg())
            .int(logits.dim(1))
            .arg(loss_gradient(args.inputs[SoftmaxCrossEntropyInputs::LEN]))
            .arg(args.outputs[0].write()),
    ]
}
