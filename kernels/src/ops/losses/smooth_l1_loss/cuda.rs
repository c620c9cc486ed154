//! CUDA launches of `smooth_l1_loss` and its gradient.

use device::{Launch, LaunchArgs};

use super::SmoothL1LossInputs;
use crate::DType;
use crate::losses::launch::{LossRows, ROW_THREADS, assert_real, blocks, loss_gradient};

fn rows<'a>(args: &LaunchArgs<'a>, ipg: usize) -> LossRows<'a> {
    let inputs = SmoothL1LossInputs::of(&args.inputs);
    assert_real(inputs.pred.desc);
    assert_eq!(inputs.target.dtype(), DType::F32, "{:?}: targets are f32", inputs.target.desc);
    LossRows {
        labels: *inputs.labels,
        image_idx: *inputs.image_idx,
        num_images: *inputs.num_images,
        count: None,
        ipg,
        least_label: 0,
    }
}

pub(super) fn launches(beta: f32, ipg: usize, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = SmoothL1LossInputs::of(&args.inputs);
    vec![
        Launch::new("smooth_l1_loss_f16", [1, 1, 1])
            .block(ROW_THREADS)
            .arg(inputs.pred.read())
            .arg(inputs.target.read())
            .arg(rows(args, ipg).arg())
            .arg(beta)
            .arg(args.outputs[0].write()),
    ]
}

pub(super) fn grad_launches(beta: f32, ipg: usize, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = SmoothL1LossInputs::of(&args.inputs);
    let rows = rows(args, ipg);
    vec![
        Launch::new("smooth_l1_loss_grad_f16", [blocks(rows.labels.len(), 1024), 1, 1])
            .block(ROW_THREADS)
            .arg(inputs.pred.read())
            .arg(inputs.target.read())
            .arg(rows.arg())
            .arg(beta)
            .arg(loss_gradient(args.inputs[SmoothL1LossInputs::LEN]))
            .arg(args.outputs[0].write()),
    ]
}
