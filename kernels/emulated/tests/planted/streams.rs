//! Bugs of the host: streams without events, staging memory reused too soon, and captures.

use std::panic::{AssertUnwindSafe, catch_unwind};

use device::{Device, DeviceError, GraphHandle, Launch, Stream};
use emulated::Order;

use crate::support::{Bench, Memory, assert_says, orders};

/// to[i] = from[i] + 1 for 64 elements.
fn increment(from: Memory, to: Memory) -> Launch {
    let launch = Launch::new("planted_increment", [1, 1, 1]).arg(from.read()).arg(to.write());
    launch.int(0).int(64)
}

/// Three buffers, and a second stream.
struct Pair {
    bench: Bench,
    a: Memory,
    b: Memory,
    c: Memory,
    other: Stream,
}

impl Pair {
    fn new(order: Order) -> Self {
        let bench = Bench::new(order);
        let a = bench.upload(&[0.0f32; 64]);
        let (b, c) = (bench.upload(&[0.0f32; 64]), bench.upload(&[0.0f32; 64]));
        let other = bench.device.stream().unwrap();
        Self { bench, a, b, c, other }
    }

    fn launch(&self, stream: Stream, from: Memory, to: Memory) {
        self.bench.device.launch(stream, &increment(from, to)).unwrap();
    }

    /// `to` goes on after what `from` holds.
    fn after(&self, from: Stream, to: Stream) {
        let event = self.bench.device.event().unwrap();
        self.bench.device.record(event, from).unwrap();
        self.bench.device.wait(to, event).unwrap();
    }

    /// a -> b on the first stream, b -> c on the other, with or without the event between.
    fn chain(&self, event: bool) -> Vec<f32> {
        self.launch(self.bench.stream, self.a, self.b);
        if event {
            self.after(self.bench.stream, self.other);
        }
        self.launch(self.other, self.b, self.c);
        self.bench.download(self.c)
    }

    /// The same, captured, with the joins in place or left out.
    fn capture(&self, between: bool, join: bool) -> Result<GraphHandle, DeviceError> {
        let stream = self.bench.stream;
        self.bench.device.begin_capture(stream)?;
        self.after(stream, self.other);
        self.launch(stream, self.a, self.b);
        if between {
            self.after(stream, self.other);
        }
        self.launch(self.other, self.b, self.c);
        if join {
            self.after(self.other, stream);
        }
        self.bench.device.end_capture(stream)
    }
}

#[test]
fn a_missing_event_shows_in_some_order() {
    for order in orders() {
        assert_eq!(Pair::new(order).chain(true), [2.0; 64], "{order:?}");
    }
    let wrong = orders().filter(|&order| Pair::new(order).chain(false) != [2.0; 64]).count();
    assert!(wrong >= 2, "the missing event shows in {wrong} of 13 orders");
}

#[test]
fn a_missing_event_in_a_capture_is_refused_without_a_run() {
    let pair = Pair::new(Order::Given);
    let report = pair.capture(false, true).unwrap_err().to_string();
    assert_says(&report, &["end_capture", "`planted_increment` (node 0)"]);
    assert_says(&report, &["`planted_increment` (node 1)", "reach the same 256 bytes"]);
    assert_eq!(pair.bench.download::<f32>(pair.b), [0.0; 64]);
    pair.capture(true, true).unwrap();
}

#[test]
fn a_stream_that_does_not_join_is_refused() {
    let pair = Pair::new(Order::Given);
    let report = pair.capture(true, false).unwrap_err().to_string();
    assert_says(&report, &["end_capture", "has work that stream 0 does not wait for"]);
}

#[test]
fn a_replay_gives_the_same_every_time() {
    for order in orders() {
        let pair = Pair::new(order);
        let graph = pair.capture(true, true).unwrap();
        assert_eq!(pair.bench.download::<f32>(pair.c), [0.0; 64], "a capture must run nothing");
        for _ in 0..2 {
            pair.bench.device.replay(graph, pair.bench.stream).unwrap();
            assert_eq!(pair.bench.download::<f32>(pair.c), [2.0; 64], "{order:?}");
        }
    }
}

#[test]
fn two_captured_graphs_run_in_the_order_of_their_stream() {
    for order in orders() {
        let pair = Pair::new(order);
        let (device, stream) = (&pair.bench.device, pair.bench.stream);
        let capture = |from, to| {
            device.begin_capture(stream).unwrap();
            pair.launch(stream, from, to);
            device.end_capture(stream).unwrap()
        };
        let (there, back) = (capture(pair.a, pair.b), capture(pair.b, pair.a));
        for _ in 0..3 {
            device.replay(there, stream).unwrap();
            device.replay(back, stream).unwrap();
        }
        assert_eq!(pair.bench.download::<f32>(pair.a), [6.0; 64], "{order:?}");
        assert_eq!(pair.bench.download::<f32>(pair.b), [5.0; 64], "{order:?}");
    }
}

