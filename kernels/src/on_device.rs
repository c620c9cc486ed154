//! Running one op on a device, on host tensors: for tests, and single ops outside a program.

use half::f16;

use crate::cpu::{HostData, HostTensor};
use crate::{DType, Op, OpError, Precision, TensorDesc};
use device::{
    Buffer, Device, DeviceError, DevicePtr, Gpu, LaunchArgs, Pinned, Stream, Task, Workspace,
};

/// A reason why an op does not run on a device.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The op rejects its tensors.
    #[error(transparent)]
    Op(#[from] OpError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The op has no launches, although it has outputs to write.
    #[error("the op has no launches")]
    NoLaunches,
}

/// The bytes of `tensor` in a GPU's element types: floats in the type of the tensor's role.
pub fn device_bytes(precision: Precision, tensor: &HostTensor) -> Vec<u8> {
    match (&tensor.data, tensor.desc.role.gpu_dtype(precision)) {
        (HostData::F32(values), DType::F16) => {
            values.iter().flat_map(|v| f16::from_f32(*v).to_ne_bytes()).collect()
        }
        _ => tensor.bytes().to_vec(),
    }
}

/// The tensor whose memory on a GPU is `bytes`, floats widened to f32.
pub fn host_tensor(precision: Precision, desc: &TensorDesc, bytes: &[u8]) -> HostTensor {
    let mut tensor = HostTensor::poisoned(desc.clone());
    match (&mut tensor.data, desc.role.gpu_dtype(precision)) {
        (HostData::F32(values), DType::F16) => {
            for (value, pair) in values.iter_mut().zip(bytes.chunks_exact(2)) {
                *value = f16::from_ne_bytes([pair[0], pair[1]]).to_f32();
            }
        }
        _ => tensor.bytes_mut().copy_from_slice(bytes),
    }
    tensor
}

/// `tensor` with its values rounded to a GPU's types.
pub fn rounded(precision: Precision, tensor: &HostTensor) -> HostTensor {
    host_tensor(precision, &tensor.desc, &device_bytes(precision, tensor))
}

/// Runs one op. Outputs start poisoned (all bits set: NaN, or -1), so that an unwritten output is
/// detected.
///
/// # Errors
/// Errors from [`Op::infer`] about the tensors, and device errors.
pub fn run_updating(
    device: &dyn Device,
    op: &dyn Op,
    inputs: &[HostTensor],
    updates: &mut [HostTensor],
) -> Result<Vec<HostTensor>, RunError> {
    let run = OpRun::new(device, device.stream()?, device.gpu(), op, inputs, updates)?;
    run.launch()?;
    updates.clone_from_slice(&run.updates()?);
    Ok(run.outputs()?)
}

/// One op with its tensors in a device's memory, to be launched any number of times.
pub struct OpRun<'a> {
    memory: Memory<'a>,
    tasks: Vec<Task>,
    outputs: Vec<(TensorDesc, DevicePtr)>,
    updates: Vec<(TensorDesc, DevicePtr)>,
}

