//! CUDA launches of `scaled_residual` and its gradients.

use device::{Access, Arg, Launch, LaunchArgs, StructArg};

use super::Drop;
use crate::TensorDesc;
use crate::column_sums::Chunks;

/// The kernels' `struct Drop`.
fn arg(drop: Option<Drop>) -> Arg {
    let (threshold, block, kept, seed) = match drop {
        Some(drop) => (drop.threshold(), drop.block, drop.kept(), drop.seed),
        None => (0, 0, 1.0, 0),
    };
    StructArg::new().field(seed).field(threshold).field(block).field(kept).arg()
}

fn keys(args: &LaunchArgs<'_>) -> Arg {
    args.inputs.get(3).map_or(Arg::Null, |keys| keys.read())
}

/// Positions of `[N, .., C]`, and those of an image.
fn positions(x: &TensorDesc) -> [usize; 2] {
    let image = x.shape[1..x.shape.len() - 1].iter().product();
    [x.dim(0) * image, image]
}

/// Values of a block.
const BLOCK_VALUES: usize = 256 * 8;

/// An elementwise kernel, image by image.
fn over(kernel: &'static str, drop: Option<Drop>, args: &LaunchArgs<'_>) -> Launch {
    let x = args.inputs[0];
    let len = positions(x.desc)[1] * x.dim(-1);
    Launch::new(kernel, [len.div_ceil(BLOCK_VALUES), x.dim(0), 1])
        .arg(x.read())
        .arg(args.inputs[1].read())
        .arg(args.inputs[2].read())
        .arg(keys(args))
        .arg(args.outputs[0].write())
        .int(len)
        .int(x.dim(-1))
        .arg(arg(drop))
}

pub(super) fn forward(drop: Option<Drop>, args: &LaunchArgs<'_>) -> Vec<Launch> {
    vec![over("scaled_residual_f16", drop, args)]
}

/// Bytes of the sums over chunks of positions.
pub(super) fn workspace_bytes(x: &TensorDesc) -> usize {
    Chunks::of(positions(x)[0], x.dim(-1)).bytes()
}

pub(super) fn backward(drop: Option<Drop>, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let [g, branch] = [0, 1].map(|i| args.inputs[i]);
    let [rows, image] = positions(g.desc);
    let chunks = Chunks::of(rows, g.dim(-1));
    let partial = |access| args.workspace.piece(0, chunks.bytes(), access);
    let sums = chunks
        .launch(["scaled_residual_grad_scale_f16x8", "scaled_residual_grad_scale_f16"])
        .arg(g.read())
        .arg(branch.read())
        .arg(keys(args))
        .arg(partial(Access::Write));
    let sums = chunks.sizes(sums).int(image).arg(arg(drop));
    let total = chunks.total(partial(Access::Read), args.outputs[1]);
    vec![over("scaled_residual_grad_branch_f16", drop, args), sums, total]
}