#[test]
fn what_would_wait_or_change_memory_cannot_be_captured() {
    let pair = Pair::new(Order::Given);
    let (device, stream) = (&pair.bench.device, pair.bench.stream);
    let graph = pair.capture(true, true).unwrap();
    let outside = device.event().unwrap();
    device.record(outside, pair.other).unwrap();
    device.begin_capture(stream).unwrap();
    let mut bytes = [0; 4];
    let refused = [
        device.alloc(8).map(|_| ()),
        device.alloc_pinned(8).map(|_| ()),
        device.free(pair.a.ptr),
        device.synchronize(),
        device.download(stream, pair.a.ptr, &mut bytes),
        device.begin_capture(pair.other),
        device.replay(graph, pair.other),
        device.wait(stream, outside),
    ];
    for (i, result) in refused.into_iter().enumerate() {
        assert!(matches!(result, Err(DeviceError::NotCapturable(_))), "call {i}: {result:?}");
    }
    let empty = device.end_capture(stream).unwrap();
    device.replay(empty, stream).unwrap();
    device.synchronize().unwrap();
}

#[test]
fn an_event_recorded_again_outside_a_capture_belongs_to_it_no_more() {
    let pair = Pair::new(Order::Given);
    let (device, stream) = (&pair.bench.device, pair.bench.stream);
    let event = device.event().unwrap();
    device.begin_capture(stream).unwrap();
    device.record(event, stream).unwrap();
    device.record(event, pair.other).unwrap();
    let result = device.wait(stream, event);
    assert!(matches!(result, Err(DeviceError::NotCapturable(_))), "{result:?}");
    device.end_capture(stream).unwrap();
}

#[test]
fn staging_memory_that_is_overwritten_too_soon_carries_the_wrong_batch() {
    let upload_two = |wait: bool| {
        let bench = Bench::new(Order::Given);
        let (first, second) = (bench.alloc(4), bench.alloc(4));
        let staging = bench.device.alloc_pinned(4).unwrap();
        for (memory, value) in [(first, 1i32), (second, 2)] {
            bench.device.write_pinned(staging, 0, &value.to_ne_bytes());
            bench.device.upload(bench.stream, memory.ptr, staging, 0, 4).unwrap();
            if wait {
                bench.device.synchronize().unwrap();
            }
        }
        [bench.download::<i32>(first)[0], bench.download::<i32>(second)[0]]
    };
    assert_eq!(upload_two(true), [1, 2]);
    assert_eq!(upload_two(false), [2, 2]);
}

/// A pinned buffer has an owner: until a copy has read it, writing it panics.
#[test]
fn a_pinned_buffer_is_not_written_while_a_copy_reads_it() {
    for order in orders() {
        let bench = Bench::new(order);
        let free = bench.device.memory().unwrap().free;
        let to = bench.alloc(4);
        let mut buffer = bench.device.pinned_buffer(6).unwrap();
        assert_eq!(buffer.as_ref(), [0; 6]);
        buffer.as_mut().copy_from_slice(&[1, 2, 3, 4, 5, 6]);
        bench.device.upload_from(bench.stream, to.ptr, &buffer, 4).unwrap();
        let write = AssertUnwindSafe(|| buffer.as_mut().fill(9));
        let refused = *catch_unwind(write).unwrap_err().downcast::<String>().unwrap();
        assert!(refused.contains("while 1 copies"), "{refused}");
        assert_eq!(bench.download::<u8>(to), [1, 2, 3, 4]);
        buffer.as_mut().fill(9);
        assert_eq!(buffer.as_ref(), [9; 6]);
        assert_eq!(bench.device.counts().pinned_writes, 0, "filled in place");
        drop(buffer);
        assert_eq!(bench.device.memory().unwrap().free, free - 4);
    }
}

#[test]
fn kernels_write_into_pinned_memory_that_the_host_polls() {
    let bench = Bench::new(Order::Given);
    let ring = bench.device.alloc_pinned(256).unwrap();
    let memory = Memory { ptr: ring.device_ptr, bytes: 256 };
    let launch = Launch::new("planted_fill", [1, 1, 1]).arg(memory.write());
    bench.device.launch(bench.stream, &launch.arg(5.0f32).int(0).int(64)).unwrap();
    let waits = bench.device.counts().host_waits;
    let mut bytes = [0; 4];
    for _ in 0..10 {
        bench.device.read_pinned(ring, 252, &mut bytes);
        if f32::from_ne_bytes(bytes) == 5.0 {
            break;
        }
        bench.device.idle().expect("no fault");
    }
    assert_eq!(f32::from_ne_bytes(bytes), 5.0);
    assert_eq!(bench.device.counts().host_waits, waits, "polling waits for nothing");
}
