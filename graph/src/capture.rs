//! Launch lists, and their capture as one graph, which is launched as a whole.
//!
//! A [`LaunchList`] declares the stream and the waits of each piece of work. Capture records the
//! list once; afterwards one call launches all of it, and the host does nothing else. Work that
//! needs the host at run time (a readback, an allocation, a wait) cannot be captured; [`capture`]
//! reports this work and the reason.
//!
//! Any device task can be captured this way, without a [`Program`](crate::Program):
//!
//! ```
//! use graph::capture::{HostWork, LaunchList, Work, capture};
//! use device::{Access, Arg, Device, Launch, Touch};
//!
//! let device = test_gpu::open("A100 SEED=1");
//! let (dy, y, g) = (device.alloc(4)?, device.alloc(4)?, device.alloc(4)?);
//! let buffer = |ptr, access| Arg::Buffer(Touch { ptr, bytes: 4, access });
//! let relu = Launch::over("relu_mask_f16", 2)
//!     .arg(buffer(dy, Access::Read))
//!     .arg(buffer(y, Access::Read))
//!     .arg(buffer(g, Access::Write))
//!     .len(2);
//! let mut list = LaunchList::default();
//! list.push(Work::new("gradient of the ReLU", vec![relu.into()]));
//! let graph = capture(&device, &list)?;
//!
//! // Two fp16 values each: dy = [1.0, 2.0] and y = [1.0, -1.0]; only the first gradient passes.
//! let staging = device.alloc_pinned(8)?;
//! let halves: Vec<u8> = [0x3C00u16, 0x4000, 0x3C00, 0xBC00].map(u16::to_ne_bytes).concat();
//! device.write_pinned(staging, 0, &halves);
//! let stream = device.stream()?;
//! device.upload(stream, dy, staging, 0, 4)?;
//! device.upload(stream, y, staging, 4, 4)?;
//! device.replay(graph.handle, stream)?;
//! let mut result = [0; 4];
//! device.download(stream, g, &mut result)?;
//! assert_eq!(result, [0x00, 0x3C, 0, 0]);
//! assert_eq!(device.counts().graph_launches, 1);
//!
//! // Work that waits for the device on the host is rejected with a reason.
//! list.push(Work::on_host("look at it", HostWork::Download { from: g, bytes: 4 }));
//! let refused = capture(&device, &list).expect_err("a read by the host");
//! assert!(refused.to_string().starts_with("`look at it` cannot be captured: the host reads"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::collections::BTreeSet;

use device::{Device, DeviceError, DevicePtr, Event, GraphHandle, Launch, Stream, Task};

use crate::stream_roles::priority;

/// The content of a piece of work.
#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    /// Device tasks in sequence: kernels, copies, all-reduces.
    Tasks(Vec<Task>),
    /// Host work, which no graph can contain.
    Host(HostWork),
}

/// Work that needs the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostWork {
    /// A copy from the device to the host, which waits for it.
    Download {
        /// First byte on the device.
        from: DevicePtr,
        /// Length.
        bytes: usize,
    },
    /// An allocation of device memory.
    Alloc {
        /// Length.
        bytes: usize,
    },
    /// The host waits for the device.
    Synchronize,
}

/// A piece of work with its stream and waits.
#[derive(Debug, Clone, PartialEq)]
pub struct Work {
    /// Name in messages.
    pub name: String,
    /// The device tasks, or the host work.
    pub body: Body,
    /// Stream that runs the work, after all earlier work on this stream.
    pub stream: usize,
    /// Indices of earlier work on other streams for which this work waits.
    pub waits: Vec<usize>,
}

impl Work {
    /// Tasks on stream 0 that wait only for earlier work on stream 0.
    pub fn new(name: &str, tasks: Vec<Task>) -> Self {
        Self { name: name.to_string(), body: Body::Tasks(tasks), stream: 0, waits: vec![] }
    }

    /// Host work, ordered like work on stream 0.
    pub fn on_host(name: &str, work: HostWork) -> Self {
        Self { name: name.to_string(), body: Body::Host(work), stream: 0, waits: vec![] }
    }

    /// Non-empty tasks of the work.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        let tasks: &[Task] = match &self.body {
            Body::Tasks(tasks) => tasks,
            Body::Host(_) => &[],
        };
        tasks.iter().filter(|task| !task.is_empty())
    }

    /// Non-empty kernel launches of the work.
    pub fn kernels(&self) -> impl Iterator<Item = &Launch> {
        self.tasks().filter_map(Task::kernel)
    }

    /// The reason why a captured graph cannot contain this work, if any.
    fn obstacle(&self) -> Option<&'static str> {
        let Body::Host(work) = &self.body else { return None };
        Some(match work {
            HostWork::Download { .. } => "the host reads device memory, and would have to wait",
            HostWork::Alloc { .. } => "a graph's addresses are fixed when it is captured",
            HostWork::Synchronize => "the host waits for the device",
        })
    }
}

/// Pieces of work, in an order that is valid for sequential execution.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LaunchList {
    works: Vec<Work>,
}

/// A captured launch list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CapturedGraph {
    /// Handle for [`Device::replay`].
    pub handle: GraphHandle,
    /// Number of kernels in the graph.
    pub kernels: usize,
    /// Number of streams from which the graph was captured.
    pub streams: usize,
}

