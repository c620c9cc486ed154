//! The cost of an op with the element types used on GPUs.

use kernels::{Op, Precision, TensorDesc};

/// FLOPs of an op, and its bytes with the element types used on GPUs.
pub(crate) fn on_device(
    op: &dyn Op,
    inputs: &[TensorDesc],
    outputs: &[TensorDesc],
    updates: &[TensorDesc],
) -> (f64, f64) {
    let tensors = inputs.iter().chain(outputs).chain(updates);
    let cost = op.cost(inputs, outputs).in_types(tensors, |t| t.gpu_bytes(Precision::Fp16));
    (cost.flops as f64, cost.bytes as f64)
}
