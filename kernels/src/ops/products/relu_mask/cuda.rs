//! CUDA launch of `relu_mask`.

use device::{BLOCK, Launch, LaunchArgs};

/// Elements a thread works on: one 16-byte load of halves.
const VECTOR: usize = 8;

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (dy, y, g) = (args.inputs[0], args.inputs[1], args.outputs[0]);
    let blocks = g.len().div_ceil(VECTOR * BLOCK as usize);
    vec![
        Launch::new("relu_mask_f16", [blocks, 1, 1])
            .arg(dy.read())
            .arg(y.read())
            .arg(g.write())
            .len(g.len()),
    ]
}
