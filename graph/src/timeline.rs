//! Start and end of each piece of work in a launch list, from timestamps of the device's clock: a
//! timeline of one replay, recorded without a profiler.
//!
//! The timestamps are written by kernels in a modified copy of the list. They add overhead: the
//! span of a piece of work includes the start-up of its kernels and of the timestamp after it.
//! [`StampCost::measure`] estimates the overhead with a graph that contains only timestamps.

use std::collections::BTreeSet;
use std::sync::Arc;

use device::stamp::{STAMP_BYTES, stamp};
use device::{Device, DevicePtr, Stream};

use crate::GraphError;
use crate::capture::{Body, LaunchList, Work, capture};

/// Start and end of a piece of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Index of the piece of work in the launch list.
    pub work: usize,
    /// Its name.
    pub name: String,
    /// The stream that ran the work.
    pub stream: usize,
    /// Nanoseconds from the first timestamp of the replay to the timestamp before this work.
    pub start_ns: u64,
    /// Nanoseconds from the first timestamp of the replay to the timestamp after this work.
    pub end_ns: u64,
}

/// Device memory for the timestamps of a list, two per piece of work.
#[derive(Debug)]
pub struct Stamps {
    device: Arc<dyn Device>,
    stream: Stream,
    memory: DevicePtr,
    /// Name and stream of each piece of work.
    works: Vec<(String, usize)>,
}

impl Stamps {
    /// Returns `list` with a timestamp before and after each piece of work, on the stream of the
    /// work. Work that waits for a piece of work in `list` waits for the timestamp after it
    /// instead.
    ///
    /// # Errors
    /// Device errors.
    pub fn around(
        device: Arc<dyn Device>,
        list: &LaunchList,
    ) -> Result<(LaunchList, Self), GraphError> {
        let works: Vec<_> =
            list.works().iter().map(|work| (work.name.clone(), work.stream)).collect();
        let memory = device.alloc((2 * works.len() * STAMP_BYTES).max(STAMP_BYTES))?;
        let stream = device.stream()?;
        let mut stamped = LaunchList::default();
        for (position, work) in list.works().iter().enumerate() {
            let stamp = |behind: usize, waits: Vec<usize>| {
                let to = memory + ((2 * position + behind) * STAMP_BYTES) as DevicePtr;
                let side = ["before", "behind"][behind];
                let name = format!("stamp {side} {}", work.name);
                Work { name, body: Body::Tasks(vec![stamp(to).into()]), stream: work.stream, waits }
            };
            // Each piece of work has become three; the last one is the timestamp after it.
            stamped.push(stamp(0, work.waits.iter().map(|wait| 3 * wait + 2).collect()));
            stamped.push(Work { waits: vec![], ..work.clone() });
            stamped.push(stamp(1, vec![]));
        }
        Ok((stamped, Self { device, stream, memory, works }))
    }

    /// The spans of the last run, in the order of the list. Waits for the device.
    ///
    /// # Errors
    /// Device errors.
    pub fn read(&self) -> Result<Vec<Span>, GraphError> {
        self.device.synchronize()?;
        let times = download(self.device.as_ref(), self.stream, self.memory, 2 * self.works.len())?;
        let first = times.iter().copied().min().unwrap_or(0);
        let spans = self.works.iter().zip(times.chunks_exact(2)).enumerate();
        let span = |(work, ((name, stream), pair)): (usize, (&(String, usize), &[u64]))| Span {
            work,
            name: name.clone(),
            stream: *stream,
            start_ns: pair[0] - first,
            end_ns: pair[1] - first,
        };
        Ok(spans.map(span).collect())
    }
}

impl Drop for Stamps {
    fn drop(&mut self) {
        // The error is ignored: a failing device has already reported one.
        let _ = self.device.free(self.memory);
        self.device.free_stream(self.stream);
    }
}

fn download(
    device: &dyn Device,
    stream: Stream,
    from: DevicePtr,
    stamps: usize,
) -> Result<Vec<u64>, GraphError> {
    let mut bytes = vec![0; stamps * STAMP_BYTES];
    device.download(stream, from, &mut bytes)?;
    let words = bytes.as_chunks::<STAMP_BYTES>().0;
    Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

/// The cost of timestamps and the resolution of their clock, measured with a graph that contains
/// only timestamps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StampCost {
    /// Number of timestamps in the graph.
    pub stamps: usize,
    /// Microseconds per timestamp: the time from the first to the last, divided by the number of
    /// intervals.
    pub each_us: f64,
    /// The smallest observed difference between distinct times, in nanoseconds; 0 if all times are
    /// equal.
    pub step_ns: u64,
    /// Number of distinct times observed.
    pub distinct: usize,
}

impl StampCost {
    /// Captures `stamps` timestamps, runs them twice, and evaluates the second run.
    ///
    /// # Errors
    /// Device errors.
    pub fn measure(device: &dyn Device, stamps: usize) -> Result<Self, GraphError> {
        assert!(stamps > 1, "one stamp shows no difference");
        let (memory, stream) = (device.alloc(stamps * STAMP_BYTES)?, device.stream()?);
        let mut list = LaunchList::default();
        for i in 0..stamps {
            let to = memory + (i * STAMP_BYTES) as DevicePtr;
            list.push(Work::new("stamp", vec![stamp(to).into()]));
        }
        let graph = capture(device, &list)?;
        device.synchronize()?;
        for _ in 0..2 {
            device.replay(graph.handle, stream)?;
        }
        let times = download(device, stream, memory, stamps);
        device.free(memory)?;
        device.free_graph(graph.handle);
        device.free_stream(stream);
        Ok(Self::of(&times?))
    }

    /// Evaluates consecutive timestamps.
    fn of(times: &[u64]) -> Self {
        let steps = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        let whole = times[times.len() - 1].saturating_sub(times[0]);
        Self {
            stamps: times.len(),
            each_us: whole as f64 / 1e3 / (times.len() - 1) as f64,
            step_ns: steps.filter(|step| *step > 0).min().unwrap_or(0),
            distinct: times.iter().collect::<BTreeSet<_>>().len(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StampCost;

    #[test]
    fn stamp_cost_matches_hand_computed_values() {
        let fine = StampCost::of(&[100, 2_132, 4_100, 6_100]);
        assert_eq!((fine.stamps, fine.each_us, fine.step_ns, fine.distinct), (4, 2.0, 1_968, 4));
        let coarse = StampCost::of(&[1_024, 1_024, 1_024, 2_048, 2_048]);
        assert_eq!((coarse.each_us, coarse.step_ns, coarse.distinct), (0.256, 1_024, 2));
        assert_eq!(StampCost::of(&[7, 7]).step_ns, 0);
    }
}
