//! CUDA launches of `bce_loss` and its gradient.

use device::{Launch, LaunchArgs};

use super::{BceLoss, BceLossInputs};
use crate::losses::launch::{LossRows, ROW_THREADS, assert_real, blocks, loss_gradient};

fn rows<'a>(args: &LaunchArgs<'a>, op: BceLoss) -> LossRows<'a> {
    let inputs = BceLossInputs::of(&args.inputs);
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

pub(super) fn launches(op: BceLoss, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = BceLossInputs::of(&args.inputs);
    vec![
        Launch::new("bce_loss_f16", [1, 1, 1])
            .block(ROW_THREADS)
            .arg(inputs.logits.read())
            .arg(rows(args, op).arg())
            .arg(args.outputs[0].write()),
    ]
}

pub(super) fn grad_launches(op: BceLoss, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = BceLossInputs::of(&args.inputs);
    vec![
        Launch::new("bce_loss_grad_f16", [blocks(args.outputs[0].len(), 1024), 1, 1])
            .block(ROW_THREADS)
            .arg(inputs.logits.read())
            .arg(rows(args, op).arg())
            .arg(loss_gradient(args.inputs[BceLossInputs::LEN]))
            .arg(args.outputs[0].write()),
    ]
}
