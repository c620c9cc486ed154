//! The device executor on the emulated CUDA driver: inputs, counts, and rejected captures.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use device::cuda::CudaDevice;
use device::{Counts, Device, Launch, LaunchArgs};
use graph::capture::{LaunchList, capture};
use graph::exec::device::{DeviceExecutor, DeviceState};
use graph::plan::ALIGNMENT;
use graph::program::Pass;
use graph::{CpuExecutor, Program, StateSet};
use kernels::cpu::{CpuArgs, HostTensor};
use kernels::ops::relu_mask::ReluMask;
use kernels::{OpError, Role, TensorDesc};
use test_gpu::{Alive, TestGpu};

use crate::common::on_device::{captured, halves, launches, pattern, prepared};
use crate::common::{Build, bound};

const LEN: usize = 3000;

/// Several ReLU gradients computed from inputs `a` and `b`, some of them on the second stream.
fn program() -> Arc<Program> {
    let mut program = Program::new();
    let halves = TensorDesc::new(Role::Gradient, &[LEN]);
    let (a, b) = (program.input("a", halves.clone()), program.input("b", halves));
    let mut x = a;
    program.set_pass(Pass::Backward);
    for i in 0..6 {
        let beside = program.node(ReluMask, [x, b]);
        x = program.node(ReluMask, [x, if i % 2 == 0 { b } else { a }]);
        program.keep(&format!("beside{i}"), beside);
    }
    program.keep("x", x);
    Arc::new(program)
}

fn values(seed: u32) -> Vec<f32> {
    pattern(seed, LEN, 17)
}

fn executor(device: &Arc<CudaDevice>, programs: usize) -> DeviceExecutor {
    let prepared = (0..programs).map(|_| prepared(device.as_ref(), program())).collect();
    captured(device.clone(), prepared, &StateSet::new(), &[]).expect("a capture").1
}

/// Submits a step with the inputs generated from `seeds`.
fn submit(executor: &mut DeviceExecutor, which: usize, seeds: [u32; 2]) {
    for (name, seed) in ["a", "b"].into_iter().zip(seeds) {
        executor.write_input(which, name, &halves(&values(seed))).expect("an input");
    }
    executor.submit(which).expect("a launch");
}

/// The CPU executor of the same program, for the expected results.
fn cpu() -> CpuExecutor {
    bound(&program(), &StateSet::new())
}

fn run_on_cpu(cpu: &mut CpuExecutor, seeds: [u32; 2]) {
    for (name, seed) in ["a", "b"].into_iter().zip(seeds) {
        cpu.input_mut(name).expect("an input").as_f32_mut().copy_from_slice(&values(seed));
    }
    cpu.run(&mut StateSet::new());
}

fn assert_same(executor: &DeviceExecutor, cpu: &CpuExecutor) {
    for name in ["x", "beside0", "beside5"] {
        let got = executor.read(0, name).expect("kept");
        assert_eq!(got.as_f32(), cpu.f32(name).expect("kept"), "{name}");
    }
}

#[test]
fn fifty_steps_make_fifty_graph_launches_without_host_sync() {
    let device = Arc::new(test_gpu::open("A100 SEED=3"));
    let mut executor = executor(&device, 2);
    let before = device.counts();
    for step in 0..50 {
        submit(&mut executor, step as usize % 2, [step, step + 7]);
    }
    executor.until_done(50).expect("no fault");
    let after = device.counts();
    let expected = Counts { graph_launches: 50, uploads: before.uploads + 50, ..before };
    assert_eq!(after, expected, "one launch and one copy a step, nothing else");
}

#[test]
fn steps_in_flight_keep_separate_inputs() {
    let mut cpu = cpu();
    run_on_cpu(&mut cpu, [4, 11]);
    for seed in 1..4 {
        let device = Arc::new(test_gpu::open(&format!("A100 SEED={seed}")));
        let mut executor = executor(&device, 1);
        for step in 0..5 {
            submit(&mut executor, 0, [step, step + 7]);
        }
        assert_same(&executor, &cpu);
    }
}

