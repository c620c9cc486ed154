//! Bugs in what a launch reaches, and in what it is given.

use device::{Access, Arg, Device, DeviceError, Launch, Touch};
use emulated::{EmulatedDevice, Order};

use crate::support::{Bench, Memory, assert_says, fault};

/// to[first..end] = 1.
fn fill(to: Arg, first: i32, end: i32) -> Launch {
    Launch::new("planted_fill", [1, 1, 1]).arg(to).arg(1.0f32).arg(first).arg(end)
}

/// True where a sanitizer ends the process at such a bug; tests in sanitizers.rs see to that.
fn sanitized() -> bool {
    !emulated::SANITIZE.is_empty()
}

#[test]
fn a_write_past_the_end_of_a_buffer_is_reported() {
    if sanitized() {
        return;
    }
    let bench = Bench::new(Order::Given);
    let report = fault(&bench, &fill(bench.alloc(100).write(), 0, 26));
    assert_says(&report, &["`planted_fill`", "global_memory.cu:"]);
    assert_says(&report, &["wrote 1 bytes past the end of a buffer of 100 bytes"]);
    let bench = Bench::new(Order::Given);
    let report = fault(&bench, &fill(bench.alloc(100).write(), -1, 25));
    assert_says(&report, &["bytes before a buffer of 100 bytes"]);
}

#[test]
fn a_fault_stays_with_the_device() {
    if sanitized() {
        return;
    }
    let bench = Bench::new(Order::Given);
    let memory = bench.alloc(100);
    let report = fault(&bench, &fill(memory.write(), 0, 26));
    let mut bytes = [0; 4];
    let again = bench.device.download(bench.stream, memory.ptr, &mut bytes).unwrap_err();
    assert_eq!(again.to_string(), report);
}

#[test]
fn a_write_to_what_is_only_read_is_reported() {
    let bench = Bench::new(Order::Given);
    let (input, out) = (bench.upload(&[1.0f32; 32]), bench.alloc(128));
    let launch = Launch::new("planted_write_input", [1, 1, 1]).block(32);
    let report = fault(&bench, &launch.arg(input.read()).arg(out.write()));
    assert_says(&report, &["`planted_write_input`: global_memory.cu:"]);
    assert_says(&report, &["changed a buffer of 128 bytes that it only reads"]);
    // The same launch, if it says so.
    let bench = Bench::new(Order::Given);
    let (input, out) = (bench.upload(&[1.0f32; 32]), bench.alloc(128));
    let launch = Launch::new("planted_write_input", [1, 1, 1]).block(32);
    bench.run(&launch.arg(input.update()).arg(out.write())).unwrap();
}

#[test]
fn memory_starts_as_nan() {
    let bench = Bench::new(Order::Given);
    let (from, to) = (bench.alloc(32), bench.alloc(32));
    bench.run(&fill(from.write(), 1, 8)).unwrap();
    let launch = Launch::new("planted_increment", [1, 1, 1]).arg(from.read()).arg(to.write());
    bench.run(&launch.int(0).int(8)).unwrap();
    let values = bench.download::<f32>(to);
    assert!(values[0].is_nan());
    assert_eq!(values[1..], [2.0; 7]);
    assert_eq!(bench.download::<i32>(from)[0], -1);
}

#[test]
fn arguments_that_do_not_fit_are_refused_at_the_launch() {
    let bench = Bench::new(Order::Given);
    let to = bench.alloc(32).write();
    let refused = |launch: &Launch| match bench.device.launch(bench.stream, launch) {
        Err(DeviceError::Kernel { kernel, reason }) => format!("{kernel}: {reason}"),
        other => panic!("{other:?}"),
    };
    let new = || Launch::new("planted_fill", [1, 1, 1]);
    let few = refused(&new().arg(to.clone()).arg(1.0f32).int(0));
    assert_says(
        &few,
        &["planted_fill: takes parameters of [8, 4, 4, 4] bytes, is given [8, 4, 4]"],
    );
    let wide = refused(&new().arg(to.clone()).arg(1.0f32).len(0).int(8));
    assert_says(&wide, &["takes parameters of [8, 4, 4, 4] bytes, is given [8, 4, 8, 4]"]);
    let unknown = refused(&Launch::new("planted_nothing", [1, 1, 1]));
    assert_says(&unknown, &["no kernel of this name was compiled"]);
    let threads = refused(&fill(to.clone(), 0, 8).block(1025));
    assert_says(&threads, &["a block of 1025 threads"]);
    let mut launch = fill(to, 0, 8);
    launch.grid = [1, 65536, 1];
    assert_says(&refused(&launch), &["a grid of 1 x 65536 x 1 blocks"]);
}

#[test]
fn pointers_outside_allocations_are_refused_at_the_launch() {
    let bench = Bench::new(Order::Given);
    let memory = bench.alloc(32);
    let refused = |touch: Touch| {
        let launch = fill(Arg::Buffer(touch), 0, 1);
        bench.device.launch(bench.stream, &launch).unwrap_err().to_string()
    };
    let whole = Touch { ptr: memory.ptr, bytes: 32, access: Access::Write };
    for touch in [
        Touch { bytes: 33, ..whole },
        Touch { ptr: memory.ptr + 1, ..whole },
        Touch { ptr: memory.ptr - 1, ..whole },
        Touch { ptr: 4096, ..whole },
        Touch { ptr: u64::MAX - 8, ..whole },
    ] {
        assert_says(&refused(touch), &["is not inside an allocation"]);
    }
    bench.device.free(memory.ptr).unwrap();
    assert_says(&refused(whole), &["is not inside an allocation"]);
}

#[test]
fn more_memory_than_there_is_cannot_be_had() {
    let device = EmulatedDevice::new(Order::Given);
    let memory = device.memory().unwrap();
    assert_eq!(memory.free, memory.total);
    let held = device.alloc(1 << 20).unwrap();
    let free = memory.total - (1 << 20);
    assert_eq!(device.memory().unwrap().free, free);
    let wanted = memory.total;
    assert_eq!(device.alloc(wanted), Err(DeviceError::OutOfMemory { wanted, free }));
    device.free(held).unwrap();
    assert_eq!(device.memory().unwrap().free, memory.total);
}

#[test]
fn what_is_asked_of_the_device_is_counted() {
    let bench = Bench::new(Order::Given);
    let memory: Memory = bench.upload(&[0.0f32; 8]);
    bench.run(&fill(memory.write(), 0, 8)).unwrap();
    bench.device.begin_capture(bench.stream).unwrap();
    bench.device.launch(bench.stream, &fill(memory.write(), 0, 4)).unwrap();
    let graph = bench.device.end_capture(bench.stream).unwrap();
    for _ in 0..3 {
        bench.device.replay(graph, bench.stream).unwrap();
    }
    bench.download::<f32>(memory);
    let counts = bench.device.counts();
    assert_eq!(counts.kernel_launches, 1);
    assert_eq!(counts.graph_launches, 3);
    assert_eq!((counts.allocations, counts.uploads, counts.downloads), (1, 1, 1));
    assert_eq!(counts.host_waits, 3); // after the upload, after the launch, and the download
}
