//! The executor's step counter, and a device that hangs.

use std::sync::Arc;

use device::{Gpu, Target};
use kernels::ops::relu_mask::ReluMask;
use kernels::{Role, TensorDesc};

use super::*;
use crate::{Program, StateSet};

/// An executor of `y = x` where `x > 0`, else 0.
fn executor(device: &Arc<dyn Device>) -> DeviceExecutor {
    let mut program = Program::new();
    let desc = TensorDesc::new(Role::Gradient, &[5]);
    let x = program.input("x", desc);
    let y = program.apply1(ReluMask, [x, x]).expect("shapes that fit");
    program.keep("y", y);
    let prepared = Prepared::new(Arc::new(program), Target::Gpu(Gpu::a100())).expect("a schedule");
    let none = StateSet::new();
    let state = DeviceState::new(device.clone(), &[&prepared.program], &[], &none).expect("none");
    let arena = Arc::new(SharedArena::new(device.clone(), &[&prepared]).expect("memory"));
    let executor = DeviceExecutor::new(device.clone(), vec![prepared], arena, &state);
    executor.expect("a capture").with_staging().expect("memory")
}

/// A step that never ends is reported, and afterwards the host no longer waits for the device.
#[test]
fn hanging_device_times_out() {
    let device: Arc<dyn Device> = Arc::new(test_gpu::open("A100"));
    let mut executor = executor(&device);
    // No graph was launched, so the step never ends.
    let step = executor.close_step().expect("no fault");
    let hangs = executor.until_done_within(step, Duration::from_millis(20));
    assert!(matches!(hangs, Err(GraphError::Hangs { step: 1, .. })), "{hangs:?}");
    let waits = device.counts().host_waits;
    drop(executor);
    assert_eq!(device.counts().host_waits, waits, "no wait of the host");
    let said = device.synchronize().expect_err("it is not asked any more").to_string();
    assert!(said.contains("no longer used"), "{said}");
}

/// When the step number wraps at 2^32, steps still read the correct inputs, and waiting for them
/// works.
#[test]
fn step_counter_wraps_around() {
    for seed in 1..4 {
        let device: Arc<dyn Device> = Arc::new(test_gpu::open(&format!("A100 SEED={seed}")));
        let mut executor = executor(&device);
        executor.submitted = u32::MAX - 1;
        device.write_pinned(executor.done, 0, &executor.submitted.to_ne_bytes());
        let mut numbers = vec![];
        for step in 0..6u32 {
            let half = half::f16::from_f32(1.0 + step as f32).to_ne_bytes();
            executor.write_input(0, "x", &half.repeat(5)).expect("an input");
            numbers.push(executor.submit(0).expect("a launch"));
            assert!(executor.submitted.wrapping_sub(executor.done()) <= 2, "two ahead at most");
        }
        assert_eq!(numbers, [u32::MAX, 0, 1, 2, 3, 4]);
        executor.until_done(u32::MAX).expect("no fault");
        executor.until_done(4).expect("no fault");
        assert_eq!(executor.done(), 4);
        assert_eq!(executor.read(0, "y").expect("kept").as_f32(), [6.0; 5]);
    }
}

/// Step numbers are ordered correctly across the wraparound.
#[test]
fn step_numbers_compare_across_wraparound() {
    assert!(is_before(1, 2) && is_before(u32::MAX, 0) && is_before(u32::MAX - 1, 3));
    assert!(!is_before(2, 2) && !is_before(0, u32::MAX) && !is_before(2, 1));
}
