//! Short forms of the checks that ops make of their inputs: shape and element type in one call.

use crate::op::check;
use crate::{DType, OpError, TensorDesc};

/// `desc` holds f32 in exactly this shape.
pub(crate) fn floats(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    shape: &[usize],
) -> Result<(), OpError> {
    check::shape(op, tensor, desc, shape)?;
    check::dtype(op, tensor, desc, DType::F32)
}

/// `desc` holds i32 in exactly this shape.
pub(crate) fn integers(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    shape: &[usize],
) -> Result<(), OpError> {
    check::shape(op, tensor, desc, shape)?;
    check::dtype(op, tensor, desc, DType::I32)
}

/// `desc` holds `len` i32, in any shape: a list that may still be split by image.
pub(crate) fn integers_in_all(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    len: usize,
) -> Result<(), OpError> {
    if desc.len() != len {
        return Err(check::shape_error(op, tensor, desc, format!("of {len} elements in all")));
    }
    check::dtype(op, tensor, desc, DType::I32)
}

/// `desc` holds f32 with the dimensions that `expected` names, such as `[N, H, W, C]`.
pub(crate) fn floats_ranked(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    expected: &str,
) -> Result<(), OpError> {
    check::rank(op, tensor, desc, expected)?;
    check::dtype(op, tensor, desc, DType::F32)
}

/// `desc` holds i32 with the dimensions that `expected` names.
pub(crate) fn integers_ranked(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    expected: &str,
) -> Result<(), OpError> {
    check::rank(op, tensor, desc, expected)?;
    check::dtype(op, tensor, desc, DType::I32)
}

/// The list has at least `least` tensors; `expected` says so in words.
pub(crate) fn at_least(
    op: &'static str,
    what: &'static str,
    list: &[TensorDesc],
    least: usize,
    expected: &str,
) -> Result<(), OpError> {
    if list.len() >= least {
        return Ok(());
    }
    Err(OpError::Arity { op, what, expected: expected.to_string(), got: list.len() })
}

/// A device-side count, as a number of rows within the capacity.
pub(crate) fn rows_in_use(count: &[i32], capacity: usize) -> usize {
    usize::try_from(count[0]).unwrap_or(0).min(capacity)
}
