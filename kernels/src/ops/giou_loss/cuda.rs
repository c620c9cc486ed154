//! CUDA launches of `giou_loss` and its gradient.

use device::{Arg, BLOCK, Launch, LaunchArgs};

use super::{GiouLoss, GiouLossGrad};
use crate::losses::launch::{LossRows, ROW_THREADS, assert_half, blocks, loss_gradient};

/// What both kernels take first.
fn inputs(launch: Launch, args: &LaunchArgs<'_>, weights: [f32; 4], ipg: usize) -> Launch {
    assert_half(args.inputs[0].desc);
    let rows = LossRows {
        labels: args.inputs[3],
        image_idx: args.inputs[4],
        num_images: args.inputs[5],
        count: None,
        ipg,
        least_label: 0,
    };
    launch
        .arg(args.inputs[0].read())
        .arg(args.inputs[1].read())
        .arg(args.inputs[2].read())
        .arg(rows.arg())
        .arg(Arg::of(&weights))
}

pub(super) fn launches(op: &GiouLoss, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let launch = Launch::new("giou_loss_f16", [1, 1, 1]).block(ROW_THREADS);
    vec![inputs(launch, args, op.weights, op.ipg).arg(args.outputs[0].write())]
}

pub(super) fn backward(op: &GiouLossGrad, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let blocks = blocks(args.inputs[3].len(), BLOCK as usize);
    let launch = Launch::new("giou_loss_grad_f16", [blocks, 1, 1]);
    vec![
        inputs(launch, args, op.weights, op.ipg)
            .arg(loss_gradient(args.inputs[6]))
            .arg(args.outputs[0].write()),
    ]
}
