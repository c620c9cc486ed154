//! CUDA launches of `bce_loss` and its gradient.

use device::{Launch, LaunchArgs};

use crate::losses::launch::{LossRows, ROW_THREADS, assert_half, blocks, loss_gradient};

fn rows<'a>(args: &LaunchArgs<'a>, ipg: usize) -> LossRows<'a> {
    assert_half(args.inputs[0].desc);
    LossRows {
        labels: args.inputs[1],
        image_idx: args.inputs[2],
        num_images: args.inputs[3],
        count: None,
        ipg,
        least_label: 0,
    }
}

pub(super) fn launches(ipg: usize, args: &LaunchArgs<'_>) -> Vec<Launch> {
    vec![
        Launch::new("bce_loss_f16", [1, 1, 1])
            .block(ROW_THREADS)
            .arg(args.inputs[0].read())
            .arg(rows(args, ipg).arg())
            .arg(args.outputs[0].write()),
    ]
}

pub(super) fn grad_launches(ipg: usize, args: &LaunchArgs<'_>) -> Vec<Launch> {
    vec![
        Launch::new("bce_loss_grad_f16", [blocks(args.outputs[0].len(), 1024), 1, 1])
            .block(ROW_THREADS)
            .arg(args.inputs[0].read())
            .arg(rows(args, ipg).arg())
            .arg(loss_gradient(args.inputs[4]))
            .arg(args.outputs[0].write()),
    ]
}
