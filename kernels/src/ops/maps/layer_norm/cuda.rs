//! CUDA launches of `layer_norm` and its gradients.

use device::{Access, Launch, LaunchArgs};

use super::positions;
use crate::TensorDesc;
use crate::column_sums::Chunks;

/// Positions of a block: a warp has one.
const WARPS: usize = 8;

pub(super) fn forward(eps: f32, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let x = args.inputs[0];
    let rows = positions(x.desc);
    vec![
        Launch::new("layer_norm_f16", [rows.div_ceil(WARPS), 1, 1])
            .tensors(args)
            .int(rows)
            .int(x.dim(-1))
            .arg(eps),
    ]
}

/// Bytes of the sums over chunks of positions, for both vectors.
pub(super) fn workspace_bytes(x: &TensorDesc) -> usize {
    2 * Chunks::of(positions(x), x.dim(-1)).bytes()
}

pub(super) fn backward(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [g, x, gamma, stats] = [0, 1, 2, 3].map(|i| args.inputs[i]);
    let [dx, dgamma, dbeta] = [0, 1, 2].map(|i| args.outputs[i]);
    let (rows, channels) = (positions(x.desc), x.dim(-1));
    let chunks = Chunks::of(rows, channels);
    let partial =
        |i: usize, access| args.workspace.piece(i * chunks.bytes(), chunks.bytes(), access);
    let input = Launch::new("layer_norm_grad_input_f16", [rows.div_ceil(WARPS), 1, 1])
        .arg(g.read())
        .arg(x.read())
        .arg(gamma.read())
        .arg(stats.read())
        .arg(dx.write())
        .int(rows)
        .int(channels);
    let sums = chunks
        .launch(["layer_norm_grad_params_f16x8", "layer_norm_grad_params_f16"])
        .arg(g.read())
        .arg(x.read())
        .arg(stats.read())
        .arg(partial(0, Access::Write))
        .arg(partial(1, Access::Write));
    let total = |(i, out): (usize, device::Buffer<'_>)| chunks.total(partial(i, Access::Read), out);
    let totals = [dgamma, dbeta].into_iter().enumerate().map(total);
    [input, chunks.sizes(sums)].into_iter().chain(totals).collect()
}
