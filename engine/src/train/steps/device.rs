//! Steps on a device: one graph launch each, and what they say comes through the ring.

use std::sync::Arc;

use graph::DeviceExecutor;
use graph::exec::device::{Prepared, SharedArena};
use kernels::device::{Device, Pinned};

use super::{Measured, Steps, measured};
use crate::error::EngineError;
use crate::model::RingLayout;
use crate::runtime::{ModelState, RING};
use crate::train::feed::Batch;

/// One captured graph a padded shape, in one arena.
#[derive(Debug)]
pub(in crate::train) struct DeviceSteps {
    device: Arc<dyn Device>,
    executor: DeviceExecutor,
    layout: RingLayout,
    ring: Pinned,
    measured: u32,
}

impl DeviceSteps {
    pub(in crate::train) fn new(
        device: Arc<dyn Device>,
        programs: Vec<Prepared>,
        layout: RingLayout,
        state: &ModelState,
    ) -> Result<Self, EngineError> {
        let arena = SharedArena::new(device.clone(), &programs.iter().collect::<Vec<_>>())?;
        let memory = state.memory().map(Arc::as_ref);
        let Some((memory, ring)) = memory.and_then(|m| Some((m, m.mapped(RING)?))) else {
            panic!("the state is not on the device, or has no ring")
        };
        let executor = DeviceExecutor::new(device.clone(), programs, Arc::new(arena), memory)?;
        Ok(Self { device, executor, layout, ring, measured: 0 })
    }
}

impl Steps for DeviceSteps {
    fn depth(&self) -> usize {
        2
    }

    fn begin(&mut self, batch: &Batch, _state: &mut ModelState) -> Result<(), EngineError> {
        let executor = &mut self.executor;
        batch.write(|name, bytes| Ok(executor.write_input(batch.shape, name, bytes)?))?;
        executor.submit(batch.shape)?;
        Ok(())
    }

    fn measure(&mut self) -> Result<Measured, EngineError> {
        self.measured += 1;
        self.executor.until_done(self.measured)?;
        let row_bytes = size_of::<f32>() * self.layout.width;
        let row = (self.measured as usize - 1) % self.layout.slots;
        let mut bytes = vec![0; row_bytes];
        self.device.read_pinned(self.ring, row * row_bytes, &mut bytes);
        let words: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        let (losses, control, total_norm) = self.layout.split(&words);
        Ok(measured(losses, control, total_norm))
    }

    fn bytes(&self) -> usize {
        self.executor.arena_bytes() + self.executor.input_bytes()
    }
}
