//! Tests of the CUDA device: copies, launches, events, capture and replay, pinned memory, and the
//! checks of the emulated driver.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use device::cuda::CudaDevice;
use device::{Access, Arg, Device, DeviceError, DevicePtr, Launch, Pinned, Stream, Touch};
use half::f16;

/// Number of elements: several full vectors of the kernel, and a tail.
const LEN: usize = 8 * 256 * 3 + 5;
const BYTES: usize = LEN * 2;

fn halves(values: impl Iterator<Item = f32>) -> Vec<u8> {
    values.flat_map(|v| f16::from_f32(v).to_ne_bytes()).collect()
}

/// `g = dy where y > 0`.
fn relu_mask(dy: DevicePtr, y: DevicePtr, g: DevicePtr) -> Launch {
    let buffer = |ptr, access| Arg::Buffer(Touch { ptr, bytes: BYTES, access });
    Launch::over("relu_mask_f16", LEN.div_ceil(8))
        .arg(buffer(dy, Access::Read))
        .arg(buffer(y, Access::Read))
        .arg(buffer(g, Access::Write))
        .len(LEN)
}

/// Three buffers on the device, and the contents of two of them.
struct Work {
    device: CudaDevice,
    streams: [Stream; 2],
    dy: DevicePtr,
    y: DevicePtr,
    g: DevicePtr,
    pinned: [Pinned; 2],
}

impl Work {
    fn new(device: CudaDevice) -> Self {
        // Kernels cannot be loaded during capture, so they are loaded here.
        let loads = device.load_kernels(Some(&BTreeSet::from(["relu_mask_f16"])));
        assert!(loads.iter().all(|load| load.result.is_ok()), "{loads:?}");
        let streams = [device.stream().unwrap(), device.stream().unwrap()];
        let [dy, y, g] = [(); 3].map(|()| device.alloc(BYTES).unwrap());
        let pinned = [(); 2].map(|()| device.alloc_pinned(BYTES).unwrap());
        Self { device, streams, dy, y, g, pinned }
    }

    /// Fills gradients with `scale`, `2 * scale` ..., and outputs so that every third value is
    /// positive.
    fn fill(&self, scale: f32) -> Vec<u8> {
        let dy = |i: usize| scale * (i % 100 + 1) as f32;
        let passes = |i: usize| i.is_multiple_of(3);
        let y = |i| if passes(i) { 1.0 } else { -1.0 };
        self.device.write_pinned(self.pinned[0], 0, &halves((0..LEN).map(dy)));
        self.device.write_pinned(self.pinned[1], 0, &halves((0..LEN).map(y)));
        halves((0..LEN).map(|i| if passes(i) { dy(i) } else { 0.0 }))
    }

    /// Enqueues uploads on two streams, then the kernel on the first stream.
    fn submit(&self) -> Result<(), DeviceError> {
        let (device, [first, second]) = (&self.device, self.streams);
        let (begin, joined) = (device.event()?, device.event()?);
        device.record(begin, first)?;
        device.wait(second, begin)?;
        device.upload(first, self.dy, self.pinned[0], 0, BYTES)?;
        device.upload(second, self.y, self.pinned[1], 0, BYTES)?;
        device.record(joined, second)?;
        device.wait(first, joined)?;
        device.launch(first, &relu_mask(self.dy, self.y, self.g))
    }

    fn result(&self) -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        self.device.download(self.streams[0], self.g, &mut bytes).unwrap();
        bytes
    }
}

#[test]
fn work_follows_stream_and_event_order() {
    let work = Work::new(test_gpu::open("A100"));
    let expected = work.fill(1.0);
    work.submit().unwrap();
    assert!(work.result() == expected);
    let counts = work.device.counts();
    assert_eq!((counts.kernel_launches, counts.uploads, counts.graph_launches), (1, 2, 0));
    assert_eq!((counts.downloads, counts.host_waits, counts.allocations), (1, 1, 3));
    work.device.free(work.y).unwrap();
    work.device.synchronize().unwrap();
}

#[test]
fn graph_replay_reads_current_memory() {
    let work = Work::new(test_gpu::open("A100"));
    let (device, first) = (&work.device, work.streams[0]);
    device.begin_capture(first).unwrap();
    work.submit().unwrap();
    for refused in [device.alloc(1).map(|_| ()), device.synchronize(), device.free(work.g)] {
        assert!(matches!(refused, Err(DeviceError::NotCapturable(_))), "{refused:?}");
    }
    let graph = device.end_capture(first).unwrap();
    assert_eq!(device.counts().kernel_launches, 0);
    for scale in [1.0, 2.0] {
        let expected = work.fill(scale);
        device.replay(graph, first).unwrap();
        assert!(work.result() == expected, "{scale}");
    }
    assert_eq!(device.counts().graph_launches, 2);
}

