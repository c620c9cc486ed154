//! CUDA launches of `sum`: one for each [`MAX_TERMS`] terms.

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg};

use crate::{DType, TensorDesc};

/// Terms of a launch; as in `sum.cu`.
const MAX_TERMS: usize = 32;
/// Elements a thread works on.
const VECTOR: usize = 8;

/// Bytes of the fp32 sum that launches hand on, if there are several.
pub(super) fn workspace_bytes(inputs: &[TensorDesc]) -> usize {
    if inputs.len() > MAX_TERMS { inputs[0].len() * size_of::<f32>() } else { 0 }
}

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let y = args.outputs[0];
    assert!(args.inputs.iter().all(|x| x.dtype() == y.dtype()), "sum of several element types");
    let kernel = if y.dtype() == DType::F16 { "sum_f16" } else { "sum_f32" };
    let last = (args.inputs.len() - 1) / MAX_TERMS;
    let carry = |used: bool, access| {
        let bytes = y.len() * size_of::<f32>();
        if used { args.workspace.piece(0, bytes, access) } else { Arg::Null }
    };
    let launch = |(i, terms): (usize, &[Buffer<'_>])| {
        let pointers: Vec<Arg> = terms.iter().map(Buffer::read).collect();
        Launch::over(kernel, y.len().div_ceil(VECTOR))
            .arg(StructArg::new().pointers(&pointers, MAX_TERMS).arg())
            .int(terms.len())
            .arg(carry(i > 0, Access::Read))
            .arg(carry(i < last, Access::Write))
            .arg(y.write())
            .len(y.len())
    };
    args.inputs.chunks(MAX_TERMS).enumerate().map(launch).collect()
}
