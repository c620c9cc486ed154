//! A data race is rejected: two streams with a missing wait, and the emulated CUDA driver's error.
//!
//! `cargo run --release -p graph --example 05_race_refused`

use std::error::Error;
use std::io::Write;

use device::{Access, Arg, Device, DeviceError, DevicePtr, Launch, Touch};
use graph::capture::{LaunchList, Work, capture};

/// Number of fp16 elements of a buffer.
const LEN: usize = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    lesson(&mut std::io::stdout())
}

pub(crate) fn lesson(out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let device = test_gpu::open("A100");

    // `mask` reads the buffer that `ones` writes on the other stream, and waits for it: the capture
    // succeeds.
    let mut list = LaunchList::default();
    let [ones, mask] = fork(&device)?;
    let first = list.push(ones);
    list.push(Work { waits: vec![first], ..mask });
    let graph = capture(&device, &list)?;
    writeln!(out, "with the wait: captured, {} kernels", graph.kernels)?;

    // The same work without the wait. On a GPU this would give correct results most of the time,
    // but not always, since streams run concurrently. Launches declare the bytes that they may
    // access: if two launches access the same bytes and at least one writes, they must be ordered.
    // The check runs no kernel.
    let mut list = LaunchList::default();
    fork(&device)?.into_iter().for_each(|work| {
        list.push(work);
    });
    let refused = capture(&device, &list).expect_err("a race");
    writeln!(out, "without it: {refused}")?;

    // One stream runs its work in order, so it needs no wait.
    let graph = capture(&device, &list.on_one_stream())?;
    writeln!(out, "on one stream: captured, {} kernels", graph.kernels)?;
    assert_eq!(device.counts().graph_launches, 0, "all of it without a run");
    Ok(())
}

/// `ones` on stream 0 fills a buffer with 1; `mask` on stream 1 reads it.
fn fork(device: &dyn Device) -> Result<[Work; 2], DeviceError> {
    let bytes = 2 * LEN;
    let (dy, y, g) = (device.alloc(bytes)?, device.alloc(bytes)?, device.alloc(bytes)?);
    let buffer = |ptr: DevicePtr, access| Arg::Buffer(Touch { ptr, bytes, access });
    let ones = Launch::over("fill_f16", LEN.div_ceil(8))
        .arg(buffer(y, Access::Write))
        .arg(1.0f32)
        .len(LEN);
    let mask = Launch::over("relu_mask_f16", LEN.div_ceil(8))
        .arg(buffer(dy, Access::Read))
        .arg(buffer(y, Access::Read))
        .arg(buffer(g, Access::Write))
        .len(LEN);
    let (ones, mask) = (Work::new("ones", vec![ones.into()]), Work::new("mask", vec![mask.into()]));
    Ok([ones, Work { stream: 1, ..mask }])
}