/// The reason why a launch list was not captured.
#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    /// The list contains work that a graph cannot contain.
    #[error("`{work}` cannot be captured: {reason}; run it outside of the graph")]
    NotCapturable {
        /// Name of the work.
        work: String,
        /// The reason why a graph cannot contain it.
        reason: &'static str,
    },
    /// The device rejected a piece of work.
    #[error("`{work}`: {source}")]
    Work {
        /// Name of the work.
        work: String,
        /// The device's error.
        source: DeviceError,
    },
    /// The device rejected the capture.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl LaunchList {
    /// Appends work and returns its index.
    ///
    /// Panics if it waits for work that is not yet in the list.
    pub fn push(&mut self, work: Work) -> usize {
        let position = self.works.len();
        assert!(work.waits.iter().all(|w| *w < position), "{} waits for later work", work.name);
        self.works.push(work);
        position
    }

    /// All work.
    pub fn works(&self) -> &[Work] {
        &self.works
    }

    /// Number of streams: the highest stream index plus one.
    pub fn streams(&self) -> usize {
        self.works.iter().map(|w| w.stream + 1).max().unwrap_or(1)
    }

    /// A list with the same work in the same order, on a single stream.
    pub fn on_one_stream(&self) -> Self {
        let alone = |work: &Work| Work { stream: 0, waits: vec![], ..work.clone() };
        Self { works: self.works.iter().map(alone).collect() }
    }

    /// All non-empty tasks of the list.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.works.iter().flat_map(Work::tasks)
    }

    /// All non-empty kernel launches of the list.
    pub fn kernels(&self) -> impl Iterator<Item = &Launch> {
        self.works.iter().flat_map(Work::kernels)
    }

    /// Names of the kernels in the list.
    pub fn kernel_names(&self) -> BTreeSet<&str> {
        self.kernels().map(|launch| launch.kernel).collect()
    }

    /// Returns an error for the first work that cannot be captured.
    fn check(&self) -> Result<(), CaptureError> {
        for work in &self.works {
            if let Some(reason) = work.obstacle() {
                return Err(CaptureError::NotCapturable { work: work.name.clone(), reason });
            }
        }
        Ok(())
    }
}

/// Captures a launch list as a graph.
///
/// # Errors
/// [`CaptureError::NotCapturable`], before the capture starts; device errors of a launch or of the
/// capture.
pub fn capture(device: &dyn Device, list: &LaunchList) -> Result<CapturedGraph, CaptureError> {
    list.check()?;
    // If a module does not load, the launch of its kernels reports the error.
    device.load_kernels(Some(&list.kernel_names()));
    let mut recorder = Recorder { device, streams: vec![], events: vec![] };
    for s in 0..list.streams() {
        recorder.streams.push(device.stream_with(priority(s))?);
    }
    let (origin, streams) = (recorder.streams[0], recorder.streams.len());
    let marks = recorder.marks(list)?;
    device.begin_capture(origin)?;
    let recorded = recorder.record(list, &marks);
    // The capture must end even after an error, or else the device would stay in capture mode.
    let ended = device.end_capture(origin);
    recorded?;
    let kernels = list.kernels().count();
    Ok(CapturedGraph { handle: ended?, kernels, streams })
}

/// The streams and events of a capture, released after it; the graph no longer needs them.
struct Recorder<'a> {
    device: &'a dyn Device,
    streams: Vec<Stream>,
    events: Vec<Event>,
}

impl Recorder<'_> {
    fn event(&mut self) -> Result<Event, DeviceError> {
        let event = self.device.event()?;
        self.events.push(event);
        Ok(event)
    }

    /// Creates an event for each piece of work for which other work waits.
    fn marks(&mut self, list: &LaunchList) -> Result<Vec<Option<Event>>, DeviceError> {
        let mut marks = vec![None; list.works.len()];
        for &wait in list.works.iter().flat_map(|w| &w.waits) {
            if marks[wait].is_none() {
                marks[wait] = Some(self.event()?);
            }
        }
        Ok(marks)
    }

    fn record(&mut self, list: &LaunchList, marks: &[Option<Event>]) -> Result<(), CaptureError> {
        let (device, start) = (self.device, self.event()?);
        device.record(start, self.streams[0])?;
        for stream in &self.streams[1..] {
            device.wait(*stream, start)?;
        }
        for (position, work) in list.works.iter().enumerate() {
            let name_it = |source| CaptureError::Work { work: work.name.clone(), source };
            let stream = self.streams[work.stream];
            for event in work.waits.iter().filter_map(|w| marks[*w]) {
                device.wait(stream, event)?;
            }
            work.tasks().try_for_each(|task| task.submit(device, stream)).map_err(name_it)?;
            if let Some(event) = marks[position] {
                device.record(event, stream)?;
            }
        }
        for beside in 1..self.streams.len() {
            let end = self.event()?;
            device.record(end, self.streams[beside])?;
            device.wait(self.streams[0], end)?;
        }
        Ok(())
    }
}

impl Drop for Recorder<'_> {
    fn drop(&mut self) {
        self.streams.iter().for_each(|stream| self.device.free_stream(*stream));
        self.events.iter().for_each(|event| self.device.free_event(*event));
    }
}