#[test]
fn capture_rejects_wait_for_uncaptured_work() {
    let work = Work::new(test_gpu::open("A100"));
    let (device, [first, second]) = (&work.device, work.streams);
    let outside = device.event().unwrap();
    device.record(outside, second).unwrap();
    device.begin_capture(first).unwrap();
    let refused = device.wait(first, outside);
    assert!(matches!(refused, Err(DeviceError::NotCapturable(_))), "{refused:?}");
    // The driver may or may not invalidate the capture; the device stays usable in both cases.
    let _ = device.end_capture(first);
    let expected = work.fill(3.0);
    work.submit().unwrap();
    assert!(work.result() == expected);
}

#[test]
fn capture_rejects_wait_for_event_rerecorded_outside_it() {
    let device = test_gpu::open("A100");
    let [first, second] = [(); 2].map(|()| device.stream().unwrap());
    let event = device.event().unwrap();
    device.begin_capture(first).unwrap();
    device.record(event, first).unwrap();
    device.record(event, second).unwrap();
    let refused = device.wait(first, event);
    assert!(matches!(refused, Err(DeviceError::NotCapturable(_))), "{refused:?}");
    let _ = device.end_capture(first);
}

#[test]
fn kernel_writes_to_pinned_memory() {
    let work = Work::new(test_gpu::open("A100"));
    let expected = work.fill(1.0);
    let ring = work.device.alloc_pinned(BYTES + 8).unwrap();
    let mut bytes = vec![1; BYTES + 8];
    work.device.read_pinned(ring, 0, &mut bytes);
    assert!(bytes.iter().all(|byte| *byte == 0), "pinned memory begins as zeros");
    work.submit().unwrap();
    // The kernel's vectors require an alignment of 16 bytes.
    let launch = relu_mask(work.dy, work.y, ring.device_ptr);
    work.device.launch(work.streams[0], &launch).unwrap();
    work.device.synchronize().unwrap();
    work.device.read_pinned(ring, 2, &mut bytes[..BYTES - 2]);
    assert!(bytes[..BYTES - 2] == expected[2..]);
}

#[test]
fn invalid_launch_and_allocation_are_rejected() {
    let work = Work::new(test_gpu::open("A100"));
    let refused = |launch: Launch| {
        let fault = work.device.launch(work.streams[0], &launch).unwrap_err();
        assert!(matches!(fault, DeviceError::Kernel { .. }), "{fault}");
        fault.to_string()
    };
    assert!(refused(Launch::over("no_such_kernel", 1)).contains("no compiled kernel"));
    assert!(refused(Launch::over("relu_mask_f16", 1).int(1)).contains("1 arguments for 4"));
    let mut launch = relu_mask(work.dy, work.y, work.g);
    launch.grid[1] = 1 << 17;
    assert!(refused(launch).contains("grid [4, 131072, 1]"));
    let mut empty = relu_mask(work.dy, work.y, work.g);
    empty.grid[0] = 0;
    work.device.launch(work.streams[0], &empty).unwrap();
    let wanted = 1 << 50;
    let full = work.device.alloc(wanted);
    assert!(matches!(full, Err(DeviceError::OutOfMemory { wanted: w, .. }) if w == wanted));
}

#[test]
fn elapsed_time_between_events_is_positive() {
    let work = Work::new(test_gpu::open("A100"));
    let stream = work.streams[0];
    let (start, end) = (work.device.timing_event().unwrap(), work.device.timing_event().unwrap());
    work.fill(1.0);
    work.device.record(start, stream).unwrap();
    work.submit().unwrap();
    work.device.record(end, stream).unwrap();
    let ms = work.device.elapsed_ms(start, end).unwrap();
    assert!(ms > 0.0 && ms < 10_000.0, "{ms} ms");
}

/// A host thread fills the buffer in place, and refills it once the copy from it has ended.
#[test]
fn pinned_buffer_is_filled_by_another_thread() {
    let device = test_gpu::open("A100");
    let (stream, ptr) = (device.stream().unwrap(), device.alloc(1000).unwrap());
    let mut buffer = device.pinned_buffer(1000).unwrap();
    assert_eq!(buffer.as_ref(), [0; 1000]);
    let before = device.counts();
    for value in 1..4 {
        std::thread::scope(|scope| {
            scope.spawn(|| buffer.as_mut().fill(value));
        });
        device.upload_from(stream, ptr, &buffer, 1000).unwrap();
        let mut bytes = [0; 1000];
        device.download(stream, ptr, &mut bytes).unwrap();
        assert_eq!(bytes, [value; 1000]);
    }
    let after = device.counts();
    assert_eq!((after.uploads - before.uploads, after.pinned_writes), (3, before.pinned_writes));
    device.upload_from(stream, ptr, &buffer, 1000).unwrap();
    drop(buffer); // waits for the copy
    device.free(ptr).unwrap();
}

