//! CUDA launches of `select_columns` and its gradient.

use device::{BLOCK, Launch, LaunchArgs};

use super::SelectColumns;
use crate::DType;

/// Elements of the gradient that a thread writes: one 16-byte store of halves.
const VECTOR: usize = 8;

pub(super) fn launches(op: &SelectColumns, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (x, index, y) = (args.inputs[0], args.inputs[1], args.outputs[0]);
    let kernel = match x.dtype() {
        DType::F16 => "select_columns_f16",
        _ => "select_columns_f32",
    };
    vec![
        Launch::over(kernel, y.len())
            .arg(x.read())
            .arg(index.read())
            .arg(y.write())
            .int(op.width)
            .int(x.dim(1))
            .arg(op.modulo)
            .len(y.len()),
    ]
}

/// `columns` are those of the forward input.
pub(super) fn backward(op: &SelectColumns, columns: usize, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (g, index, grad_x) = (args.inputs[0], args.inputs[1], args.outputs[0]);
    let blocks = grad_x.len().div_ceil(VECTOR * BLOCK as usize);
    vec![
        Launch::new("select_columns_backward_f16", [blocks, 1, 1])
            .arg(g.read())
            .arg(index.read())
            .arg(grad_x.write())
            .int(op.width)
            .int(columns)
            .arg(op.modulo)
            .len(grad_x.len()),
    ]
}
