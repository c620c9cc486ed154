//! The device executor on the emulated device: slots, counts, and refusals of the capture.

use std::sync::Arc;

use emulated::{EmulatedDevice, Order};
use graph::exec::device::{DeviceExecutor, DeviceState, Prepared, SharedArena};
use graph::program::Pass;
use graph::{CpuExecutor, Program, Schedule, StateSet};
use kernels::device::{Counts, Device};
use kernels::ops::relu_mask::ReluMask;
use kernels::{Role, TensorDesc};

const LEN: usize = 3000;

/// `a`, `b` -> several gradients of ReLUs, some of them on the second stream.
fn program() -> Arc<Program> {
    let mut program = Program::new();
    let halves = TensorDesc::new(Role::Gradient, &[LEN]);
    let (a, b) = (program.input("a", halves.clone()), program.input("b", halves));
    let mut x = a;
    program.set_pass(Pass::Backward);
    for i in 0..6 {
        let beside = program.apply1(ReluMask, &[x, b]).expect("shapes that fit");
        x = program.apply1(ReluMask, &[x, if i % 2 == 0 { b } else { a }]).expect("shapes");
        program.keep(&format!("beside{i}"), beside);
    }
    program.keep("x", x);
    Arc::new(program)
}

fn halves(seed: u32) -> Vec<f32> {
    (0..LEN as u32).map(|i| ((i * 37 + seed * 101) % 17) as f32 - 8.0).collect()
}

fn bytes(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| half::f16::from_f32(*v).to_ne_bytes()).collect()
}

fn executor(order: Order, programs: usize) -> (Arc<EmulatedDevice>, DeviceExecutor) {
    let device = Arc::new(EmulatedDevice::new(order));
    let prepared: Vec<_> =
        (0..programs).map(|_| Prepared::new(program()).expect("a schedule")).collect();
    let shared: Arc<dyn Device> = device.clone();
    let all: Vec<_> = prepared.iter().map(|p| p.program.as_ref()).collect();
    let state =
        DeviceState::new(shared.clone(), &all, &[], &StateSet::new()).expect("no state to miss");
    let arena = SharedArena::new(shared.clone(), &prepared.iter().collect::<Vec<_>>());
    let arena = Arc::new(arena.expect("memory"));
    let executor = DeviceExecutor::new(shared, prepared, arena, &state).expect("a capture");
    (device, executor)
}

#[test]
fn fifty_steps_are_fifty_graph_launches_and_no_wait() {
    let (device, mut executor) = executor(Order::Random(3), 2);
    let before = device.counts();
    for step in 0..50 {
        let which = step as usize % 2;
        executor.write_input(which, "a", &bytes(&halves(step))).expect("an input");
        executor.write_input(which, "b", &bytes(&halves(step + 7))).expect("an input");
        executor.submit(which).expect("a launch");
    }
    executor.until_done(50).expect("no fault");
    let after = device.counts();
    let expected = Counts { graph_launches: 50, uploads: before.uploads + 50, ..before };
    assert_eq!(after, expected, "one launch and one copy a step, nothing else");
}

#[test]
fn steps_in_flight_keep_their_own_inputs() {
    let mut cpu = CpuExecutor::new(program(), &StateSet::new()).expect("a plan");
    for seed in 1..4 {
        let (_, mut executor) = executor(Order::Random(seed), 1);
        for step in 0..5 {
            let (a, b) = (halves(step), halves(step + 7));
            executor.write_input(0, "a", &bytes(&a)).expect("an input");
            executor.write_input(0, "b", &bytes(&b)).expect("an input");
            executor.submit(0).expect("a launch");
            cpu.input_mut("a").expect("an input").as_f32_mut().copy_from_slice(&a);
            cpu.input_mut("b").expect("an input").as_f32_mut().copy_from_slice(&b);
        }
        cpu.run(&mut StateSet::new());
        for name in ["x", "beside0", "beside5"] {
            let got = executor.read(0, name).expect("kept");
            assert_eq!(got.as_f32(), cpu.f32(name).expect("kept"), "{name}, seed {seed}");
        }
    }
}

/// The schedule knows the waits; without them the device finds two launches that race.
#[test]
fn a_wait_that_is_missing_is_found_at_capture() {
    use graph::capture::{Task, capture};
    let (device, _) = executor(Order::Given, 1);
    let shared: Arc<dyn Device> = device.clone();
    let prepared = Prepared::new(program()).expect("a schedule");
    assert!(prepared.schedule.launches().iter().any(|l| l.stream == 1 && !l.waits.is_empty()));
    let state = DeviceState::new(shared.clone(), &[&prepared.program], &[], &StateSet::new());
    let arena = device.alloc(prepared.plan.arena_bytes()).expect("memory");
    let inputs = device.alloc(prepared.input_bytes()).expect("memory");
    let state = state.expect("no state to miss");
    let address = |name: &str| state.ptr(name);
    let place = graph::exec::device::Place { arena, inputs, state: &address };
    let list = prepared.launches(&place).expect("addresses");
    capture(device.as_ref(), &list).expect("all waits are there");
    let mut without = graph::capture::LaunchList::default();
    for work in list.works() {
        assert!(matches!(work.task, Task::Kernels(_)));
        let mut work = work.clone();
        work.waits.clear();
        without.push(work);
    }
    let error = capture(device.as_ref(), &without).expect_err("a race").to_string();
    assert!(error.contains("no event orders them"), "{error}");
    assert!(Schedule::two_streams(&prepared.program).is_ok());
}