#[test]
fn threads_share_one_device() {
    let device = test_gpu::open("A100");
    let device = &device;
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            scope.spawn(move || {
                let stream = device.stream().unwrap();
                let (ptr, pinned) =
                    (device.alloc(1000).unwrap(), device.alloc_pinned(1000).unwrap());
                device.write_pinned(pinned, 0, &[thread; 1000]);
                device.upload(stream, ptr, pinned, 0, 1000).unwrap();
                let mut bytes = [0; 1000];
                device.download(stream, ptr, &mut bytes).unwrap();
                assert_eq!(bytes, [thread; 1000]);
                device.free(ptr).unwrap();
            });
        }
    });
}

/// An access outside the ranges that a launch declares is an error, even inside allocations.
#[test]
fn undeclared_memory_access_is_detected() {
    let fault = |change: fn(&mut Touch, usize)| {
        let work = Work::new(test_gpu::open("A100"));
        work.fill(1.0);
        work.submit().unwrap();
        let mut launch = relu_mask(work.dy, work.y, work.g);
        for (at, arg) in launch.args.iter_mut().enumerate() {
            if let Arg::Buffer(touch) = arg {
                change(touch, at);
            }
        }
        let launched = work.device.launch(work.streams[0], &launch);
        launched.and_then(|()| work.device.synchronize()).map_err(|e| e.to_string())
    };
    assert_eq!(fault(|_, _| ()), Ok(()));
    let read = fault(|touch, at| touch.bytes -= usize::from(at == 0) * 16).unwrap_err();
    assert!(read.contains("reads") && read.contains("does not declare"), "{read}");
    let written = fault(|touch, at| touch.bytes -= usize::from(at == 2) * 16).unwrap_err();
    assert!(written.contains("writes") && written.contains("does not declare"), "{written}");
    let input = fault(|touch, _| touch.access = Access::Read).unwrap_err();
    assert!(input.contains("which the launch declares as read"), "{input}");
    let outside = fault(|touch, at| touch.bytes += usize::from(at == 1)).unwrap_err();
    assert!(
        outside.contains("declared bytes") && outside.contains("not in one allocation"),
        "{outside}"
    );
}

/// Racing operations of a graph, including copies, are rejected when the capture ends.
#[test]
fn racing_graph_is_rejected() {
    let capture = |waits: bool| {
        let work = Work::new(test_gpu::open("A100"));
        let (device, [first, second]) = (&work.device, work.streams);
        let [begin, uploaded, joined] = [(); 3].map(|()| device.event().unwrap());
        work.fill(1.0);
        device.begin_capture(first).unwrap();
        device.record(begin, first).unwrap();
        device.wait(second, begin).unwrap();
        device.upload(second, work.y, work.pinned[1], 0, BYTES).unwrap();
        device.record(uploaded, second).unwrap();
        if waits {
            device.wait(first, uploaded).unwrap();
        }
        device.launch(first, &relu_mask(work.dy, work.y, work.g)).unwrap();
        device.record(joined, second).unwrap();
        device.wait(first, joined).unwrap();
        device.end_capture(first).map(|_| ()).map_err(|e| e.to_string())
    };
    assert_eq!(capture(true), Ok(()));
    let refused = capture(false).unwrap_err();
    let wanted = format!("use the same {BYTES} bytes, one writes them, and no event orders them");
    assert!(refused.contains("`relu_mask_f16`") && refused.contains(&wanted), "{refused}");
}

/// A pinned buffer is owned by its copy: writing to it before the copy has read it panics.
#[test]
fn host_write_during_copy_is_detected() {
    let device = test_gpu::open("A100 SCHEDULE=late");
    let (stream, ptr) = (device.stream().unwrap(), device.alloc(1 << 20).unwrap());
    let mut buffer = device.pinned_buffer(1 << 20).unwrap();
    // The copy may end before this thread continues, so this is tried several times.
    let refused = (0..20).any(|_| {
        device.upload_from(stream, ptr, &buffer, 1 << 20).unwrap();
        catch_unwind(AssertUnwindSafe(|| buffer.as_mut()[0] = 1)).is_err()
    });
    assert!(refused);
    device.synchronize().unwrap();
    buffer.as_mut()[0] = 1;
}
