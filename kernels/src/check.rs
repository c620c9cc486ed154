//! Checks of an op's tensors and parameters against its contract, with one-line errors.
//!
//! Used for computed shapes, and for ops without a [`Contract`](crate::contract::Contract).

use crate::{DType, OpError, TensorDesc};

/// Checks that the list has exactly `expected` tensors.
pub fn arity(
    op: &'static str,
    what: &'static str,
    list: &[TensorDesc],
    expected: usize,
) -> Result<(), OpError> {
    if list.len() == expected {
        return Ok(());
    }
    Err(OpError::Arity { op, what, expected: expected.to_string(), got: list.len() })
}

/// Checks that the tensor has the given number of dimensions; `expected` is its shape in words.
pub fn rank(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    expected: &str,
) -> Result<(), OpError> {
    let dims = if expected == "[]" { 0 } else { expected.split(',').count() };
    if desc.shape.len() == dims {
        return Ok(());
    }
    Err(shape_error(op, tensor, desc, expected.to_string()))
}

/// Checks that the tensor has exactly this shape.
pub fn shape(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    expected: &[usize],
) -> Result<(), OpError> {
    if desc.shape == expected {
        return Ok(());
    }
    Err(shape_error(op, tensor, desc, format!("{expected:?}")))
}

/// Checks that the tensor holds elements of this type on the CPU, where tensors that are fp16 on a
/// GPU are f32.
pub fn dtype(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    expected: DType,
) -> Result<(), OpError> {
    if desc.role.cpu_dtype() == expected {
        return Ok(());
    }
    let got = format!("{:?} ({:?})", desc.role.cpu_dtype(), desc.role);
    Err(OpError::Type { op, tensor, expected: format!("{expected:?}"), got })
}

/// An [`OpError::Shape`].
pub fn shape_error(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    expected: String,
) -> OpError {
    OpError::Shape { op, tensor, expected, got: desc.shape.clone() }
}

/// Checks that a parameter satisfies its condition.
pub fn parameter(
    op: &'static str,
    parameter: &'static str,
    ok: bool,
    expected: &str,
    got: impl ToString,
) -> Result<(), OpError> {
    if ok {
        return Ok(());
    }
    Err(OpError::Parameter { op, parameter, expected: expected.to_string(), got: got.to_string() })
}

/// Checks that `desc` holds f32 in exactly this shape.
///
/// # Errors
/// [`OpError`] names the tensor and its shape or type.
pub fn floats(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    shape: &[usize],
) -> Result<(), OpError> {
    self::shape(op, tensor, desc, shape)?;
    dtype(op, tensor, desc, DType::F32)
}

/// Checks that `desc` holds i32 in exactly this shape.
///
/// # Errors
/// [`OpError`] names the tensor and its shape or type.
pub fn integers(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    shape: &[usize],
) -> Result<(), OpError> {
    self::shape(op, tensor, desc, shape)?;
    dtype(op, tensor, desc, DType::I32)
}

/// Checks that `desc` has `len` elements, in any shape: a list may have a separate dimension for
/// images.
pub(crate) fn len(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    len: usize,
) -> Result<(), OpError> {
    if desc.len() == len {
        return Ok(());
    }
    Err(shape_error(op, tensor, desc, format!("with {len} elements in total")))
}

/// Checks that `desc` holds f32 and has as many dimensions as `expected`, such as `[N, H, W, C]`.
pub(crate) fn floats_ranked(
    op: &'static str,
    tensor: &'static str,
    desc: &TensorDesc,
    expected: &str,
) -> Result<(), OpError> {
    rank(op, tensor, desc, expected)?;
    dtype(op, tensor, desc, DType::F32)
}

/// Checks that the list has at least `least` tensors; `expected` is the number in words.
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
