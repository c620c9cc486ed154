//! The cost of an op in the element types of a device.

use kernels::{Op, Precision, TensorDesc};

/// FLOPs of an op, and bytes in the device's element types.
pub(crate) fn on_device(
    op: &dyn Op,
    inputs: &[TensorDesc],
    outputs: &[TensorDesc],
    updates: &[TensorDesc],
) -> (f64, f64) {
    let cost = op.cost(inputs, outputs);
    // The op counts bytes of the CPU's types; most are half as long here.
    let tensors = || inputs.iter().chain(outputs).chain(updates);
    let on_cpu: usize = tensors().map(|t| t.cpu_bytes()).sum();
    let here: usize = tensors().map(|t| t.gpu_bytes(Precision::Fp16)).sum();
    (cost.flops as f64, cost.bytes as f64 * here as f64 / on_cpu.max(1) as f64)
}
