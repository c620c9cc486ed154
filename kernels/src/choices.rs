//! The matrix products of an op's launches, and plans that choose another kernel for one of them.

use device::{Choice, DevicePtr, Gpu, LaunchArgs, Tuning, Workspace};

pub use crate::matmul::launch::Asked;
use crate::matmul::launch::{asked, tile_of};
use crate::on_device::buffers;
use crate::{Op, TensorDesc};

/// The products of an op's launches on a GPU, from its tensors without their memory.
pub fn products(
    op: &dyn Op,
    gpu: &Gpu,
    inputs: &[TensorDesc],
    outputs: &[TensorDesc],
    updates: &[TensorDesc],
) -> Vec<Asked> {
    let precision = gpu.precision;
    let mut next: DevicePtr = 1 << 40;
    let mut placed = |desc: &TensorDesc| {
        let ptr = next;
        next += desc.gpu_bytes(precision).next_multiple_of(256) as DevicePtr;
        (desc.clone(), ptr)
    };
    let mut places =
        |descs: &[TensorDesc]| descs.iter().map(&mut placed).collect::<Vec<(TensorDesc, _)>>();
    let (at_inputs, at_outputs, at_updates) = (places(inputs), places(outputs), places(updates));
    let bytes = op.cuda_workspace_bytes(gpu, inputs, outputs);
    asked(|| {
        op.tasks(&LaunchArgs {
            gpu,
            inputs: buffers(precision, &at_inputs),
            outputs: buffers(precision, &at_outputs),
            updates: buffers(precision, &at_updates),
            workspace: Workspace { ptr: 1 << 50, bytes },
        });
    })
}

/// The GPU for plans that take this choice for one product, and the model's for all others.
pub fn choosing(gpu: &Gpu, product: &str, choice: &Choice) -> Gpu {
    let choices = [(product.to_string(), choice.clone())].into();
    gpu.tuned(Tuning { warpgroups: gpu.tuning.warpgroups, choices, table: None })
}

/// True of the name of a product's kernel.
pub fn is_kernel(name: &str) -> bool {
    tile_of(name).is_some()
}
