//! A step that stops at each node, so that its inputs and outputs can be inspected.

use device::{Device, DevicePtr, Pinned, Stream};
use kernels::cpu::HostTensor;
use kernels::on_device::host_tensor;
use kernels::{Precision, TensorDesc};

use super::{DeviceExecutor, DeviceState, Place, Prepared};
use crate::exec::{Look, Seen};
use crate::{GraphError, Program, TensorId, TensorKind};

/// Addresses of a program's tensors, by index, and their precision on the device.
#[derive(Debug)]
pub(super) struct Homes {
    of: Vec<Option<Home>>,
    precision: Precision,
}

#[derive(Debug, Clone, Copy)]
enum Home {
    Memory(DevicePtr),
    /// Mapped host memory that kernels write: the host reads it directly, without a copy.
    Mapped(Pinned),
}

impl Prepared {
    pub(super) fn homes(&self, place: &Place<'_>, state: &DeviceState) -> Homes {
        let home = |(index, tensor): (usize, &crate::Tensor)| {
            let is_state = tensor.kind == TensorKind::State;
            match state.mapped(&tensor.name).filter(|_| is_state) {
                Some(pinned) => Some(Home::Mapped(pinned)),
                None => self.address(TensorId(index as u32), place).map(Home::Memory),
            }
        };
        let of = self.program.tensors().iter().enumerate().map(home).collect();
        Homes { of, precision: self.precision() }
    }
}

impl Homes {
    /// Reads the contents of tensors. Waits for the device.
    fn read(
        &self,
        device: &dyn Device,
        stream: Stream,
        program: &Program,
        ids: &[TensorId],
    ) -> Result<Vec<HostTensor>, GraphError> {
        let read = |id: &TensorId| {
            let desc: &TensorDesc = program.desc(*id);
            let mut bytes = vec![0; desc.gpu_bytes(self.precision)];
            match self.of[id.index()] {
                Some(Home::Memory(ptr)) => device.download(stream, ptr, &mut bytes)?,
                Some(Home::Mapped(pinned)) => {
                    device.synchronize()?;
                    device.read_pinned(pinned, 0, &mut bytes);
                }
                None => unreachable!("a node's tensor without memory was refused at the start"),
            }
            Ok(host_tensor(self.precision, desc, &bytes))
        };
        ids.iter().map(read).collect()
    }
}

impl DeviceExecutor {
    /// Like [`Self::submit`], but node by node on one stream; the host waits after each node, and
    /// `look` gets the tensors of the nodes that it requests. A device error names the failing
    /// node.
    ///
    /// # Errors
    /// Device errors, as [`GraphError::Node`].
    pub fn submit_watched(
        &mut self,
        program: usize,
        look: &mut dyn Look,
    ) -> Result<u32, GraphError> {
        self.take_inputs_of(program)?;
        let (device, stream) = (self.device.as_ref(), self.main);
        let prepared = &self.programs[program];
        let program_ref = prepared.program.as_ref();
        let read = |ids: &[TensorId]| self.homes[program].read(device, stream, program_ref, ids);
        let works = self.lists[program].works();
        let mut nodes = prepared.schedule.launches().iter().map(|launch| launch.node);
        for (position, work) in works.iter().enumerate() {
            let run = || -> Result<(), GraphError> {
                work.tasks().try_for_each(|task| task.submit(device, stream))?;
                Ok(device.synchronize()?)
            };
            let at =
                |source| GraphError::Node { node: work.name.clone(), source: Box::new(source) };
            // The first piece of work copies the inputs, the last switches the input buffers;
            // neither belongs to a node.
            let node = if position == 0 { None } else { nodes.next() };
            let Some(node) = node else {
                run().map_err(at)?;
                continue;
            };
            if !look.wants(program_ref, node) {
                run().map_err(at)?;
                continue;
            }
            let of = &program_ref.nodes()[node.index()];
            let (inputs, before) = (read(&of.inputs)?, read(&of.updates)?);
            run().map_err(at)?;
            let (outputs, after) = (read(&of.outputs)?, read(&of.updates)?);
            look.see(program_ref, Seen { node, inputs, before, outputs, after });
        }
        self.close_step()
    }
}