/// A batch is copied directly from the caller's pinned memory to the device, without a host copy;
/// the caller may reuse the memory only when the step is done.
#[test]
fn inputs_are_copied_from_callers_pinned_memory() {
    let device = Arc::new(test_gpu::open("A100 SCHEDULE=late"));
    let mut executor = executor(&device, 1);
    let prepared = &executor.programs()[0];
    let ranges = ["a", "b"].map(|name| prepared.input_range(name).expect("an input"));
    assert_eq!(prepared.input_range("x"), None, "a value is no input");
    let input_bytes = prepared.input_bytes();
    let mut buffers = [(); 2].map(|()| device.pinned_buffer(input_bytes).expect("memory"));
    let mut cpu = cpu();
    let (before, mut lent) = (device.counts(), 0);
    for step in 0..6 {
        let buffer = &mut buffers[step as usize % 2];
        let seeds = ranges.each_ref().map(|range| step + range.start as u32);
        for (range, seed) in ranges.iter().zip(seeds) {
            buffer.as_mut()[range.clone()].copy_from_slice(&halves(&values(seed)));
        }
        executor.upload_inputs(0, buffer).expect("a copy");
        let number = executor.submit(0).expect("a launch");
        let write = AssertUnwindSafe(|| buffer.as_mut()[0] = 0);
        lent += u32::from(catch_unwind(write).is_err());
        executor.until_done(number).expect("no fault");
        run_on_cpu(&mut cpu, seeds);
        let after = device.counts();
        assert_eq!(after.pinned_writes, before.pinned_writes);
        assert_eq!(after.host_waits, before.host_waits);
        assert_eq!(after.uploads - before.uploads, u64::from(step) + 1);
    }
    assert!(lent > 0, "no copy was as late as the write");
    assert_same(&executor, &cpu);
}

/// A step allocates no memory, streams or events, and all memory is freed at the end.
#[test]
fn hundred_steps_leak_nothing() {
    let gpu = TestGpu::new("A100 SEED=3");
    let device = Arc::new(gpu.open());
    let free = |device: &CudaDevice| device.memory().expect("memory").free;
    let all = free(&device);
    let mut executor = executor(&device, 2);
    let before = (free(&device), device.counts().allocations);
    let handles = |d: &CudaDevice| (d.stream().expect("one").0, d.event().expect("one").0);
    let (stream, event) = handles(&device);
    for step in 0..100 {
        submit(&mut executor, step as usize % 2, [step, step]);
    }
    executor.until_done(100).expect("no fault");
    assert_eq!((free(&device), device.counts().allocations), before);
    assert_eq!(handles(&device), (stream + 1, event + 1), "numbers of handles are consecutive");
    drop(executor);
    assert_eq!(free(&device), all, "pinned memory counts too");
    // Two streams of this test, and the stream that the device queries for errors.
    let kept = Alive { graphs: 0, streams: 3, events: 2 };
    assert_eq!(gpu.alive(), kept, "those of the capture too");
}

/// Graph and stream are released while a replay is in flight: the replay completes, and no other
/// work uses them.
#[test]
fn graph_and_stream_freed_in_flight_finish_replay() {
    let device = Arc::new(test_gpu::open("A100 SEED=3"));
    let mut executor = executor(&device, 1);
    let stream = device.stream().expect("a stream");
    // One step for each of the two input buffers.
    for step in 1..3 {
        submit(&mut executor, 0, [1, 1]);
        executor.until_done(step).expect("no fault");
    }
    let list = &executor.launch_lists()[0];
    let graph = capture(device.as_ref(), list).expect("a capture").handle;
    device.replay(graph, stream).expect("a launch");
    device.free_graph(graph);
    device.free_stream(stream);
    device.synchronize().expect("no fault");
    assert_eq!(executor.done(), 3, "the replay counted");
    let again = AssertUnwindSafe(|| device.replay(graph, stream));
    assert!(catch_unwind(again).is_err(), "both are gone");
}

/// A `relu_mask` that writes past the end of its output.
#[derive(Debug)]
struct TooLong;

