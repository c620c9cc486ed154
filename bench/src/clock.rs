//! Measures the time of an op's launches between two events.

use device::{Device, DeviceError, DevicePtr, Event, Pinned, Stream};

use kernels::on_device::OpRun;

/// Times an op between two events. Before each run a copy evicts the op's data from the L2 cache;
/// the copy also keeps the GPU busy while the host enqueues the op's launches, so that they run
/// back to back.
pub(crate) struct Clock<'a> {
    device: &'a dyn Device,
    /// The stream on which ops run.
    pub(crate) stream: Stream,
    start: Event,
    end: Event,
    flushed: DevicePtr,
    other_data: Pinned,
}

impl<'a> Clock<'a> {
    /// A clock with its own stream.
    ///
    /// # Errors
    /// The device's error.
    pub(crate) fn new(device: &'a dyn Device) -> Result<Self, DeviceError> {
        let more_than_l2 = device.gpu().l2_bytes / 2 * 3;
        Ok(Self {
            device,
            stream: device.stream()?,
            start: device.timing_event()?,
            end: device.timing_event()?,
            flushed: device.alloc(more_than_l2)?,
            other_data: device.alloc_pinned(more_than_l2)?,
        })
    }

    /// The median of `repeats` runs on the clock's stream, in milliseconds, after one warm-up run;
    /// for an even number of runs, the higher of the two middle values.
    ///
    /// # Errors
    /// The device's error.
    pub(crate) fn median_ms(&self, run: &OpRun<'_>, repeats: usize) -> Result<f64, DeviceError> {
        let Self { device, stream, other_data, .. } = *self;
        run.launch()?;
        let mut ms = Vec::with_capacity(repeats);
        for _ in 0..repeats.max(1) {
            device.upload(stream, self.flushed, other_data, 0, other_data.bytes)?;
            device.record(self.start, stream)?;
            run.launch()?;
            device.record(self.end, stream)?;
            ms.push(f64::from(device.elapsed_ms(self.start, self.end)?));
        }
        ms.sort_by(f64::total_cmp);
        Ok(ms[ms.len() / 2])
    }
}

impl Drop for Clock<'_> {
    fn drop(&mut self) {
        // An error is ignored: a failing device has already reported one.
        let _ = self.device.free(self.flushed);
        let _ = self.device.free_pinned(self.other_data);
    }
}
