//! CUDA launches of `smooth_l1_loss` and its gradient.

use device::{Launch, LaunchArgs};

use crate::DType;
use crate::losses::launch::{LossRows, ROW_THREADS, assert_half, blocks, loss_gradient};

fn rows<'a>(args: &LaunchArgs<'a>, ipg: usize) -> LossRows<'a> {
    assert_half(args.inputs[0].desc);
    assert_eq!(args.inputs[1].dtype(), DType::F32, "{:?}: targets are f32", args.inputs[1].desc);
    LossRows {
        labels: args.inputs[2],
        image_idx: args.inputs[3],
        num_images: args.inputs[4],
        count: None,
        ipg,
        least_label: 0,
    }
}

pub(super) fn launches(beta: f32, ipg: usize, args: &LaunchArgs<'_>) -> Vec<Launch> {
    vec![
        Launch::new("smooth_l1_loss_f16", [1, 1, 1])
            .block(ROW_THREADS)
            .arg(args.inputs[0].read())
            .arg(args.inputs[1].read())
            .arg(rows(args, ipg).arg())
            .arg(beta)
            .arg(args.outputs[0].write()),
    ]
}

pub(super) fn grad_launches(beta: f32, ipg: usize, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let rows = rows(args, ipg);
    vec![
        Launch::new("smooth_l1_loss_grad_f16", [blocks(rows.labels.len(), 1024), 1, 1])
            .block(ROW_THREADS)
            .arg(args.inputs[0].read())
            .arg(args.inputs[1].read())
            .arg(rows.arg())
            .arg(beta)
            .arg(loss_gradient(args.inputs[5]))
            .arg(args.outputs[0].write()),
    ]
}