impl kernels::Op for TooLong {
    fn name(&self) -> &'static str {
        "too_long"
    }

    fn infer(&self, i: &[TensorDesc], _: &[TensorDesc]) -> Result<Vec<TensorDesc>, OpError> {
        Ok(vec![i[0].clone()])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let [x, y] = [args.inputs[0], args.outputs[0]];
        let launch = Launch::over("relu_mask_f16", x.len());
        vec![launch.arg(x.read()).arg(x.read()).arg(y.write()).len(x.len() + 8)]
    }

    fn run_cpu(&self, _: &mut CpuArgs<'_>) {
        unreachable!("only for the device")
    }
}

/// After a kernel has failed, every query returns the same error, without a panic or a wait.
#[test]
fn step_fault_is_reported_by_every_later_query() {
    let mut program = Program::new();
    let x = program.input("x", TensorDesc::new(Role::Gradient, &[ALIGNMENT / 2]));
    let y = program.node(TooLong, [x]);
    program.keep("y", y);
    let device = Arc::new(test_gpu::open("A100"));
    let prepared = vec![prepared(device.as_ref(), Arc::new(program))];
    let captured = captured(device, prepared, &StateSet::new(), &[]);
    let (_, mut executor) = captured.expect("what it does shows when it runs");
    let mut errors = vec![];
    for _ in 0..4 {
        let written = executor.write_input(0, "x", &halves(&[1.0; ALIGNMENT / 2]));
        match written.and_then(|()| executor.submit(0)) {
            Ok(number) => assert!(number <= 2, "the third step waits for the first"),
            Err(e) => errors.push(e.to_string()),
        }
    }
    errors.push(executor.until_done(2).expect_err("it never ran well").to_string());
    errors.push(executor.read(0, "y").expect_err("it never ran well").to_string());
    assert_eq!(errors.len(), 4);
    let reasons = errors.iter().map(|e| e.split_once(": ").map(|(_, reason)| reason));
    let reasons: BTreeSet<_> = reasons.collect();
    assert_eq!(reasons.len(), 1, "{errors:?}");
    assert!(errors[0].contains("relu_mask_f16") && errors[0].contains("past the end of one of"));
}

/// Many small tensors share one copy, and large tensors are copied in several pieces.
#[test]
fn state_upload_uses_few_large_copies() {
    let mut program = Program::new();
    let mut set = StateSet::new();
    let mut add = |name: String, len: usize| {
        let desc = TensorDesc::new(Role::Master, &[len]);
        program.state(&name, desc.clone());
        set.insert(&name, HostTensor::f32(desc, (0..len).map(|i| (i + len) as f32).collect()));
    };
    (0..300).for_each(|i| add(format!("small{i}"), 1 + 7 * i));
    (0..3).for_each(|i| add(format!("large{i}"), (9 << 20) + i));
    let device = Arc::new(test_gpu::open("A100"));
    let state = DeviceState::new(device.clone(), &[&program], &[], &set).expect("memory");
    let counts = device.counts();
    assert_eq!((counts.uploads, counts.host_waits), (2, 3), "108 MiB in pieces of 64");
    let mut back = StateSet::new();
    state.download(&mut back).expect("no fault");
    assert!(back.iter().eq(set.iter()));
    let lacking = state.upload(&StateSet::new()).expect_err("nothing given").to_string();
    assert!(lacking.contains("large0"), "{lacking}");
    let free = device.memory().expect("memory").free;
    drop(state);
    assert!(device.memory().expect("memory").free > free + (108 << 20));
}

/// With the schedule's waits the capture succeeds; without a wait the device reports two launches
/// that race.
#[test]
fn missing_wait_is_found_at_capture() {
    let device = test_gpu::open("A100");
    let prepared = prepared(&device, program());
    assert!(prepared.schedule.launches().iter().any(|l| l.stream == 1 && !l.waits.is_empty()));
    let list = launches(&device, &prepared);
    capture(&device, &list).expect("all waits are there");
    let mut without = LaunchList::default();
    for work in list.works() {
        assert!(work.kernels().count() > 0);
        let mut work = work.clone();
        work.waits.clear();
        without.push(work);
    }
    let error = capture(&device, &without).expect_err("a race").to_string();
    assert!(error.contains("no event orders them"), "{error}");
}
