//! CUDA launches of `giou_loss` and its gradient.

use device::{Arg, BLOCK, Launch, LaunchArgs};

use super::{GiouLoss, GiouLossInputs};
use crate::losses::launch::{LossRows, ROW_THREADS, assert_real, blocks, loss_gradient};

/// Adds the arguments that both kernels take first.
fn read(launch: Launch, args: &LaunchArgs<'_>, weights: [f32; 4], ipg: usize) -> Launch {
    let inputs = GiouLossInputs::of(&args.inputs);
    assert_real(inputs.deltas.desc);
    let rows = LossRows {
        labels: *inputs.labels,
        image_idx: *inputs.image_idx,
        num_images: *inputs.num_images,
        count: None,
        ipg,
        least_label: 0,
        rows_per_image: None,
    };
    launch
        .arg(inputs.deltas.read())
        .arg(inputs.rois.read())
        .arg(inputs.matched_boxes.read())
        .arg(rows.arg())
        .arg(Arg::of(&weights))
}

pub(super) fn launches(op: &GiouLoss, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let launch = Launch::new("giou_loss_f16", [1, 1, 1]).block(ROW_THREADS);
    vec![read(launch, args, op.weights, op.ipg).arg(args.outputs[0].write())]
}

pub(super) fn backward(weights: [f32; 4], ipg: usize, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let inputs = GiouLossInputs::of(&args.inputs);
    let blocks = blocks(inputs.labels.len(), BLOCK as usize);
    let launch = Launch::new("giou_loss_grad_f16", [blocks, 1, 1]);
    vec![
        read(launch, args, weights, ipg)
            .arg(loss_gradient(args.inputs[GiouLossInputs::LEN]))
            .arg(args.outputs[0].write()),
    ]
}
