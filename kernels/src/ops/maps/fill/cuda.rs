//! CUDA launch of `fill`.

use device::{Launch, LaunchArgs};

use crate::DType;

/// Bytes that a thread writes.
const VECTOR_BYTES: usize = 16;

pub(super) fn launches(value: f32, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let y = args.outputs[0];
    let kernel = if y.dtype() == DType::F16 { "fill_f16" } else { "fill_f32" };
    let threads = y.len().div_ceil(VECTOR_BYTES / y.dtype().size_bytes());
    vec![Launch::over(kernel, threads).arg(y.write()).arg(value).len(y.len())]
}
