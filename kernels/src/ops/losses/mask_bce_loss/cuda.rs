//! CUDA launches of `mask_bce_loss` and its gradient.

use device::{Access, Launch, LaunchArgs};

use super::MaskBceLossInputs;
use crate::losses::launch::{LossRows, assert_real, loss_gradient, partial_bytes};
use crate::{DType, TensorDesc};

/// Four blocks a multiprocessor: enough loads in flight to fill the memory, few enough that
/// counting the groups, which each block does, stays a part of the traffic.
const MAX_BLOCKS: usize = 512;

fn rows<'a>(args: &LaunchArgs<'a>, ipg: usize) -> LossRows<'a> {
    let inputs = MaskBceLossInputs::of(&args.inputs);
    assert_real(inputs.mask_logits.desc);
    assert_eq!(inputs.targets.dtype(), DType::F32, "{:?}: targets are f32", inputs.targets.desc);
    LossRows {
        labels: *inputs.labels,
        image_idx: *inputs.image_idx,
        num_images: *inputs.num_images,
        count: Some(*inputs.count),
        ipg,
        least_label: 1,
        rows_per_image: None,
    }
}

/// A block a row; a loss without rows is still written.
fn blocks(logits: &TensorDesc) -> usize {
    logits.dim(0).clamp(1, MAX_BLOCKS)
}

fn pixels(logits: &TensorDesc) -> usize {
    logits.dim(1) * logits.dim(2)
}

pub(super) fn workspace_bytes(logits: &TensorDesc) -> usize {
    partial_bytes(blocks(logits))
}

pub(super) fn launches(ipg: usize, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = MaskBceLossInputs::of(&args.inputs);
    let logits = *inputs.mask_logits;
    let blocks = blocks(logits.desc);
    let partials = |access| args.workspace.piece(0, partial_bytes(blocks), access);
    vec![
        Launch::new("mask_bce_loss_f16", [blocks, 1, 1])
            .arg(logits.read())
            .arg(inputs.targets.read())
            .arg(rows(args, ipg).arg())
            .int(pixels(logits.desc))
            .arg(partials(Access::Write)),
        Launch::new("mask_bce_loss_total", [1, 1, 1])
            .block(MAX_BLOCKS as u32)
            .arg(partials(Access::Read))
            .int(blocks)
            .arg(args.outputs[0].write()),
    ]
}

pub(super) fn grad_launches(ipg: usize, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = MaskBceLossInputs::of(&args.inputs);
    let logits = *inputs.mask_logits;
    vec![
        Launch::new("mask_bce_loss_grad_f16", [blocks(logits.desc), 1, 1])
            .arg(logits.read())
            .arg(inputs.targets.read())
            .arg(rows(args, ipg).arg())
            .int(pixels(logits.desc))
            .arg(loss_gradient(args.inputs[MaskBceLossInputs::LEN]))
            .arg(args.outputs[0].write()),
    ]
}
