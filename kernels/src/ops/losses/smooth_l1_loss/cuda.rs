//! CUDA launches of `smooth_l1_loss` and its gradient.

use device::{Launch, LaunchArgs};

use super::{SmoothL1Loss, SmoothL1LossInputs};
use crate::DType;
use crate::losses::launch::{LossRows, ROW_THREADS, assert_real, blocks, loss_gradient};

fn rows<'a>(args: &LaunchArgs<'a>, op: SmoothL1Loss) -> LossRows<'a> {
    let inputs = SmoothL1LossInputs::of(&args.inputs);
    assert_real(inputs.pred.desc);
    assert_eq!(inputs.target.dtype(), DType::F32, "{:?}: targets are f32", inputs.target.desc);
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

pub(super) fn launches(op: SmoothL1Loss, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = SmoothL1LossInputs::of(&args.inputs);
    vec![
        Launch::new("smooth_l1_loss_f16", [1, 1, 1])
            .block(ROW_THREADS)
            .arg(inputs.pred.read())
            .arg(inputs.target.read())
            .arg(rows(args, op).arg())
            .arg(op.beta)
            .arg(args.outputs[0].write()),
    ]
}

pub(super) fn grad_launches(op: SmoothL1Loss, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = SmoothL1LossInputs::of(&args.inputs);
    let rows = rows(args, op);
    vec![
        Launch::new("smooth_l1_loss_grad_f16", [blocks(rows.labels.len(), 1024), 1, 1])
            .block(ROW_THREADS)
            .arg(inputs.pred.read())
            .arg(inputs.target.read())
            .arg(rows.arg())
            .arg(op.beta)
            .arg(loss_gradient(args.inputs[SmoothL1LossInputs::LEN]))
            .arg(args.outputs[0].write()),
    ]
}
