//! Times on a device's stream, by events between pieces of work that follow without a gap.
//!
//! A GPU that waits for the next launch would be timed waiting. So each measurement begins with
//! copies that keep the stream busy while the host gives it all that is to be timed: as many as the
//! last measurement showed to be needed.

use std::sync::Arc;
use std::time::Instant;

use device::stamp::{STAMP_BYTES, stamp};
use device::{Device, DevicePtr, Event, Pinned, Stream};

use crate::GraphError;
use crate::plan::ALIGNMENT;

/// Of one copy: more than the L2 cache of any GPU that the kernels run on, so that no measurement
/// finds there what the last one left.
const LEAD_BYTES: usize = 64 << 20;
/// Copies before a measurement at most.
const MAX_COPIES: usize = 64;
/// Pairs of events that the cost of one is taken from.
const COST_PAIRS: usize = 200;

/// Events around pieces of work, and what keeps the stream busy before them.
#[derive(Debug)]
pub struct Stopwatch {
    device: Arc<dyn Device>,
    /// Recorded before the lead.
    start: Event,
    marks: Vec<Event>,
    /// Marks recorded in the measurement under way.
    recorded: usize,
    copies: usize,
    lead: DevicePtr,
    other_data: Pinned,
    began: Instant,
    /// Milliseconds that the host took to give the last measurement.
    host_ms: f64,
}

/// What timing by events adds, as medians.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EventCost {
    /// Microseconds between two events with nothing between them.
    pub empty_us: f64,
    /// Microseconds between two events around a kernel of one thread that stores one word.
    pub launch_us: f64,
}

impl Stopwatch {
    /// A stopwatch for up to `pieces` pieces of work in a row.
    ///
    /// # Errors
    /// The device's own.
    pub fn new(device: Arc<dyn Device>, pieces: usize) -> Result<Self, GraphError> {
        let start = device.timing_event()?;
        let marks = (0..=pieces).map(|_| device.timing_event()).collect::<Result<_, _>>()?;
        let lead = device.alloc(LEAD_BYTES)?;
        let other_data = device.alloc_pinned(LEAD_BYTES)?;
        let began = Instant::now();
        let (recorded, copies, host_ms) = (0, 1, 0.0);
        Ok(Self { device, start, marks, recorded, copies, lead, other_data, began, host_ms })
    }

    /// Begins a measurement: the lead, then the first mark.
    pub(super) fn begin(&mut self, stream: Stream) -> Result<(), GraphError> {
        self.device.record(self.start, stream)?;
        for _ in 0..self.copies {
            self.device.upload(stream, self.lead, self.other_data, 0, LEAD_BYTES)?;
        }
        self.began = Instant::now();
        self.recorded = 0;
        self.mark(stream)
    }

    /// Ends a piece of work.
    pub(super) fn mark(&mut self, stream: Stream) -> Result<(), GraphError> {
        assert!(self.recorded < self.marks.len(), "{} pieces at most", self.marks.len() - 1);
        self.device.record(self.marks[self.recorded], stream)?;
        self.recorded += 1;
        Ok(())
    }

    /// All that is to be timed was given.
    pub(super) fn end(&mut self) {
        self.host_ms = 1e3 * self.began.elapsed().as_secs_f64();
    }

    /// Microseconds of each piece of work of the last measurement. Waits for the device. The next
    /// measurement has a lead as long as the host took for this one, and half of it more.
    ///
    /// # Errors
    /// The device's own.
    pub fn read_us(&mut self) -> Result<Vec<f64>, GraphError> {
        let lead_ms = self.lead_ms()?;
        let wanted = 1.5 * self.host_ms / (lead_ms / self.copies as f64).max(1e-3);
        self.copies = (wanted.ceil() as usize).clamp(1, MAX_COPIES);
        let pairs = self.marks[..self.recorded].windows(2);
        Ok(pairs.map(|pair| self.us(pair[0], pair[1])).collect::<Result<_, _>>()?)
    }

    /// Milliseconds that the lead of the last measurement took: it was long enough if the host
    /// was done sooner.
    ///
    /// # Errors
    /// The device's own.
    pub fn lead_ms(&self) -> Result<f64, GraphError> {
        Ok(self.us(self.start, self.marks[0])? / 1e3)
    }

    /// Milliseconds that the host took to give all that was timed.
    pub fn host_ms(&self) -> f64 {
        self.host_ms
    }

    fn us(&self, start: Event, end: Event) -> Result<f64, device::DeviceError> {
        Ok(1e3 * f64::from(self.device.elapsed_ms(start, end)?))
    }

    /// Measures what an event, and an event around an empty launch, costs here.
    ///
    /// # Errors
    /// The device's own.
    pub fn cost(device: &Arc<dyn Device>) -> Result<EventCost, GraphError> {
        let mut watch = Self::new(device.clone(), COST_PAIRS)?;
        let (stream, word) = (device.stream()?, device.alloc(ALIGNMENT.max(STAMP_BYTES))?);
        let mut median = |launch: bool| -> Result<f64, GraphError> {
            let mut us = vec![];
            // The first measurement shows how long a lead the second one needs.
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
        // A device that fails here has said so before.
        let _ = self.device.free(self.lead);
        let _ = self.device.free_pinned(self.other_data);
    }
}
