//! CUDA launches of `bias_grad`: sums of chunks of rows, then their sum.

use device::{Access, Arg, Launch, LaunchArgs};

use crate::{DType, TensorDesc};

/// Vectors of columns that a block has side by side; as in `vector.cuh`.
const TILE: usize = 32;
/// Fewest rows of a chunk: below, the second pass reads as much as the first.
const MIN_CHUNK: usize = 64;
/// Most chunks: they fill the largest device, and the second pass stays short.
const MAX_CHUNKS: usize = 512;

/// Rows of `g`, rows of a chunk, and number of chunks.
fn chunks(g: &TensorDesc) -> (usize, usize, usize) {
    let rows = g.shape[..g.shape.len() - 1].iter().product::<usize>();
    let chunk = rows.div_ceil(MAX_CHUNKS).max(MIN_CHUNK);
    (rows, chunk, rows.div_ceil(chunk))
}

/// Bytes of the chunks' sums.
pub(super) fn workspace_bytes(g: &TensorDesc) -> usize {
    chunks(g).2 * g.dim(-1) * size_of::<f32>()
}

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (g, db) = (args.inputs[0], args.outputs[0]);
    let count = args.inputs.get(1).map_or(Arg::Null, |count| count.read());
    let width = g.dim(-1);
    let (rows, chunk, chunks) = chunks(g.desc);
    assert!(i32::try_from(rows + chunk).is_ok(), "{rows} rows do not fit an int");
    let inner = rows.checked_div(g.dim(0)).unwrap_or(0);
    let partial = |access| args.workspace.piece(0, workspace_bytes(g.desc), access);
    let wide = width.is_multiple_of(8);
    let (kernel, vector) = match (g.dtype(), wide) {
        (DType::F16, true) => ("bias_grad_partial_f16x8", 8),
        (DType::F16, false) => ("bias_grad_partial_f16", 1),
        (_, true) => ("bias_grad_partial_f32x8", 8),
        (_, false) => ("bias_grad_partial_f32", 1),
    };
    let sizes = |launch: Launch| launch.int(g.dim(0)).int(inner).int(width).int(chunk);
    let tiles = (width / vector).div_ceil(TILE);
    let sums = Launch::new(kernel, [chunks, tiles, 1])
        .arg(g.read())
        .arg(count.clone())
        .arg(partial(Access::Write));
    let total = Launch::new("bias_grad_total", [width.div_ceil(32), 1, 1])
        .arg(partial(Access::Read))
        .arg(count)
        .arg(db.write());
    vec![sizes(sums), sizes(total)]
}
