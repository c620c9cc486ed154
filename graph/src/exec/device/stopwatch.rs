//! Times work on a device's stream, with events between back-to-back pieces.
//!
//! If the GPU had to wait for the host to enqueue the next launch, the wait would be part of the
//! measured time. So each measurement begins with the lead: copies that keep the stream busy while
//! the host enqueues all work to be timed. The previous measurement determines the number of
//! copies.

use std::sync::Arc;
use std::time::Instant;

use device::stamp::{STAMP_BYTES, stamp};
use device::{Device, DevicePtr, Event, Pinned, Stream};

use crate::GraphError;
use crate::plan::ALIGNMENT;

/// Maximum number of copies in the lead.
const MAX_COPIES: usize = 64;
/// Number of event pairs from which the cost of one pair is estimated.
const COST_PAIRS: usize = 200;

/// Events around pieces of work, after copies that keep the stream busy (the lead).
#[derive(Debug)]
pub struct Stopwatch {
    device: Arc<dyn Device>,
    /// The event recorded before the lead.
    start: Event,
    marks: Vec<Event>,
    /// Number of events recorded after the lead in the current measurement.
    recorded: usize,
    copies: usize,
    lead: DevicePtr,
    /// Source of the copies; larger than the L2 cache, so that copies evict the data of earlier
    /// measurements.
    other_data: Pinned,
    began: Instant,
    /// Milliseconds that the host took to enqueue the last measurement.
    host_ms: f64,
}

/// The overhead of timing with events (medians).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EventCost {
    /// Microseconds between two events without work between them.
    pub empty_us: f64,
    /// Microseconds between two events around a one-thread kernel that stores one word.
    pub launch_us: f64,
}

impl Stopwatch {
    /// A stopwatch for up to `pieces` pieces of work per measurement.
    ///
    /// # Errors
    /// Device errors.
    pub fn new(device: Arc<dyn Device>, pieces: usize) -> Result<Self, GraphError> {
        let start = device.timing_event()?;
        let marks = (0..=pieces).map(|_| device.timing_event()).collect::<Result<_, _>>()?;
        let more_than_l2 = device.gpu().l2_bytes / 2 * 3;
        let lead = device.alloc(more_than_l2)?;
        let other_data = device.alloc_pinned(more_than_l2)?;
        Ok(Self {
            device,
            start,
            marks,
            recorded: 0,
            copies: 1,
            lead,
            other_data,
            began: Instant::now(),
            host_ms: 0.0,
        })
    }

    /// Begins a measurement: enqueues the lead, then the event at which the first piece of work
    /// starts.
    pub(super) fn begin(&mut self, stream: Stream) -> Result<(), GraphError> {
        self.device.record(self.start, stream)?;
        for _ in 0..self.copies {
            self.device.upload(stream, self.lead, self.other_data, 0, self.other_data.bytes)?;
        }
        self.began = Instant::now();
        self.recorded = 0;
        self.mark(stream)
    }

    /// Records the event that ends a piece of work and starts the next.
    pub(super) fn mark(&mut self, stream: Stream) -> Result<(), GraphError> {
        assert!(self.recorded < self.marks.len(), "{} pieces at most", self.marks.len() - 1);
        self.device.record(self.marks[self.recorded], stream)?;
        self.recorded += 1;
        Ok(())
    }

    /// Ends the measurement on the host: all work to be timed has been enqueued.
    pub(super) fn end(&mut self) {
        self.host_ms = 1e3 * self.began.elapsed().as_secs_f64();
    }

    /// Microseconds of each piece of work in the last measurement. Waits for the device. Sets the
    /// lead of the next measurement to 1.5 times the host time of this measurement.
    ///
    /// # Errors
    /// Device errors.
    pub fn read_us(&mut self) -> Result<Vec<f64>, GraphError> {
        let lead_ms = self.lead_ms()?;
        let wanted = 1.5 * self.host_ms / (lead_ms / self.copies as f64).max(1e-3);
        self.copies = (wanted.ceil() as usize).clamp(1, MAX_COPIES);
        let pairs = self.marks[..self.recorded].windows(2);
        Ok(pairs.map(|pair| self.us(pair[0], pair[1])).collect::<Result<_, _>>()?)
    }

    /// Duration of the lead in the last measurement, in milliseconds. It was long enough if it
    /// exceeds [`Self::host_ms`].
    ///
    /// # Errors
    /// Device errors.
    pub fn lead_ms(&self) -> Result<f64, GraphError> {
        Ok(self.us(self.start, self.marks[0])? / 1e3)
    }

    /// Milliseconds that the host took to enqueue all timed work.
    pub fn host_ms(&self) -> f64 {
        self.host_ms
    }

    fn us(&self, start: Event, end: Event) -> Result<f64, device::DeviceError> {
        Ok(1e3 * f64::from(self.device.elapsed_ms(start, end)?))
    }

    /// Measures the cost of an event, and of an event around an empty launch.
    ///
    /// # Errors
    /// Device errors.
    pub fn cost(device: &Arc<dyn Device>) -> Result<EventCost, GraphError> {
        let mut watch = Self::new(device.clone(), COST_PAIRS)?;
        let (stream, word) = (device.stream()?, device.alloc(ALIGNMENT.max(STAMP_BYTES))?);
        let mut median = |launch: bool| -> Result<f64, GraphError> {
            let mut us = vec![];
            // The first measurement determines the lead of the second.
            for _ in 0..2 {
                watch.begin(stream)?;
                for _ in 0..COST_PAIRS {
                    if launch {
                        device.launch(stream, &stamp(word))?;
                    }
                    watch.mark(stream)?;
                }
                watch.end();
                us = watch.read_us()?;
            }
            us.sort_by(f64::total_cmp);
            Ok(us[us.len() / 2])
        };
        let cost = EventCost { empty_us: median(false)?, launch_us: median(true)? };
        device.free(word)?;
        Ok(cost)
    }
}

impl Drop for Stopwatch {
    fn drop(&mut self) {
        // The error is ignored: a failing device has already reported one.
        let _ = self.device.free(self.lead);
        let _ = self.device.free_pinned(self.other_data);
        self.marks.iter().chain([&self.start]).for_each(|event| self.device.free_event(*event));
    }
}