impl<'a> OpRun<'a> {
    /// Copies the tensors to the device; outputs start poisoned. Launches nothing yet. `gpu` is the
    /// device's description, in the precision of the run.
    ///
    /// # Errors
    /// As [`run_updating`].
    pub fn new(
        device: &'a dyn Device,
        stream: Stream,
        gpu: &Gpu,
        op: &dyn Op,
        inputs: &[HostTensor],
        updates: &[HostTensor],
    ) -> Result<Self, RunError> {
        let precision = gpu.precision;
        let descs = |list: &[HostTensor]| list.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
        let output_descs = op.infer(&descs(inputs), &descs(updates))?;
        let mut memory = Memory { device, stream, precision, owned: vec![], staging: vec![] };
        let mut upload = |list: &[HostTensor]| -> Result<Vec<_>, DeviceError> {
            let mut ptr = |t: &HostTensor| memory.upload(&device_bytes(precision, t));
            list.iter().map(|t| Ok((t.desc.clone(), ptr(t)?))).collect()
        };
        let (inputs, updates) = (upload(inputs)?, upload(updates)?);
        let mut outputs = Vec::new();
        for desc in output_descs {
            let ptr = memory.upload(&vec![0xFF; desc.gpu_bytes(precision)])?;
            outputs.push((desc, ptr));
        }
        let of = |list: &[(TensorDesc, _)]| list.iter().map(|(d, _)| d.clone()).collect::<Vec<_>>();
        let bytes = op.cuda_workspace_bytes(gpu, &of(&inputs), &of(&outputs));
        let workspace = Workspace { ptr: memory.upload(&vec![0xFF; bytes])?, bytes };
        let tasks = op.tasks(&LaunchArgs {
            gpu,
            inputs: buffers(precision, &inputs),
            outputs: buffers(precision, &outputs),
            updates: buffers(precision, &updates),
            workspace,
        });
        let work = outputs.iter().chain(&updates).any(|(desc, _)| !desc.is_empty());
        if work && tasks.is_empty() {
            return Err(RunError::NoLaunches);
        }
        Ok(Self { memory, tasks, outputs, updates })
    }

    /// Submits the op's launches to the stream.
    ///
    /// # Errors
    /// The device's error.
    pub fn launch(&self) -> Result<(), DeviceError> {
        let (device, stream) = (self.memory.device, self.memory.stream);
        self.tasks.iter().try_for_each(|task| task.submit(device, stream))
    }

    /// The outputs of the last launch. Waits for it.
    ///
    /// # Errors
    /// The device's error.
    pub fn outputs(&self) -> Result<Vec<HostTensor>, DeviceError> {
        self.outputs.iter().map(|(desc, ptr)| self.memory.download(desc, *ptr)).collect()
    }

    /// The updated tensors after the last launch. Waits for it.
    ///
    /// # Errors
    /// The device's error.
    pub fn updates(&self) -> Result<Vec<HostTensor>, DeviceError> {
        self.updates.iter().map(|(desc, ptr)| self.memory.download(desc, *ptr)).collect()
    }
}

/// Tensors with their addresses.
pub(crate) fn buffers(
    precision: Precision,
    tensors: &[(TensorDesc, DevicePtr)],
) -> Vec<Buffer<'_>> {
    tensors.iter().map(|(desc, ptr)| Buffer { desc, ptr: *ptr, precision }).collect()
}

/// Device memory of one run, released at its end.
struct Memory<'a> {
    device: &'a dyn Device,
    stream: Stream,
    precision: Precision,
    owned: Vec<DevicePtr>,
    staging: Vec<Pinned>,
}

impl Memory<'_> {
    fn upload(&mut self, bytes: &[u8]) -> Result<DevicePtr, DeviceError> {
        let ptr = self.device.alloc(bytes.len())?;
        self.owned.push(ptr);
        if !bytes.is_empty() {
            let pinned = self.device.alloc_pinned(bytes.len())?;
            self.staging.push(pinned);
            self.device.write_pinned(pinned, 0, bytes);
            self.device.upload(self.stream, ptr, pinned, 0, bytes.len())?;
        }
        Ok(ptr)
    }

    fn download(&self, desc: &TensorDesc, ptr: DevicePtr) -> Result<HostTensor, DeviceError> {
        let mut bytes = vec![0; desc.gpu_bytes(self.precision)];
        self.device.download(self.stream, ptr, &mut bytes)?;
        Ok(host_tensor(self.precision, desc, &bytes))
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        for ptr in self.owned.drain(..) {
            // An error is ignored: on a device that fails here, the run has already failed.
            let _ = self.device.free(ptr);
        }
        for pinned in self.staging.drain(..) {
            let _ = self.device.free_pinned(pinned);
        }
    }
}
