//! CUDA launches of `bias_grad`: sums of chunks of rows, then their sum.

use device::{Access, Arg, Launch, LaunchArgs};

use crate::column_sums::Chunks;
use crate::{DType, TensorDesc};

fn chunks(g: &TensorDesc) -> Chunks {
    let rows = g.shape[..g.shape.len() - 1].iter().product::<usize>();
    Chunks::of(rows, g.dim(-1))
}

/// Bytes of the chunks' sums.
pub(super) fn workspace_bytes(g: &TensorDesc) -> usize {
    chunks(g).bytes()
}

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (g, db) = (args.inputs[0], args.outputs[0]);
    let count = args.inputs.get(1).map_or(Arg::Null, |count| count.read());
    let (chunks, width) = (chunks(g.desc), g.dim(-1));
    let inner = chunks.rows.checked_div(g.dim(0)).unwrap_or(0);
    let partial = |access| args.workspace.piece(0, chunks.bytes(), access);
    let kernels = match g.dtype() {
        DType::F16 => ["bias_grad_partial_f16x8", "bias_grad_partial_f16"],
        _ => ["bias_grad_partial_f32x8", "bias_grad_partial_f32"],
    };
    let sums = chunks.launch(kernels).arg(g.read()).arg(count.clone());
    let sums = sums.arg(partial(Access::Write));
    let total = Chunks::total_of(partial(Access::Read), count, db, width);
    let sizes = |launch: Launch| launch.int(g.dim(0)).int(inner).int(width).int(chunks.chunk);
    vec![sizes(sums), sizes(total)]
}
